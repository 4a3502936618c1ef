package integration

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"geminga/integration/harness"
	"geminga/integration/ledgers"
)

var (
	bookiesSeed   = flag.Uint64("bookies.seed", 0, "seed of TestBookies; 0: another one each time")
	bookiesKills  = flag.Int("bookies.kills", 2, "how often TestBookies kills one of three bookies, and one of five")
	bookiesPauses = flag.Int("bookies.pauses", 0, "how often TestBookies stops a leader with SIGSTOP: of a group, and of the metadata")
	bookiesPause  = flag.Duration("bookies.pause", 30*time.Second, "for how long")
	bookiesAll    = flag.Int("bookies.all", 1, "how often TestBookies kills all of three bookies, and all of five")
)

// campaign is faults in a cluster of bookies whose writers go on, and what they cost.
type campaign struct {
	*testing.T
	ctx      context.Context
	bookies  int // at the beginning
	cluster  *harness.Cluster
	session  *ledgers.Session
	rnd      *rand.Rand
	replicas int
	report   *report
	named    int // number of the bookie that came last
}

// bookieWriters is how many lists of ledgers are written; half of them wait for a group that is silent.
const bookieWriters = 8

func startCampaign(t *testing.T, limit time.Duration, r *report, o harness.Options) *campaign {
	t.Helper()
	seed := *bookiesSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-bookies.seed %d", seed)
	c := &campaign{T: t, bookies: o.Bookies, ctx: deadline(t, limit), rnd: rand.New(rand.NewPCG(seed, uint64(o.Bookies))), replicas: 3, report: r}
	c.cluster = startCluster(t, o)
	var addresses []string
	for _, p := range c.cluster.Bookies {
		addresses = append(addresses, p.GRPC)
	}
	log := must[*os.File](t)(os.Create(filepath.Join(filepath.Dir(c.cluster.Bookies[0].Log), "clients.log")))
	t.Cleanup(func() { log.Close() })
	c.session = must[*ledgers.Session](t)(ledgers.Start(c.ctx, ledgers.Options{
		Bookies: addresses, ClusterID: "harness", Writers: bookieWriters, Seed: seed, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}))
	t.Cleanup(c.session.Shutdown)
	c.progress("before anything")
	return c
}

// progress waits until each writer has had some more entries acknowledged.
func (c *campaign) progress(what string) {
	c.Helper()
	c.progressOf(c.session.Writers, what)
}

func (c *campaign) progressOf(writers []*ledgers.Writer, what string) {
	c.Helper()
	begun := time.Now()
	from := make([]int64, len(writers))
	for i, w := range writers {
		from[i] = w.Acked()
	}
	for i, w := range writers {
		c.until(fmt.Sprintf("%s: writer %d has receipts", what, i), func() bool { return w.Acked() > from[i]+2 })
	}
	if err := c.session.Err(); err != nil {
		c.Fatalf("%s, %v: %v", what, time.Since(begun), err)
	}
}

// until waits for a condition.
func (c *campaign) until(what string, holds func() bool) {
	c.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.Fatalf("it never came to this: %s", what)
		}
	}
}

// measure notes the time without receipts while f does something and until all writers go on.
func (c *campaign) measure(kind string, f func()) {
	c.Helper()
	c.session.Mark()
	f()
	c.progress(kind)
	gaps := c.session.Gaps()
	c.report.note(c.bookies, kind, gaps)
	c.Logf("%s: no receipt at all for %v; for the worst writer that moves %v, that waits %v", kind, round(gaps.Any), round(gaps.Moving), round(gaps.Waiting))
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// pause is a random moment in which everything goes on.
func (c *campaign) pause(most time.Duration) {
	select {
	case <-time.After(time.Duration(c.rnd.Int64N(int64(most)))):
	case <-c.ctx.Done():
	}
}

// takeOver gives some writers to another client while theirs goes on.
func (c *campaign) takeOver() { c.session.TakeOver(c.rnd.IntN(bookieWriters)) }

// finish ends the campaign and checks everything: at each bookie as it runs, and in each directory after a clean stop.
func (c *campaign) finish() {
	c.Helper()
	if err := c.session.Finish(c.ctx); err != nil {
		c.Fatal(err)
	}
	var addresses []string
	for _, p := range c.cluster.Bookies {
		addresses = append(addresses, p.GRPC)
	}
	found, err := c.session.CheckReplicas(c.ctx, addresses, c.replicas)
	c.Logf("%d entries acknowledged; %d ledgers, %d deleted ones, %d copies of entries read at the bookies; while faults went on %d entries read, %d reads without answer",
		c.session.Acked.Load(), found.Ledgers, found.Deleted, found.Entries, c.session.Read.Load(), c.session.Unread.Load())
	if err != nil {
		c.Fatal(err)
	}
	var dirs []ledgers.Directory
	for _, p := range c.cluster.Bookies {
		if err := p.Term(20 * time.Second); err != nil {
			c.Errorf("%s: %v", p.Name, err)
		}
		dirs = append(dirs, ledgers.Directory{Name: p.Name, Tool: func(args ...string) ([]byte, error) {
			return c.cluster.Inspect(c.ctx, p.Name, args...)
		}})
	}
	copies, err := c.session.CheckDirectories(dirs, c.replicas, 20)
	c.Logf("%d copies of ledgers compared in the directories", copies)
	if err != nil {
		c.Fatal(err)
	}
	c.report.checked(c.session.Acked.Load(), found)
}

// TestBookies kills bookies under writers that use them directly, three and five of them, and checks every copy of every
// entry. make bookies gives it larger sizes and prints the times.
func TestBookies(t *testing.T) {
	r := newReport()
	for _, n := range []int{3, 5} {
		t.Run(map[int]string{3: "three", 5: "five"}[n], func(t *testing.T) {
			limit := 3*time.Minute + time.Duration(*bookiesKills)*30*time.Second + time.Duration(*bookiesAll)*time.Minute +
				2*time.Duration(*bookiesPauses)*(*bookiesPause+time.Minute)
			c := startCampaign(t, limit, r, harness.Options{Bookies: n})
			c.kills()
			c.pauses()
			c.finish()
		})
	}
	r.print()
}

// kills kills one bookie many times, and now and then all at once. Some come back at once, some only when all writers have
// gone on without them.
func (c *campaign) kills() {
	every := max(1, *bookiesKills/max(1, *bookiesAll))
	all := 0
	for i := 1; i <= *bookiesKills; i++ {
		c.takeOver()
		c.pause(time.Second)
		c.killOne()
		if i%every == 0 && all < *bookiesAll {
			all++
			c.pause(time.Second)
			c.killAll()
		}
	}
}

func (c *campaign) killOne() {
	p := c.cluster.Bookies[c.rnd.IntN(len(c.cluster.Bookies))]
	kind := "kill of a bookie"
	if c.leadsMetadata(p) {
		kind = "kill of the bookie that leads the metadata"
	}
	c.measure(kind, func() {
		p.Kill()
		if c.rnd.IntN(2) == 0 {
			c.progress(p.Name + " is away")
		} else {
			c.pause(500 * time.Millisecond)
		}
		c.restart(p)
	})
}

// restart also notes how long it takes until the bookie is ready.
func (c *campaign) restart(p *harness.Proc) {
	c.Helper()
	begun := time.Now()
	restart(c.ctx, c.T, p)
	c.report.took(c.bookies, "restart until ready", time.Since(begun))
}

func (c *campaign) killAll() {
	c.measure("kill of all", func() {
		c.cluster.Kill()
		if err := c.cluster.Start(c.ctx); err != nil {
			c.Fatal(err)
		}
	})
}

func (c *campaign) leadsMetadata(p *harness.Proc) bool {
	id, err := harness.MetadataLeader(c.ctx, c.cluster.Bookies)
	return err == nil && id == p.Name
}
