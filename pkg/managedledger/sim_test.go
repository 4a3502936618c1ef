package managedledger_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

var (
	simSeeds = flag.Int("sim.seeds", 80, "number of simulated histories")
	simFirst = flag.Uint64("sim.first", 1, "first seed")
)

// TestSimulation lets owners take a topic from one another while groups fail in every way that the cluster knows, and
// requests end with an unknown outcome. Old owners live on and keep adding. After every change of owner and at the end
// it checks:
//
//   - every op that has completed, at any owner, is read at its position, unless, in half of the histories, its ledger was
//     trimmed: then somebody has asked for its deletion, and for that of all before it;
//   - no text is read twice, and those of one owner are read in the order of Add;
//   - no position ever has two contents, whoever reads it when;
//   - every acknowledgement with a receipt is kept, and nothing is deleted that was not asked for;
//   - backlog is what counting finds;
//   - no payload is held at the end (inWorld), LastConfirmed never goes back (node.Completed).
func TestSimulation(t *testing.T) {
	for i := range uint64(*simSeeds) {
		seed := *simFirst + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := &sim{
					world: w, rand: rand.New(rand.NewPCG(seed, 0)), contents: map[ledger.Position]string{},
					asked: map[ledger.Position]bool{}, acked: map[ledger.Position]bool{}, trims: seed%2 == 0,
				}
				s.run()
			})
		})
	}
}

type sim struct {
	*world
	rand     *rand.Rand
	epoch    ledger.Epoch
	owner    *node
	cursor   *managedledger.Cursor
	old      []*node
	text     int
	trims    bool
	contents map[ledger.Position]string
	asked    map[ledger.Position]bool // deletion asked for
	acked    map[ledger.Position]bool // and answered with a receipt
}

func (s *sim) run() {
	s.takeOver()
	for range 60 {
		s.step()
	}
	s.healAll()
	s.takeOver()
	s.check()
}

func (s *sim) step() {
	switch n := s.rand.IntN(100); {
	case n < 40:
		s.add(s.owner)
	case n < 45 && len(s.old) > 0:
		s.add(s.old[s.rand.IntN(len(s.old))])
	case n < 55:
		pass(time.Duration(s.rand.IntN(400)) * time.Millisecond)
	case n < 65:
		s.breakGroup()
	case n < 72:
		s.healGroups()
	case n < 82:
		s.fault()
	case n < 92:
		s.ack()
	case n < 96:
		synctest.Wait()
	default:
		s.healGroups()
		s.takeOver()
		s.check()
	}
}

func (s *sim) add(n *node) {
	if n == nil || n.dead || n.ml == nil {
		return
	}
	var ts []string
	for range 1 + s.rand.IntN(6) {
		if s.rand.IntN(8) == 0 {
			ts = append(ts, "|")
			continue
		}
		s.text++
		ts = append(ts, strconv.Itoa(s.text))
	}
	n.add(ts...)
}

func (s *sim) breakGroup() {
	g := ledger.GroupID(s.rand.IntN(4)) // the metadata too
	switch s.rand.IntN(4) {
	case 0:
		s.cluster.Hold(g)
	case 1:
		s.cluster.Down(g)
	case 2:
		s.cluster.LoseAcks(g, true)
	case 3:
		s.cluster.Delay(g, time.Duration(s.rand.IntN(600))*time.Millisecond)
	}
}

func (s *sim) healGroups() {
	for g := range ledger.GroupID(4) {
		s.cluster.Release(g)
		s.cluster.Up(g)
		s.cluster.LoseAcks(g, false)
		s.cluster.Delay(g, 0)
	}
}

func (s *sim) healAll() {
	s.healGroups()
	for _, n := range s.old {
		n.client.Heal()
	}
	pass(5 * time.Second)
}

func (s *sim) fault() {
	kinds := []bookietest.Kind{
		bookietest.Create, bookietest.Append, bookietest.Fence, bookietest.CloseLedger, bookietest.Delete, bookietest.Read,
		bookietest.Get, bookietest.List, bookietest.Commit, bookietest.Commit,
	}
	k := kinds[s.rand.IntN(len(kinds))]
	if s.rand.IntN(2) == 0 && k != bookietest.Read { // a read that is carried out but not answered is nothing but a leak
		s.cluster.UnknownNext(k, 1+s.rand.IntN(2))
	} else {
		s.cluster.FailNext(k, 1+s.rand.IntN(2), ledger.ErrUnknown)
	}
}

func (s *sim) options() managedledger.Options {
	o := managedledger.Options{
		MaxEntriesPerLedger: 3 + s.rand.Int64N(20), MinRolloverTime: 1, CursorMaxEntriesPerLedger: 1 + s.rand.Int64N(5),
		OpenTimeout: 5 * time.Second,
	}
	if s.trims {
		o.RetentionTime, o.RetentionCheckInterval = 1, 2*time.Second
	}
	return o
}

// takeOver makes a new owner; the one before dies, is cut off, or goes on believing. After one that has died the broker
// that owned the topic may open it again, in the same epoch, while requests of the first time are still under way.
func (s *sim) takeOver() {
	again := false
	if n := s.owner; n != nil {
		switch s.rand.IntN(4) {
		case 0:
			n.kill()
			again = s.rand.IntN(2) == 0
		case 1:
			n.client.Cut()
		case 2:
			if s.cursor != nil {
				on(n.sub, func() { s.cursor.Close(func(error) {}) })
			}
			on(n.exec, func() { n.ml.Close(func(error) {}) })
		}
		s.old = append(s.old, n)
		s.owner, s.cursor = nil, nil
	}
	for try := 0; ; try++ {
		if !again || try > 0 {
			s.epoch++
		}
		n := s.node(s.epoch, s.options())
		err := n.open()
		if err == nil {
			s.owner = n
			if s.cursor, err = n.cursor(managedledger.CursorOptions{Name: "s", Durable: true, Initial: ledger.Earliest}); err == nil {
				return
			}
			s.old = append(s.old, n)
			s.owner = nil
		}
		n.client.Kill()
		if try > 4 {
			s.t.Fatalf("nobody can open: %v", err)
		}
		s.healGroups()
	}
}

// ack deletes some entries, with or without a receipt.
func (s *sim) ack() {
	n, c := s.owner, s.cursor
	all := n.results()
	if len(all) == 0 {
		return
	}
	var ps []ledger.Position
	for range 1 + s.rand.IntN(4) {
		ps = append(ps, all[s.rand.IntN(len(all))].pos)
	}
	done := func(error) {}
	if s.rand.IntN(3) > 0 {
		done = func(err error) {
			if err == nil {
				for _, p := range ps {
					s.acked[p] = true
				}
			}
		}
	}
	var cumulative bool
	if cumulative = s.rand.IntN(6) == 0; cumulative {
		ps = ps[:1]
		for p := range s.contents {
			if p.Compare(ps[0]) <= 0 {
				s.asked[p] = true
			}
		}
		for _, d := range all {
			if d.pos.Compare(ps[0]) <= 0 {
				s.asked[d.pos] = true
			}
		}
	}
	for _, p := range ps {
		s.asked[p] = true
	}
	on(n.sub, func() {
		if cumulative {
			c.MarkDelete(ps[0], done)
		} else {
			c.Delete(ps, done)
		}
	})
}

// observe remembers what a position holds.
func (s *sim) observe(who string, ds []done) {
	for _, d := range ds {
		if was, ok := s.contents[d.pos]; ok && was != d.text {
			s.t.Fatalf("%s finds %q at %s, where %q was", who, d.text, d.pos, was)
		}
		s.contents[d.pos] = d.text
	}
}

func (s *sim) check() {
	s.t.Helper()
	synctest.Wait()
	all := s.owner.everything()
	s.observe("the owner", all)
	at, seen := map[ledger.Position]string{}, map[string]bool{}
	for i, d := range all {
		if seen[d.text] {
			s.t.Fatalf("%q is read twice", d.text)
		}
		if i > 0 && !all[i-1].pos.Less(d.pos) {
			s.t.Fatalf("%s is read after %s", d.pos, all[i-1].pos)
		}
		seen[d.text] = true
		at[d.pos] = d.text
	}
	for _, n := range append(s.old, s.owner) {
		before := 0
		for _, d := range n.results() {
			if gone := d.pos.Ledger < s.owner.ml.First().Ledger; gone && s.trims && s.asked[d.pos] {
				continue
			}
			if at[d.pos] != d.text {
				s.t.Fatalf("epoch %d completed %q at %s, where the owner finds %q", n.epoch, d.text, d.pos, at[d.pos])
			}
			if v, _ := strconv.Atoi(d.text); v <= before {
				s.t.Fatalf("epoch %d completed %d after %d", n.epoch, v, before)
			} else {
				before = v
			}
		}
	}
	s.checkCursor(all)
}

func (s *sim) checkCursor(all []done) {
	s.t.Helper()
	on(s.owner.sub, func() {
		var want int64
		for _, d := range all {
			deleted := s.cursor.IsDeleted(d.pos)
			if !deleted {
				want++
			}
			if deleted && !s.asked[d.pos] {
				s.t.Errorf("%s is deleted, nobody has asked for it", d.pos)
			}
			if !deleted && s.acked[d.pos] {
				s.t.Errorf("%s is not deleted though a receipt says so", d.pos)
			}
		}
		if got := s.cursor.Backlog(); got != want {
			s.t.Errorf("backlog %d, counted %d", got, want)
		}
		s.cursor.CheckInvariants()
	})
}
