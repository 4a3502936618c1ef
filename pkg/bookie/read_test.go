package bookie

import (
	"fmt"
	"slices"
	"testing"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// TestReadOfManyRunsReadsRecordsOnce: the entries of many commands that went into one record are read from the file
// together, whatever part of them is asked for, and those of another ledger between them are not served.
func TestReadOfManyRunsReadsRecordsOnce(t *testing.T) {
	const commands = 64
	c := newCluster(t, 1, func(o *Options) { o.ScrubBytesPerSecond, o.ReclaimInterval = -1, 1<<40 })
	for _, id := range []ledger.ID{7, 8} {
		c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: id, Epoch: 1}), bookiepb.Code_OK, -1)
	}
	var want []string
	var request []byte
	for i := range commands {
		one, two := fmt.Sprint("entry ", 2*i), fmt.Sprint("entry ", 2*i+1)
		want = append(want, one, two)
		request = append(request, testAppend(7, 1, ledger.EntryID(2*i), one, two)...)
		request = append(request, testAppend(8, 1, ledger.EntryID(i), "of another")...)
	}
	s := c.openStream(t.Context(), c.leader(1), 1)
	if err := s.Send(&bookiepb.AppendRequest{Commands: request}); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < 2*commands; {
		resp, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.Results {
			if r.Code != bookiepb.Code_OK {
				t.Fatal(r)
			}
		}
		got += len(resp.Results)
	}
	c.stop("a") // what is in memory is gone
	c.start("a", listen(t, c.nodes["a"].addr))
	c.ready("a")
	c.leader(1)
	for _, part := range []struct{ first, entries, reads int64 }{{0, 2 * commands, 8}, {33, 60, 8}, {5, 1, 4}, {2*commands - 1, 1, 4}} {
		before := c.nodes["a"].fs.Count(vfs.OpRead)
		got, res := c.read("a", &bookiepb.ReadRequest{
			Group: 1, Ledger: 7, First: part.first, Confirmed: 2*commands - 1, MaxEntries: uint32(part.entries),
		})
		c.want(res, bookiepb.Code_OK, 2*commands-1)
		if !slices.Equal(got, want[part.first:part.first+part.entries]) {
			t.Errorf("%d entries from %d: %q", part.entries, part.first, got)
		}
		if n := c.nodes["a"].fs.Count(vfs.OpRead) - before; n > part.reads {
			t.Errorf("%d reads of files for %d entries from %d", n, part.entries, part.first)
		}
	}
}
