package bookie

import (
	"fmt"
	"strings"
	"testing"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// BenchmarkAppend is the path from one append stream through a group of three replicas, in one process, on one disk:
// gRPC, proposer, raft, journal, fsm and back. An operation is one entry; a command carries batch of them.
func BenchmarkAppend(b *testing.B) {
	for _, bc := range []struct{ size, batch int }{{128, 1}, {128, 100}, {1024, 1}, {1024, 100}} {
		b.Run(fmt.Sprintf("size=%d/batch=%d", bc.size, bc.batch), func(b *testing.B) { benchAppend(b, bc.size, bc.batch) })
	}
}

func benchAppend(b *testing.B, size, batch int) {
	c := newClusterOn(b, 3, true, func(o *Options) { o.Raft, o.Journal = RaftOptions{}, JournalOptions{} })
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	s := c.openStream(b.Context(), c.leader(1), 1)
	payloads := make([]string, batch)
	for i := range payloads {
		payloads[i] = strings.Repeat("x", size)
	}
	const window = 256 // commands in flight
	credit := make(chan struct{}, window)
	total := (b.N + batch - 1) / batch
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for i := range total {
			credit <- struct{}{}
			cmd := testAppend(7, 1, ledger.EntryID(i*batch), payloads...)
			if s.Send(&bookiepb.AppendRequest{Commands: cmd}) != nil {
				return
			}
		}
	}()
	for n := 0; n < total; {
		resp, err := s.Recv()
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range resp.Results {
			if r.Code != bookiepb.Code_OK {
				b.Fatal(r)
			}
			n++
			<-credit
		}
	}
	b.StopTimer()
}
