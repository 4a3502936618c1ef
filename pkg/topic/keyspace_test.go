package topic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Whoever joins and leaves, however hashes are dealt out: every hash has one owner, who is there; a join takes hashes
// for the new consumer only, a leave gives away those of the one who leaves only.
func TestAssignments(t *testing.T) {
	for name, o := range map[string]Options{
		"ranges": {SubscriptionKeySharedHashRanges: true}, "ring": {},
	} {
		t.Run(name, func(t *testing.T) {
			o.EnsureDefaults()
			rnd := rand.New(rand.NewPCG(1, 2))
			a := newAssignment(&o, KeyPolicy{})
			var cs []*Consumer
			var before, space keySpace
			for step := range 60 {
				before = slices.Clone(space)
				var moved *Consumer
				joined := len(cs) == 0 || rnd.IntN(5) < 3
				if joined {
					moved = &Consumer{Name: fmt.Sprint("c", rnd.IntN(10))} // names need not be different
					if err := a.join(moved, nil); err != nil {
						t.Fatal(err)
					}
					cs = append(cs, moved)
				} else {
					i := rnd.IntN(len(cs))
					moved = cs[i]
					a.leave(moved)
					cs = slices.Delete(cs, i, i+1)
				}
				space = a.spans(nil)
				for h := 0; h < keyHashes; h += 7 {
					was, is := before.owner(keyHash(h)), space.owner(keyHash(h))
					switch {
					case len(cs) == 0:
						if is != nil {
							t.Fatalf("step %d: hash %d belongs to nobody who is there", step, h)
						}
					case is == nil || !slices.Contains(cs, is):
						t.Fatalf("step %d: hash %d has no owner", step, h)
					case len(before) > 0 && was != is && is != moved && was != moved:
						t.Fatalf("step %d: hash %d moved from %s to %s", step, h, was.Name, is.Name)
					case joined && was == moved:
						t.Fatalf("step %d: hash %d was owned before the join", step, h)
					}
				}
			}
		})
	}
}

// Consistent hashing deals out about equal shares.
func TestRingIsFair(t *testing.T) {
	var o Options
	o.EnsureDefaults()
	a := newAssignment(&o, KeyPolicy{})
	for i := range 10 {
		if err := a.join(&Consumer{Name: fmt.Sprint("consumer-", i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	space := a.spans(nil)
	share := map[*Consumer]int{}
	for h := range keyHashes {
		share[space.owner(keyHash(h))]++
	}
	for c, n := range share {
		if n < keyHashes/20 || n > keyHashes/5 {
			t.Errorf("%s has %d of %d hashes", c.Name, n, keyHashes)
		}
	}
}

func TestNoHashesLeft(t *testing.T) {
	a := &splitRanges{ranges: keySpace{{1, &Consumer{}}, {2, &Consumer{}}}}
	if err := a.join(&Consumer{}, nil); !errors.Is(err, ErrConsumerAssign) {
		t.Errorf("%v, expected %v", err, ErrConsumerAssign)
	}
}
