package bookie

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

var simDamages = flag.Int("bookie.damages", 3, "flipped bits, and as many cuts, in each kind of file in TestDamage")

// TestDamage harms the files of one bookie of three while it is stopped, one kind of file and one way after the other, and
// starts it again: whatever it was, all of every ledger can be read again from it, the same as from the others, without
// anybody's help, and nothing else was ever read. Between two rounds there is new data, and clusters are begun anew.
func TestDamage(t *testing.T) {
	const rounds = 12 // of one cluster
	type job struct {
		kind string
		cut  bool
	}
	var jobs []job
	for range *simDamages {
		for _, kind := range []string{".seg", ".sum", fileSuffix, layerSuffix} {
			jobs = append(jobs, job{kind, false}, job{kind, true})
		}
	}
	for first := 0; first < len(jobs); first += rounds {
		some := jobs[first:min(first+rounds, len(jobs))]
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*simSeed, uint64(first)))
			s := newSim(t, rng, 3)
			defer s.stopAll()
			for _, j := range some {
				s.damage("b", j.kind, j.cut)
			}
		})
	}
}

// damage is one round.
func (s *sim) damage(victim, kind string, cut bool) {
	for {
		s.more()
		s.end(victim)
		names := s.files(s.nodes[victim].disk)[kind]
		if len(names) > 0 {
			s.harm(s.nodes[victim].disk, names[s.rng.IntN(len(names))], cut)
			break
		}
		s.begin(victim) // not yet, or not again: more has to be written
	}
	s.begin(victim)
	s.check()
}

// more writes for a while.
func (s *sim) more() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
	defer cancel()
	s.write(ctx, s.rng)
}

// stopAll leaves nothing in the bubble.
func (s *sim) stopAll() {
	s.conn.close()
	for _, id := range s.ids {
		s.end(id)
	}
}
