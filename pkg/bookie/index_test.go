package bookie

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

// where is an entry's place as a model knows it: its proposal, and which entry of the run it is.
type where struct {
	index uint64
	nth   ledger.EntryID
}

// indexRig is a replica's machine and index over a memory file system, beside a model of what the index must say.
type indexRig struct {
	t     *testing.T
	rng   *rand.Rand
	mem   *vfs.Mem
	store *snapshotStore
	fsm   *fsm
	log   []*raft.Log // all that was applied
	model map[ledger.ID][]where
	ended map[ledger.ID]bool
}

func newIndexRig(t *testing.T, seed uint64) *indexRig {
	r := &indexRig{t: t, rng: rand.New(rand.NewPCG(seed, 3)), mem: vfs.NewMem(), model: map[ledger.ID][]where{}, ended: map[ledger.ID]bool{}}
	r.open()
	return r
}

// open is what a start does before the log is replayed.
func (r *indexRig) open() {
	r.store = openSnapshots(r.t, r.mem)
	r.fsm = newFSM(newHealth(nil))
	r.fsm.files = r.store
	if m, ok := r.store.newest(); ok {
		_, s, err := r.store.Open(m.ID)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := r.fsm.Restore(s); err != nil {
			r.t.Fatal(err)
		}
	}
}

// propose applies some commands of a random kind. Ids live again after they were deleted, which no broker would do.
func (r *indexRig) propose() {
	index := uint64(len(r.log) + 1)
	var data []byte
	for range 1 + r.rng.IntN(5) {
		id := ledger.ID(r.rng.IntN(6))
		have, exists := r.model[id]
		last := ledger.EntryID(len(have)) - 1
		switch k := r.rng.IntN(30); {
		case !exists:
			data = (&ledger.Command{Op: ledger.OpCreate, Ledger: id, Epoch: 1}).AppendTo(data)
			r.model[id] = nil
		case k == 0:
			data = (&ledger.Command{Op: ledger.OpDelete, Ledger: id}).AppendTo(data)
			delete(r.model, id)
			delete(r.ended, id)
		case k == 1 && !r.ended[id]:
			to := ledger.EntryID(r.rng.IntN(len(have)+1)) - 1
			data = (&ledger.Command{Op: ledger.OpClose, Ledger: id, Epoch: 1, Last: to}).AppendTo(data)
			r.model[id], r.ended[id] = have[:to+1], true
		case !r.ended[id]:
			n := 1 + r.rng.IntN(4)
			payloads := make([]string, n)
			for i := range payloads {
				payloads[i] = fmt.Sprint(id, last+1+ledger.EntryID(i))
				r.model[id] = append(r.model[id], where{index, ledger.EntryID(i)})
			}
			data = append(data, testAppend(id, 1, last+1, payloads...)...)
		}
	}
	log := &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}
	r.log = append(r.log, log)
	r.fsm.Apply(log)
}

func (r *indexRig) snapshot() error { return writeSnapshot(r.store, r.fsm, r.fsm.applied.Load(), 1) }

// replay applies what came behind the newest snapshot.
func (r *indexRig) replay() { r.fsm.ApplyBatch(r.log[r.fsm.applied.Load():]) }

// compare looks every entry up, and those around.
func (r *indexRig) compare(what string) {
	r.t.Helper()
	for id := range ledger.ID(7) {
		have := r.model[id]
		for e := range ledger.EntryID(len(have) + 2) {
			at, err := r.fsm.find(id, e)
			if want := int(e) < len(have); err != nil || at.found != want {
				r.t.Fatalf("%s: find(%d, %d) = %t, %v, want %t", what, id, e, at.found, err, want)
			}
			if at.found && (where{at.run.index, e - at.run.first}) != have[e] {
				r.t.Fatalf("%s: entry %d:%d is in run %+v, want %+v", what, id, e, at.run, have[e])
			}
		}
	}
	if err := r.fsm.view().check(); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// sent reads the newest snapshot as another replica gets it.
func (r *indexRig) sent() []byte {
	r.t.Helper()
	m, _ := r.store.newest()
	meta, s, err := r.store.Open(m.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := io.ReadAll(s)
	if err = errors.Join(err, s.Close()); err != nil || int64(len(b)) != meta.Size {
		r.t.Fatalf("%d bytes of a snapshot of %d: %v", len(b), meta.Size, err)
	}
	return b
}

// The index finds each entry in the run that appended it, whatever appends, truncations, deletions, second lives, snapshots,
// restarts and snapshots of other replicas went before; and replicas with the same log have the same state, byte for byte,
// however their layers lie.
func TestIndexAgainstModel(t *testing.T) {
	merged := 0
	for seed := range uint64(25) {
		a, b := newIndexRig(t, seed), newIndexRig(t, seed)
		for step := range 400 {
			what := fmt.Sprintf("seed %d, step %d", seed, step)
			a.propose()
			b.log, b.model = a.log, a.model
			b.fsm.Apply(a.log[step])
			switch a.rng.IntN(24) {
			case 0, 1, 2:
				if err := a.snapshot(); err != nil {
					t.Fatal(err)
				}
				merged += len(a.fsm.index.layers)
			case 3:
				if err := b.snapshot(); err != nil {
					t.Fatal(err)
				}
			case 4:
				a.open()
				a.replay()
			case 5:
				b.open()
				b.replay()
			case 6: // b is sent a snapshot
				if err := a.snapshot(); err != nil {
					t.Fatal(err)
				}
				m, _ := a.store.newest()
				sink, err := b.store.Create(1, m.Index, 1, configurationOf([]string{"a"}), 1, nil)
				if err == nil {
					_, err = sink.Write(a.sent())
				}
				if err = errors.Join(err, sink.Close()); err != nil {
					t.Fatal(what, err)
				}
				b.open()
			}
			if step%20 == 0 {
				a.compare(what + ", a")
				b.compare(what + ", b")
				if !bytes.Equal(encodeFSM(t, a.fsm), encodeFSM(t, b.fsm)) {
					t.Fatalf("%s: the replicas differ", what)
				}
			}
		}
		if n := len(a.fsm.index.layers); n > 12 {
			t.Errorf("seed %d: %d layers", seed, n)
		}
		a.files()
		b.files()
	}
	if merged < 1000 {
		t.Errorf("there were hardly any layers: %d", merged)
	}
}

// files checks that no layer is left that nothing names.
func (r *indexRig) files() {
	r.t.Helper()
	if err := r.snapshot(); err != nil {
		r.t.Fatal(err)
	}
	named := map[string]bool{}
	for _, info := range r.store.info {
		for _, l := range info.layers {
			named[l] = true
		}
	}
	var there []string
	names, _ := r.mem.List("/s")
	for _, n := range names {
		if strings.HasSuffix(n, layerSuffix) {
			there = append(there, n)
		}
	}
	if want := slices.Sorted(maps.Keys(named)); !slices.Equal(there, want) {
		r.t.Errorf("layers %v, named are %v", there, want)
	}
}

// A crash at any operation of snapshots that share layers leaves the one before or the new one, with all its layers.
func TestLayersCrash(t *testing.T) {
	finished := false
	for n := int64(1); !finished; n++ {
		r := newIndexRig(t, 11)
		r.mem.PowerOffAfter(n)
		done := uint64(0)
		for range 6 {
			for range 12 {
				r.propose()
			}
			if finished = r.snapshot() == nil; !finished {
				break
			}
			done = r.fsm.applied.Load()
		}
		r.mem = r.mem.Crash(uint64(n))
		r.open()
		if got := r.fsm.applied.Load(); len(r.store.damaged) > 0 || got < done || got > done+12 {
			t.Fatalf("crash at %d: snapshot of %d (%d damaged), %d was done", n, got, len(r.store.damaged), done)
		}
		r.replay()
		r.compare(fmt.Sprintf("crash at %d", n))
		r.files()
		if n > 2000 {
			t.Fatal("it never ends")
		}
	}
}

// A bit that flips in a layer is noticed: when the store opens, or when what it hits is looked up, or at the latest when
// all is verified. No entry is found in a wrong place, and no damaged layer is sent.
func TestDamagedLayer(t *testing.T) {
	r := newIndexRig(t, 5)
	for range 600 {
		r.propose()
	}
	if err := r.snapshot(); err != nil {
		t.Fatal(err)
	}
	m, _ := r.store.newest()
	name := filepath.Join("/s", r.store.info[m.ID].layers[0])
	file, err := r.mem.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	size, _ := file.Size()
	unopened, unread := 0, 0
	for range 300 {
		at, bit := r.rng.Int64N(size), byte(1)<<r.rng.IntN(8)
		flipByte(t, file, at, bit)
		if s := openSnapshots(t, r.mem); len(s.damaged) == 1 {
			unopened++
		} else {
			unread++
			r.unread(s)
		}
		flipByte(t, file, at, bit)
	}
	if unopened == 0 || unread == 0 {
		t.Errorf("%d not opened, %d found when read", unopened, unread)
	}
	if err := file.Truncate(size - 1); err != nil {
		t.Fatal(err)
	}
	if s := openSnapshots(t, r.mem); len(s.damaged) != 1 {
		t.Error("a layer that is cut was opened")
	}
}

// unread checks a store with a damaged block.
func (r *indexRig) unread(s *snapshotStore) {
	r.t.Helper()
	if err := s.verifyLayer(s.info[s.metas[0].ID].layers[0]); !errors.Is(err, ErrDamaged) {
		r.t.Fatalf("offline: %v", err)
	}
	_, state, err := s.Open(s.metas[0].ID)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, state); !errors.Is(err, ErrDamaged) {
		r.t.Fatalf("it was sent: %v", err)
	}
	f := newFSM(newHealth(nil))
	if err := f.Restore(state); err != nil {
		r.t.Fatal(err)
	}
	if err := f.view().check(); !errors.Is(err, ErrDamaged) {
		r.t.Fatalf("verified: %v", err)
	}
	for id, have := range r.model {
		for e := range have {
			at, err := f.find(id, ledger.EntryID(e))
			if err == nil && (!at.found || (where{at.run.index, ledger.EntryID(e) - at.run.first}) != have[e]) {
				r.t.Fatalf("entry %d:%d: %+v", id, e, at)
			}
			if err != nil && !errors.Is(err, ErrDamaged) {
				r.t.Fatal(err)
			}
		}
	}
}

func flipByte(t *testing.T, f vfs.File, at int64, bit byte) {
	t.Helper()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= bit
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// A layer of many blocks finds what is in it, and nothing else.
func TestLayerOfManyBlocks(t *testing.T) {
	tail := map[ledger.ID][]run{}
	rng := rand.New(rand.NewPCG(4, 4))
	index, runs := uint64(1), 0
	for id := range ledger.ID(300) {
		next := ledger.EntryID(0)
		for range rng.IntN(200) {
			r := run{first: next, count: 1 + rng.Uint32N(300), offset: rng.Uint32N(1 << 20), length: rng.Uint32(), index: index}
			tail[2*id] = append(tail[2*id], r)
			next = r.end() + 1
			index += rng.Uint64N(1000)
			runs++
		}
	}
	var b bytes.Buffer
	w := newLayerWriter(&b)
	always := func(ledger.ID) (ledger.EntryID, bool) { return 1 << 40, true }
	if err := errors.Join(merge([]*cursor{tailCursor(tail)}, always, w.add), w.finish()); err != nil {
		t.Fatal(err)
	}
	l, err := openLayer("", bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err == nil {
		err = l.verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(l.dir) < 50 || l.runs != uint64(runs) {
		t.Fatalf("%d blocks, %d runs of %d", len(l.dir), l.runs, runs)
	}
	t.Logf("%.1f bytes for each run, %.2f of them in memory", float64(b.Len())/float64(runs), float64(len(l.dir)*layerRef)/float64(runs))
	for id := range ledger.ID(600) {
		for _, r := range tail[id] {
			for _, e := range []ledger.EntryID{r.first, r.end()} {
				if got, ok, err := l.find(id, e); err != nil || !ok || got != r {
					t.Fatalf("entry %d:%d is in %+v, want %+v (%v)", id, e, got, r, err)
				}
			}
		}
		after := ledger.EntryID(0)
		if n := len(tail[id]); n > 0 {
			after = tail[id][n-1].end() + 1
		}
		if got, ok, err := l.find(id, after); ok || err != nil {
			t.Fatalf("entry %d:%d, which is not there, is in %+v (%v)", id, after, got, err)
		}
	}
}

// A snapshot says that nothing was lacking when it was taken, to a start of the replica that took it and to nobody else.
func TestSnapshotSaysWhetherItsReplicaWasWhole(t *testing.T) {
	for _, whole := range []bool{false, true} {
		r := newIndexRig(t, 8)
		r.fsm.whole = func() bool { return whole }
		for range 50 {
			r.propose()
		}
		if err := r.snapshot(); err != nil {
			t.Fatal(err)
		}
		sent := r.sent()
		m, _ := r.store.newest()
		_, own, err := r.store.Open(m.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			from io.ReadCloser
			want bool
		}{{own, whole}, {io.NopCloser(bytes.NewReader(sent)), false}} {
			f := newFSM(newHealth(nil))
			var said []bool
			f.restored = func(whole bool) { said = append(said, whole) }
			if err := f.Restore(c.from); err != nil || !slices.Equal(said, []bool{false, c.want}) {
				t.Errorf("whole %t, want %t: said %v, %v", whole, c.want, said, err)
			}
		}
	}
}
