package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Against a plain map as model: three replicas that see the same transactions agree with it and with each other, a
// watcher that replays the events has the same map, versions never repeat, a clone does not move.
func TestMachineAgainstModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		replicas := []*Machine{NewMachine(), NewMachine(), NewMachine()}
		watcher := NewMachine()
		model := map[string]Item{}
		used := map[string]bool{} // key@version with its content
		for step := range 300 {
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d step %d: %s", seed, step, fmt.Sprintf(format, args...))
			}
			txn := randomTxn(rng, model)
			before := replicas[0].Clone()
			snapshot := before.AppendSnapshot(nil)
			decoded, decodeErr := DecodeTxn(txn.Encode())
			out, events := replicas[0].Apply(txn)
			if (decodeErr != nil) != (txn.Validate() != nil) {
				fail("decode says %v, validate %v", decodeErr, txn.Validate())
			}
			if decodeErr != nil {
				decoded = txn
			}
			for _, m := range replicas[1:] {
				other, otherEvents := m.Apply(decoded)
				if fmt.Sprint(other) != fmt.Sprint(out) || fmt.Sprint(otherEvents) != fmt.Sprint(events) {
					fail("replicas answer %+v and %+v", out, other)
				}
			}
			if want := applyToModel(model, txn, out.Revision); (want == nil) != (out.Err == nil) || !errors.Is(out.Err, want) {
				fail("got %v, the model says %v", out.Err, want)
			}
			if out.Err != nil && (len(events) > 0 || !bytes.Equal(replicas[0].AppendSnapshot(nil), snapshot)) {
				fail("refused, yet changed")
			}
			watcher.replay(events)
			for _, ev := range events {
				if id := fmt.Sprintf("%s@%d", ev.Key, ev.Version); ev.Version != 0 {
					if used[id] {
						fail("%s repeats", id)
					}
					used[id] = true
				}
			}
			if !bytes.Equal(before.AppendSnapshot(nil), snapshot) {
				fail("a clone moved")
			}
			if rng.IntN(40) == 0 {
				if err := replicas[2].Restore(replicas[1].AppendSnapshot(nil)); err != nil {
					fail("%v", err)
				}
			}
		}
		compareWithModel(t, seed, append(replicas, watcher), model)
	}
}

func compareWithModel(t *testing.T, seed uint64, machines []*Machine, model map[string]Item) {
	t.Helper()
	var want []string
	for _, it := range model {
		want = append(want, describeItem(it))
	}
	slices.Sort(want)
	for i, m := range machines {
		var got []string
		items, more := m.List("/", "", 2)
		for len(items) > 0 {
			for _, it := range items {
				got = append(got, describeItem(it))
			}
			if !more {
				break
			}
			items, more = m.List("/", items[len(items)-1].Key, 2)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: machine %d\ngot  %v\nwant %v", seed, i, got, want)
		}
	}
}

func randomTxn(rng *rand.Rand, model map[string]Item) (txn Txn) {
	key := func() string { return fmt.Sprintf("/%c", 'a'+rng.IntN(6)) }
	for range rng.IntN(3) {
		k := key()
		v := model[k].Version
		if rng.IntN(4) == 0 {
			v = int64(rng.IntN(50))
		}
		txn = txn.If(k, v)
	}
	for range rng.IntN(4) {
		switch rng.IntN(4) {
		case 0:
			txn = txn.Then(Put(key(), []byte(strings.Repeat("x", rng.IntN(3)))))
		case 1:
			txn = txn.Then(Put(key(), fmt.Append(nil, rng.IntN(100))))
		case 2:
			txn = txn.Then(Add(key(), int64(rng.IntN(7)-3)))
		case 3:
			txn = txn.Then(Delete(key()))
		}
	}
	return txn
}

// applyToModel returns which error a transaction has to meet, or applies it.
func applyToModel(model map[string]Item, txn Txn, revision uint64) error {
	seen := map[string]bool{}
	for _, op := range txn.Ops {
		if seen[op.Key] {
			return ErrBadTxn
		}
		seen[op.Key] = true
	}
	for _, c := range txn.Conditions {
		if model[c.Key].Version != c.Version {
			return ErrBadVersion
		}
	}
	sums := map[string]int64{}
	for _, op := range txn.Ops {
		if old, ok := model[op.Key]; op.Kind == OpAdd && ok {
			n := int64(0)
			if _, err := fmt.Sscanf(string(old.Value), "%d", &n); err != nil {
				return ErrBadTxn
			}
			sums[op.Key] = n
		}
	}
	for _, op := range txn.Ops {
		switch op.Kind {
		case OpDelete:
			delete(model, op.Key)
		case OpPut:
			model[op.Key] = Item{Key: op.Key, Value: op.Value, Version: int64(revision)}
		case OpAdd:
			model[op.Key] = Item{Key: op.Key, Value: fmt.Append(nil, sums[op.Key]+op.Delta), Version: int64(revision)}
		}
	}
	return nil
}

func TestListPageIsBounded(t *testing.T) {
	m := NewMachine()
	for i := range 6 {
		out, _ := m.Apply(Txn{}.Then(Put(fmt.Sprintf("/%d", i), make([]byte, MaxValueSize))))
		if out.Err != nil {
			t.Fatal(out.Err)
		}
	}
	items, more := m.List("/", "", 0)
	if !more || len(items) != 2 {
		t.Fatalf("%d items, more %t", len(items), more)
	}
	if items, more = m.List("/", "/3", 0); more || len(items) != 2 {
		t.Errorf("%d items, more %t", len(items), more)
	}
}

func TestApplyKeepsNothing(t *testing.T) {
	m := NewMachine()
	value := []byte("abc")
	m.Apply(Txn{}.Then(Put("/a", value)))
	value[0] = 'X'
	if it, _ := m.Get("/a"); string(it.Value) != "abc" {
		t.Errorf("value %s", it.Value)
	}
}

func BenchmarkMachine(b *testing.B) {
	for _, keys := range []int{10_000, 300_000} {
		m := NewMachine()
		names := make([]string, keys)
		for i := range names {
			names[i] = TopicKey("public", "default", "persistent", fmt.Sprintf("topic-%d", i))
			m.Apply(Txn{}.Then(Put(names[i], []byte("{}"))))
		}
		rng := rand.New(rand.NewPCG(1, 1))
		b.Run(fmt.Sprintf("put/keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				m.Apply(Txn{}.Then(Put(names[rng.IntN(keys)], []byte("{}"))))
			}
		})
		b.Run(fmt.Sprintf("recreate/keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				k := names[rng.IntN(keys)]
				m.Apply(Txn{}.Then(Delete(k)))
				m.Apply(Txn{}.Then(Put(k, []byte("{}"))))
			}
		})
		b.Run(fmt.Sprintf("get/keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				m.Get(names[rng.IntN(keys)])
			}
		})
		sorted := slices.Sorted(slices.Values(names))
		b.Run(fmt.Sprintf("recreate in a sorted slice/keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				k := names[rng.IntN(keys)]
				i, _ := slices.BinarySearch(sorted, k)
				sorted = slices.Delete(sorted, i, i+1)
				sorted = slices.Insert(sorted, i, k)
			}
		})
		b.Run(fmt.Sprintf("snapshot/keys=%d", keys), func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				buf = m.AppendSnapshot(buf[:0])
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}
