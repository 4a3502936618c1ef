package integration

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"geminga/integration/harness"
	"geminga/pkg/ledger"
)

var bookiesFull = flag.Int("bookies.full", 0, "how often TestBookiesFull fills the disks; 0 skips it")

// TestBookiesFull gives each of three bookies a small disk of its own. Others fill one of them, then all, and all bookies are
// killed there; then the writers fill all by themselves. Writes are refused with a clear error, reads and deletes go on, and
// writing goes on by itself when there is room: because somebody removed what was in the way, or because ledgers were deleted.
func TestBookiesFull(t *testing.T) {
	if *bookiesFull == 0 {
		t.Skip("needs -bookies.full (make bookies)")
	}
	r := newReport()
	for i := range *bookiesFull {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) { fullOnce(t, r) })
	}
	r.print()
}

// fullOnce has a cluster of its own: what the writers leave behind fills most of the disks, and then one more that is full takes
// the majority away, for good.
func fullOnce(t *testing.T, r *report) {
	dir := workDir(t)
	var disks []string
	for _, name := range []string{"bookie-1", "bookie-2", "bookie-3"} {
		disks = append(disks, smallDisk(t, "160m"))
		if err := os.Symlink(disks[len(disks)-1], filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := startCampaign(t, 6*time.Minute, r, harness.Options{
		Bookies: 3, Dir: dir,
		BookieSets: []string{
			"minFreeSpaceMB=24", "reservedSpaceMB=8", "journalMaxSizeMB=4", "gcWaitTime=1000",
			"ledgerGroupSnapshotLogSizeMB=2", "ledgerGroupTrailingLogSizeMB=2",
		},
	})
	c.fullByOthers(disks[c.rnd.IntN(len(disks)):][:1])
	c.fullByOthers(disks)
	c.fullByWriters()
	c.finish()
}

const filler = "somebody-elses"

// fullByOthers fills some disks to the last byte.
func (c *campaign) fullByOthers(disks []string) {
	c.takeOver()
	for _, d := range disks {
		fillDisk(c.T, filepath.Join(d, filler))
	}
	what := "from room on the one full disk to receipts of all writers"
	if len(disks) < len(c.cluster.Bookies) {
		c.progressOf(c.session.Moving(), "one disk is full")
	} else {
		what = "from room on all disks to receipts of all writers"
		c.refused()
		c.cluster.Kill()
		if err := c.cluster.Start(c.ctx); err != nil {
			c.Fatal(err)
		}
		c.refused()
	}
	for _, d := range disks {
		if err := os.Remove(filepath.Join(d, filler)); err != nil {
			c.Fatal(err)
		}
	}
	c.resumes(what)
}

// fullByWriters has the writers fill all disks, and makes room by deleting ledgers.
func (c *campaign) fullByWriters() {
	c.session.Bulk(16 << 10)
	c.refused()
	c.session.Bulk(0)
	begun := time.Now()
	n, err := c.session.DeleteHalf()
	if err != nil {
		c.Fatal(err)
	}
	c.Logf("%d ledgers deleted on full disks in %v", n, round(time.Since(begun)))
	c.resumes("from the deletion of half the ledgers that filled the disks to receipts of all writers")
}

// resumes waits until all writers go on.
func (c *campaign) resumes(what string) {
	begun := time.Now()
	c.progress(what)
	c.report.took(c.bookies, what, time.Since(begun))
	c.Logf("%s: %v", what, round(time.Since(begun)))
}

// refusing lists the groups whose leaders say that they take nothing. Not every bookie has to be full for that.
func (c *campaign) refusing() map[uint32]bool {
	out := map[uint32]bool{}
	for _, p := range c.cluster.Bookies {
		groups, err := harness.Groups(c.ctx, p)
		if err != nil {
			c.Fatalf("%v\n%s", err, p.Tail(20))
		}
		for _, g := range groups {
			out[g.Group] = out[g.Group] || g.Ready && g.ReadOnly
		}
	}
	return out
}

// refused waits until all groups refuse writes, and sees that they say so, that nobody ends of it, and that reads go on.
func (c *campaign) refused() {
	c.until("all groups refuse entries", func() bool {
		groups := c.refusing()
		for _, refuses := range groups {
			if !refuses {
				return false
			}
		}
		return len(groups) > 0
	})
	c.until("a new ledger is refused with the reason", func() bool {
		err := c.session.Probe()
		if err == nil {
			c.Fatal("a ledger was made on full disks")
		}
		c.Logf("a new ledger on full disks: %v", err) // the last try of many may have been cut short
		return errors.Is(err, ledger.ErrReadOnly)
	})
	read := c.session.Read.Load()
	c.until("reads go on", func() bool { return c.session.Read.Load() > read+1000 })
}
