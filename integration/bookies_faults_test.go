package integration

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"geminga/integration/harness"
)

var bookiesMoves = flag.Int("bookies.moves", 0, "how often TestBookiesMove loses a bookie and decommissions one; 0 skips it")

// pauses stops leaders for longer than their groups wait for them.
func (c *campaign) pauses() {
	for range *bookiesPauses {
		c.takeOver()
		groups := must[[]harness.Group](c.T)(harness.Groups(c.ctx, c.cluster.Bookies[c.rnd.IntN(len(c.cluster.Bookies))]))
		led := slices.DeleteFunc(groups, func(g harness.Group) bool { return g.LeaderID == "" })
		if len(led) == 0 {
			c.Fatal("no group has a leader")
		}
		c.freeze("SIGSTOP of a group's leader", led[c.rnd.IntN(len(led))].LeaderID)
		c.takeOver()
		c.freeze("SIGSTOP of the metadata's leader", must[string](c.T)(harness.MetadataLeader(c.ctx, c.cluster.Bookies)))
	}
}

func (c *campaign) freeze(kind, id string) {
	c.Helper()
	at := slices.IndexFunc(c.cluster.Bookies, func(p *harness.Proc) bool { return p.Name == id })
	if at < 0 {
		c.Fatalf("%s: no bookie is called %q", kind, id)
	}
	c.measure(kind, func() {
		p := c.cluster.Bookies[at]
		wake := time.After(*bookiesPause)
		signal(c.T, syscall.SIGSTOP, []*harness.Proc{p})
		c.progress(id + " is stopped")
		<-wake
		signal(c.T, syscall.SIGCONT, []*harness.Proc{p})
		if err := p.WaitReady(c.ctx); err != nil {
			c.Fatal(err)
		}
	})
}

// TestBookiesMove has five bookies, of which three hold the metadata. Of the other two it loses one: the disk is replaced,
// which is refused under the old identity and is a new bookie under another one, and the replicas are made anew elsewhere. Then
// it decommissions one, while another one is killed. Again and again, with writers that go on.
func TestBookiesMove(t *testing.T) {
	if *bookiesMoves == 0 {
		t.Skip("needs -bookies.moves (make bookies)")
	}
	r := newReport()
	c := startCampaign(t, time.Duration(1+*bookiesMoves)*3*time.Minute, r, harness.Options{
		Bookies: 3, BookieSets: []string{"lostBookieRecoveryDelay=10"},
	})
	c.bookies = 5
	c.join()
	c.join()
	for i := range *bookiesMoves {
		c.lose(i%2 == 0)
		c.decommission()
	}
	c.finish()
	r.print()
}

// join adds a bookie that is no member of the metadata group.
func (c *campaign) join() {
	c.Helper()
	c.named = max(c.named, len(c.cluster.Bookies)) + 1
	c.measure("a new bookie joins", func() {
		restart(c.ctx, c.T, must[*harness.Proc](c.T)(c.cluster.NewBookie(fmt.Sprintf("bookie-%d", c.named))))
	})
}

// mover is a bookie that does not hold the metadata.
func (c *campaign) mover() *harness.Proc {
	return c.cluster.Bookies[3+c.rnd.IntN(len(c.cluster.Bookies)-3)]
}

// part takes a bookie that has ended out of the cluster.
func (c *campaign) part(p *harness.Proc) {
	checkSound(c.T, p)
	c.cluster.Bookies = slices.DeleteFunc(slices.Clone(c.cluster.Bookies), func(q *harness.Proc) bool { return p == q })
}

// lose kills a bookie and replaces its disk, before or after its replicas are on others.
func (c *campaign) lose(early bool) {
	p := c.mover()
	refused := func() {
		if err := c.cluster.Wipe(p.Name); err != nil {
			c.Fatal(err)
		}
		wantLine(c.T, exits(c.T, p), p.Name, "comes back under a new id")
	}
	c.takeOver()
	c.measure("loss of a bookie and its disk", func() {
		begun := time.Now()
		p.Kill()
		c.part(p)
		if early {
			refused()
		}
		awaitMembers(c.ctx, c.T, c.cluster.Bookies, p.Name)
		c.report.took(c.bookies, "from the loss of a bookie until its replicas are on others, 10 s of grace included", time.Since(begun))
	})
	if !early {
		refused()
		checkSound(c.T, p)
	}
	c.join()
}

// decommission takes a bookie away in order. Another one is killed meanwhile.
func (c *campaign) decommission() {
	p := c.mover()
	rest := slices.DeleteFunc(slices.Clone(c.cluster.Bookies), func(q *harness.Proc) bool { return p == q })
	victim := rest[c.rnd.IntN(len(rest))]
	c.takeOver()
	c.measure("decommission, and a kill meanwhile", func() {
		begun := time.Now()
		done := make(chan string, 1)
		go func() { done <- c.order(p) }()
		c.pause(2 * time.Second)
		victim.Kill()
		c.pause(time.Second)
		c.restart(victim)
		if fault := <-done; fault != "" {
			c.Fatal(fault)
		}
		awaitMembers(c.ctx, c.T, []*harness.Proc{p}, p.Name)
		c.report.took(c.bookies, "decommission", time.Since(begun))
		if err := p.Term(20 * time.Second); err != nil {
			c.Error(err)
		}
		c.part(p)
	})
	c.join()
}

// order has a bookie decommissioned. The command may lose its bookie to a kill; then it is given again.
func (c *campaign) order(p *harness.Proc) (fault string) {
	for try := 1; ; try++ {
		out, err := c.cluster.Order(c.ctx, "decommission", p.Name)
		if err == nil {
			return ""
		}
		c.Logf("decommission of %s, try %d: %v\n%s", p.Name, try, err, out)
		if try == 5 || c.ctx.Err() != nil || strings.Contains(out, "cannot leave") {
			return "decommission: " + out
		}
	}
}
