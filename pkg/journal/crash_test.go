package journal

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"geminga/pkg/vfs"
)

// model is what a group should hold, and what it may hold because of the call that was under way.
type model struct {
	first, last uint64
	gens        map[uint64]uint64 // generation of each index of the log
	kept        map[uint64]keptModel
	released    map[uint64]uint64 // generation of what was kept: it may be held again after a restart
	stable      map[string]string
}

type keptModel struct {
	gen    uint64
	pruned bool
}

func newModel() *model {
	return &model{
		gens: map[uint64]uint64{}, kept: map[uint64]keptModel{}, released: map[uint64]uint64{}, stable: map[string]string{},
	}
}

func (m *model) clone() *model {
	return &model{m.first, m.last, maps.Clone(m.gens), maps.Clone(m.kept), maps.Clone(m.released), maps.Clone(m.stable)}
}

// workload drives groups by a script that depends on step alone. acked is the state after all calls that returned nil,
// pending the state if the call that failed took effect too.
type workload struct {
	acked, pending map[uint32]*model
	step           int
	recycled       int
	moved          int
}

func newWorkload() *workload {
	w := &workload{acked: map[uint32]*model{}, pending: map[uint32]*model{}}
	for id := uint32(1); id <= 3; id++ {
		w.acked[id] = newModel()
		w.pending[id] = w.acked[id]
	}
	return w
}

func crashPayload(group uint32, index, gen uint64) []byte {
	return payload(group, index, gen, int(100+(index*377+gen*91)%1500))
}

// run does n steps, or stops at the first error.
func (w *workload) run(j *Journal, n int) error {
	for range n {
		w.step++
		id := uint32(w.step%3) + 1
		next := w.acked[id].clone()
		w.pending[id] = next
		if err := w.call(j, j.Group(id), next); err != nil {
			return err
		}
		w.acked[id] = next
	}
	return nil
}

func (w *workload) call(j *Journal, g *Group, m *model) error {
	switch s := w.step; {
	case s%17 == 3 && m.last > m.first+3:
		return g.TruncateSuffix(m.truncate(m.last - 2))
	case s%7 == 5 && m.last > m.first+4:
		return g.CompactPrefix(m.compact(m.last - 1))
	case s%13 == 8 && len(m.kept) > 2:
		g.Release(m.release(func(index uint64) bool { return index%3 != 0 }))
		return nil
	case s%13 == 11 && len(m.kept) > 0:
		return g.Keep(m.prune(g.id))
	case s%53 == 50:
		return g.Reset(m.reset(m.first))
	case s%11 == 7:
		return w.reclaim(j)
	case s%5 == 1:
		m.stable["vote"] = fmt.Sprint(s)
		return g.SetStable([]byte("vote"), []byte(fmt.Sprint(s)))
	default:
		return g.Append(m.append(g.id, uint64(s), s%3+1))
	}
}

func (m *model) append(group uint32, gen uint64, n int) []Record {
	var recs []Record
	for range n {
		m.last++
		if m.first == 0 {
			m.first = m.last
		}
		m.gens[m.last] = gen
		recs = append(recs, Record{Index: m.last, Term: gen, Data: crashPayload(group, m.last, gen)})
	}
	return recs
}

func (m *model) truncate(from uint64) uint64 {
	for i := from; i <= m.last; i++ {
		delete(m.gens, i)
	}
	m.last = from - 1
	return from
}

func (m *model) compact(to uint64) uint64 {
	for i := m.first; i <= to; i++ {
		m.kept[i] = keptModel{gen: m.gens[i]}
		delete(m.gens, i)
	}
	m.first = to + 1
	return to
}

func (m *model) release(choose func(uint64) bool) (list []uint64) {
	for i, k := range m.kept {
		if choose(i) {
			m.released[i] = k.gen
			delete(m.kept, i)
			list = append(list, i)
		}
	}
	slices.Sort(list)
	return list
}

// testPieces are what pruning leaves.
func testPieces() []Piece { return []Piece{{10, 20}, {50, 30}} }

func (m *model) prune(group uint32) (list []Kept) {
	for i, k := range m.kept {
		if i%2 == 0 {
			continue
		}
		m.kept[i] = keptModel{k.gen, true}
		kept := Kept{Index: i, Term: k.gen, Pieces: testPieces()}
		for _, p := range kept.Pieces {
			kept.Data = append(kept.Data, crashPayload(group, i, k.gen)[p.Offset:p.end()]...)
		}
		list = append(list, kept)
	}
	slices.SortFunc(list, func(a, b Kept) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// reset keeps what is held up to keep, and the group goes on behind everything it ever had.
func (m *model) reset(keep uint64) uint64 {
	if m.first != 0 {
		m.compact(min(m.last, max(keep, m.first-1)))
	}
	for i := range m.kept {
		if i > keep {
			delete(m.kept, i)
		}
	}
	for i := range m.released {
		if i > keep {
			delete(m.released, i)
		}
	}
	clear(m.gens)
	clear(m.stable)
	m.first, m.last = 0, keep
	return keep
}

// reclaim moves what is held in the oldest segment, and recycles what nobody needs.
func (w *workload) reclaim(j *Journal) error {
	oldest := j.Segments()[0]
	for id := uint32(1); id <= 3; id++ {
		var list []Held
		j.Group(id).Held(func(h Held) bool {
			if h.Place.Segment == oldest {
				list = append(list, h)
			}
			return true
		})
		if err := j.Group(id).Move(list); err != nil {
			return err
		}
		w.moved += len(list)
	}
	for _, n := range j.Segments() {
		err := j.Recycle(n)
		if err != nil && !errors.Is(err, ErrInUse) {
			return err
		}
		if err == nil {
			w.recycled++
		}
	}
	return nil
}

// matches says how a group differs from a model.
func matches(g *Group, m *model) error {
	if err := matchesLog(g, m); err != nil {
		return err
	}
	return matchesKept(g, m, nil)
}

// matchesLog is about the log and the stable values.
func matchesLog(g *Group, m *model) error {
	if err := g.Damaged(); err != nil {
		return err
	}
	first, last := m.first, m.last
	if first == 0 {
		last = 0
	}
	if g.FirstIndex() != first || g.LastIndex() != last {
		return fmt.Errorf("[%d, %d], want [%d, %d]", g.FirstIndex(), g.LastIndex(), first, last)
	}
	for i := first; i <= last && i > 0; i++ {
		var r Record
		if err := g.Get(i, &r); err != nil {
			return fmt.Errorf("index %d: %w", i, err)
		}
		if r.Term != m.gens[i] || !bytes.Equal(r.Data, crashPayload(g.id, i, m.gens[i])) {
			return fmt.Errorf("index %d has term %d, want %d", i, r.Term, m.gens[i])
		}
	}
	for k, v := range m.stable {
		if got, err := g.GetStable([]byte(k)); err != nil || string(got) != v {
			return fmt.Errorf("%s is %q (%v), want %q", k, got, err, v)
		}
	}
	for _, k := range []string{"vote", "term"} {
		if _, err := g.GetStable([]byte(k)); m.stable[k] == "" && err != ErrNotFound {
			return fmt.Errorf("%s: %v", k, err)
		}
	}
	return nil
}

// end is beyond every index that the model ever had anything under.
func (m *model) end() uint64 {
	end := m.last
	for i := range m.kept {
		end = max(end, i)
	}
	return end + 20
}

// matchesKept says how what outlived the log differs from a model. Every index is tried: what was truncated must not come
// back, what was released may. Forgive says which errors of what is held do not count.
func matchesKept(g *Group, m *model, forgive func(error) bool) error {
	for i := range m.end() {
		k, kept := m.kept[i]
		gen, may := m.released[i]
		if kept {
			gen = k.gen
		}
		if _, inLog := m.gens[i]; inLog {
			continue
		}
		want := crashPayload(g.id, i, gen)
		pieces := append(testPieces(), Piece{0, uint32(len(want))})
		for n, p := range pieces {
			got, err := g.ReadPiece(i, p, nil)
			whole := n == len(pieces)-1
			switch {
			case err == nil && (kept || may) && bytes.Equal(got, want[p.Offset:p.end()]):
			case err == nil:
				return fmt.Errorf("index %d (kept %t, released %t) reads %d bytes that are not those of generation %d", i, kept, may, len(got), gen)
			case forgive != nil && forgive(err):
			case err == ErrNotFound && (!kept || k.pruned && whole):
			default:
				return fmt.Errorf("index %d (kept %t %+v, released %t): %w", i, kept, k, may, err)
			}
		}
	}
	return nil
}

// check finds every group in its acknowledged or its pending state, and settles on which.
func (w *workload) check(t *testing.T, j *Journal) {
	t.Helper()
	for id, m := range w.acked {
		errAcked := matches(j.Group(id), m)
		if errAcked == nil {
			w.pending[id] = m
			continue
		}
		if errPending := matches(j.Group(id), w.pending[id]); errPending != nil {
			t.Fatalf("group %d: neither acknowledged (%v) nor pending (%v)", id, errAcked, errPending)
		}
		w.acked[id] = w.pending[id]
	}
}

func (w *workload) clone() *workload {
	c := &workload{acked: map[uint32]*model{}, pending: map[uint32]*model{}, step: w.step}
	for id := range w.acked {
		c.acked[id], c.pending[id] = w.acked[id].clone(), w.pending[id].clone()
	}
	return c
}

const sweepSteps = 56

// sweeps multiplies the seeds of the sweeps of crashes, flips and truncations; make storage raises it.
var sweeps = flag.Int("journal.sweeps", 1, "how many times the usual seeds")

// sweepFaults runs the workload with a fault at the n-th operation of a kind, for every n. Everything must answer, and
// after the fault nothing must be written; a restart, without or with a loss of power, finds what was acknowledged.
func sweepFaults(t *testing.T, kind vfs.OpKind, how string) {
	hang := how == "hang"
	for n, hit := int64(1), true; hit; n++ {
		mem := vfs.NewMem()
		inject := vfs.NewInject(mem)
		var fault *vfs.Fault
		var summary atomic.Bool // the fault hit one, which costs nothing
		nth := vfs.Nth(n, vfs.Kinds(kind))
		match := func(op vfs.Op) bool {
			hit := nth(op)
			if hit {
				summary.Store(strings.HasSuffix(op.Name, summarySuffix))
			}
			return hit
		}
		switch how {
		case "hang":
			fault = inject.HangIf(match)
		case "tear":
			fault = inject.TearIf(match)
		default:
			fault = inject.FailIf(match, nil)
		}
		w := newWorkload()
		err := faultyRun(t, w, testOptions(inject))
		select {
		case <-fault.Reached():
			ahead := err == nil && summary.Load() || err == nil && kind != vfs.OpWrite && kind != vfs.OpSync // a segment that nobody came to need
			if want := map[bool]error{true: ErrDeadline, false: vfs.ErrInjected}[hang]; !ahead && !errors.Is(err, want) {
				t.Fatalf("%d: %v, want %v", n, err, want)
			}
		default:
			hit = false
		}
		lost, w2 := mem.Crash(uint64(n)), w.clone()
		j := mustOpen(t, testOptions(lost))
		w2.check(t, j)
		mustClose(t, j)
		fault.Release() // what hung may still happen
		synctest.Wait()
		j = mustOpen(t, testOptions(mem.Crash(0)))
		w.check(t, j)
		mustClose(t, j)
	}
}

// TestCrashSweep cuts the power after the n-th operation, for every n, and looks at what several seeds make of the
// unsynced rest. Then it goes on, crashes again during that recovery, and looks again.
func TestCrashSweep(t *testing.T) {
	t.Parallel()
	done, recycled, moved := false, 0, 0
	for n := int64(0); !done; n++ {
		mem := vfs.NewMem()
		mem.PowerOffAfter(n)
		w := newWorkload()
		j, err := Open(testOptions(mem))
		if err == nil {
			done = w.run(j, sweepSteps) == nil
			_ = j.Close()
			recycled, moved = max(recycled, w.recycled), max(moved, w.moved)
		}
		for k := range uint64(2 * *sweeps) {
			seed := k * (uint64(n%4) + 1)
			w := w.clone()
			after := mem.Crash(uint64(n)*1000 + seed)
			if seed > 0 { // recovery that does not come far
				after.PowerOffAfter(int64(seed%40) * 3)
				if j, err := Open(testOptions(after)); err == nil {
					_ = j.Close()
				}
				after = after.Crash(seed)
			}
			j, err := Open(testOptions(after))
			if err != nil {
				t.Fatalf("operation %d seed %d: %v", n, seed, err)
			}
			w.check(t, j)
			if err := w.run(j, 12); err != nil {
				t.Fatalf("operation %d seed %d: going on: %v", n, seed, err)
			}
			mustClose(t, j)
			j = mustOpen(t, testOptions(after.Crash(seed)))
			w.check(t, j)
			mustClose(t, j)
		}
	}
	if recycled < 2 || moved < 5 {
		t.Errorf("only %d segments were recycled, %d records moved", recycled, moved)
	}
}

// faultyRun runs the workload until it fails, and looks at what a poisoned journal answers.
func faultyRun(t *testing.T, w *workload, o Options) error {
	j, err := Open(o)
	if err != nil {
		return err
	}
	if err = w.run(j, sweepSteps); err == nil {
		err = j.Err() // a segment prepared in the background
	}
	if err == nil {
		return j.Close()
	}
	if errors.Is(err, ErrPoisoned) {
		select {
		case <-j.Failed():
		default:
			t.Fatalf("not failed after %v", err)
		}
		synctest.Wait() // a summary of an earlier segment may be under way
		before := o.FS.(*vfs.Inject).Count(vfs.OpWrite)
		for range 3 {
			if err := j.Group(1).SetStable([]byte("late"), nil); !errors.Is(err, ErrPoisoned) {
				t.Fatalf("poisoned journal answers %v", err)
			}
		}
		if after := o.FS.(*vfs.Inject).Count(vfs.OpWrite); after != before {
			t.Fatalf("poisoned journal wrote")
		}
		if j.Err() == nil {
			t.Fatal("no error")
		}
	}
	if cerr := j.Close(); errors.Is(err, ErrPoisoned) && !errors.Is(cerr, ErrPoisoned) {
		t.Fatalf("close after %v: %v", err, cerr)
	}
	return err
}

func TestFaultSweep(t *testing.T) {
	t.Parallel()
	kinds := map[string]vfs.OpKind{
		"write": vfs.OpWrite, "sync": vfs.OpSync, "preallocate": vfs.OpPreallocate, "create": vfs.OpCreate,
		"rename": vfs.OpRename, "syncdir": vfs.OpSyncDir,
	}
	for name, kind := range kinds {
		for _, how := range []string{"fail", "hang", "tear"} {
			if how == "hang" && (kind == vfs.OpRename || kind == vfs.OpSyncDir) || how == "tear" && kind != vfs.OpWrite {
				continue // the first two also happen in Recycle, on the caller's time
			}
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { sweepFaults(t, kind, how) })
			})
		}
	}
}

// Without SyncData a loss of power may take the newest segment's batches, but what is left is a beginning of each log
// with the right content, and the death of the process alone takes nothing.
func TestNoSync(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	o := testOptions(mem)
	o.SyncData = false
	j := mustOpen(t, o)
	cut := false
	for i := uint64(1); i <= 60; i++ {
		for id := uint32(1); id <= 2; id++ {
			must(t, j.Group(id).Append([]Record{record(id, i, 600)}))
		}
		after := mem.Crash(i)
		o.FS = after
		k := mustOpen(t, o)
		for id := uint32(1); id <= 2; id++ {
			g := k.Group(id)
			must(t, g.Damaged())
			if g.LastIndex() > i {
				t.Fatalf("index %d of %d", g.LastIndex(), i)
			}
			cut = cut || g.LastIndex() < i
			if g.LastIndex() > 0 {
				checkGroup(t, g, 1, g.LastIndex(), 600)
			}
		}
		mustClose(t, k)
	}
	if !cut {
		t.Error("nothing was ever lost")
	}
	mustClose(t, j)
	o.FS = mem
	j = mustOpen(t, o)
	checkGroup(t, j.Group(1), 1, 60, 600)
	mustClose(t, j)
}
