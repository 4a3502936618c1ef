package ledgers

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// fakeBookie serves what it is told to, right or wrong.
type fakeBookie struct {
	bookiepb.UnimplementedBookieServer
	id       string
	replicas []string
	entries  map[ledger.ID][][]byte // nil: no such ledger
}

func (f *fakeBookie) Status(context.Context, *bookiepb.StatusRequest) (*bookiepb.StatusResponse, error) {
	g := &bookiepb.GroupStatus{Group: 1, LeaderId: "a", Replicas: f.replicas, Ready: f.id == "a"}
	return &bookiepb.StatusResponse{BookieId: f.id, Groups: []*bookiepb.GroupStatus{g}}, nil
}

func (f *fakeBookie) Read(req *bookiepb.ReadRequest, stream grpc.ServerStreamingServer[bookiepb.ReadResponse]) error {
	list, there := f.entries[ledger.ID(req.GetLedger())]
	switch {
	case !there && f.id != "a":
		return stream.SendMsg(&bookiepb.ReadBody{Result: &bookiepb.Result{Code: bookiepb.Code_BEHIND}})
	case !there:
		return stream.SendMsg(&bookiepb.ReadBody{Result: &bookiepb.Result{Code: bookiepb.Code_NO_LEDGER}})
	case req.GetFirst() >= int64(len(list)):
		return stream.SendMsg(&bookiepb.ReadBody{Result: &bookiepb.Result{Code: bookiepb.Code_NO_ENTRY}})
	}
	payload := list[req.GetFirst()]
	if err := stream.SendMsg(&bookiepb.ReadBody{First: req.GetFirst(), Count: 1, Entries: ledger.AppendEntry(nil, payload)}); err != nil {
		return err
	}
	return stream.SendMsg(&bookiepb.ReadBody{Result: &bookiepb.Result{}})
}

// written is two ledgers of five entries, of which the second was deleted, and three bookies that have them.
func written() (*Log, []*fakeBookie) {
	g := &Log{}
	w := &Writer{id: 3, log: g}
	g.Writers = []*Writer{w}
	kept := &Ledger{Ref: ledger.Ref{ID: 7, Group: 1}, writer: w, base: 10, sent: 6, acked: 4, ended: true, last: 4, closed: true}
	gone := &Ledger{Ref: ledger.Ref{ID: 8, Group: 1}, writer: w, base: 15, sent: 4, acked: 4, ended: true, last: 4, closed: true, deleted: true}
	w.list = []*Ledger{kept, gone}
	var bookies []*fakeBookie
	for _, id := range []string{"a", "b", "c"} {
		f := &fakeBookie{id: id, replicas: []string{"a", "b", "c"}, entries: map[ledger.ID][][]byte{}}
		for e := range kept.last + 1 {
			f.entries[kept.ID] = append(f.entries[kept.ID], kept.stamp(e).content())
		}
		bookies = append(bookies, f)
	}
	return g, bookies
}

// TestCheckReplicas gives the checker what broken bookies would: each must be noticed.
func TestCheckReplicas(t *testing.T) {
	other := func(g *Log, e ledger.EntryID) []byte { return g.Writers[0].list[0].stamp(e).content() }
	for name, spoil := range map[string]func(*Log, *fakeBookie){
		"":                            nil,
		"the last entry is lost":      func(_ *Log, f *fakeBookie) { f.entries[7] = f.entries[7][:4] },
		"the ledger is lost":          func(_ *Log, f *fakeBookie) { delete(f.entries, 7) },
		"a byte is wrong":             func(_ *Log, f *fakeBookie) { f.entries[7][2][headSize] ^= 1 },
		"an entry is another":         func(g *Log, f *fakeBookie) { f.entries[7][2] = other(g, 3) },
		"an entry is cut":             func(_ *Log, f *fakeBookie) { f.entries[7][2] = f.entries[7][2][:headSize] },
		"an entry behind the end":     func(g *Log, f *fakeBookie) { f.entries[7] = append(f.entries[7], other(g, 5)) },
		"a deleted ledger is there":   func(_ *Log, f *fakeBookie) { f.entries[8] = f.entries[7] },
		"the group has too few":       func(_ *Log, f *fakeBookie) { f.replicas = []string{"a", "b"} },
		"the group is elsewhere":      func(g *Log, _ *fakeBookie) { g.Writers[0].list[0].Group = 2 },
		"an acknowledgement too many": func(g *Log, _ *fakeBookie) { _, err := g.Writers[0].list[0].ack(7); g.fault(err) },
	} {
		t.Run(name, func(t *testing.T) {
			g, bookies := written()
			if spoil != nil {
				spoil(g, bookies[0])
			}
			var addresses []string
			for _, f := range bookies {
				addresses = append(addresses, serve(t, f))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if name == "the group has too few" { // it is waited for
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			defer cancel()
			found, err := g.CheckReplicas(ctx, addresses, 3)
			if (err != nil) != (spoil != nil) {
				t.Errorf("found %+v, %v", found, err)
			}
		})
	}
}

func serve(t *testing.T, f *fakeBookie) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(bookiepb.ServerOptions()...)
	bookiepb.RegisterBookieServer(s, f)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// TestCompareDirectories gives the comparison of directories what broken ones would hold.
func TestCompareDirectories(t *testing.T) {
	sound := held{Group: 1, Ledger: 7, Last: 4, Closed: true, Checksum: "ab", Summed: 6, Bytes: 100, Complete: true}
	for name, spoil := range map[string]func([]held) []held{
		"":                  nil,
		"one is missing":    func(h []held) []held { return h[:2] },
		"one is open":       func(h []held) []held { h[1].Closed = false; return h },
		"one is longer":     func(h []held) []held { h[2].Last = 5; return h },
		"all are longer":    func(h []held) []held { h[0].Last, h[1].Last, h[2].Last = 5, 5, 5; return h },
		"one has other sum": func(h []held) []held { h[0].Checksum = "ac"; return h },
	} {
		g, _ := written()
		have := slices.Repeat([]held{sound}, 3)
		if spoil != nil {
			have = spoil(have)
		}
		if err := g.Writers[0].list[0].compare(have, 3); (err != nil) != (spoil != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err := g.Writers[0].list[1].compare(have, 3); err == nil {
			t.Errorf("%s: a deleted ledger may be there", name)
		}
	}
}

// TestFencedEnd is about acknowledgements that come before, and after, another owner has closed a ledger.
func TestFencedEnd(t *testing.T) {
	l := &Ledger{sent: 9, acked: 5, last: ledger.NoEntry}
	if err := l.end(4, true); err == nil {
		t.Error("a fence may lose an acknowledged entry")
	}
	l = &Ledger{sent: 9, acked: 5}
	if err := l.end(7, true); err != nil {
		t.Error(err)
	}
	if counts, err := l.ack(7); counts || err != nil {
		t.Errorf("a late acknowledgement: counts %v, %v", counts, err)
	}
	if _, err := l.ack(8); err == nil {
		t.Error("an entry behind the fence may be acknowledged")
	}
}
