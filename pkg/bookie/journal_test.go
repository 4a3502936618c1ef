package bookie

import (
	"context"
	"errors"
	"strings"
	"testing"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// A bookie whose journal is gone, while its identity is still there, does not begin another one: its replicas would vote
// again in terms in which they have voted, and count for entries that they do not have.
func TestLostJournalIsNotBegunAgain(t *testing.T) {
	c := newCluster(t, 1, nil)
	b := c.nodes["a"]
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	c.stop("a")
	c.start("a", listen(t, b.addr)) // with the journal it starts again
	c.ready("a")
	c.stop("a")

	names, err := b.disk.List("/data/journal")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := b.disk.Remove("/data/journal/" + name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the refusal leaves nothing behind that would pass for a journal
		l := listen(t, b.addr)
		_, err = Open(context.Background(), c.options(b, l))
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "new id") {
			t.Errorf("without its journal: %v", err)
		}
	}
}

// A crash between the journal and its mark, in the first start, is a first start again.
func TestJournalWithoutMark(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{DataDir: "/data", FS: fs, Journal: JournalOptions{SegmentSize: 64 << 10}}
	o.EnsureDefaults()
	if err := fs.MkdirAll(o.DataDir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		j, err := beginJournal(&o)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if err := fs.Remove("/data/" + journalFile); err != nil {
			t.Fatal(err)
		}
	}
}
