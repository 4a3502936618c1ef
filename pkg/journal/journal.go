package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Journal is the write-ahead log of all Raft groups of a bookie.
//
// # Group commit
//
// A disk does some hundred to some ten thousand syncs a second, whatever their size, and a bookie has tens of groups
// that each want one per proposal. So the groups do not sync: they queue, and one goroutine, the writer, takes
// whatever has gathered, writes it with one pwrite, makes it durable with one fdatasync, and releases everybody whose
// bytes were in it. While that sync is under way the next batch gathers. Nobody waits for a timer: an idle journal
// writes the first request at once, and a busy one makes batches exactly as large as the disk is slow.
//
//	  callers (Raft groups)                        writer
//	1 A: checksum, queue, sleep
//	2                                              takes [A]; pwrite(A)
//	3 B: checksum, queue, sleep                    fdatasync …
//	4 C: checksum, queue, sleep                    fdatasync … returns: A is durable
//	5                                              publishes A's places, releases A
//	6 A wakes: Append returns nil                  takes [B C]; pwrite(B C)
//	7 A: reads its record, from memory             fdatasync …, publishes B and C, releases B and C
//
// What makes it right:
//
//  1. A caller is released only after the sync that began after its bytes were written returned (3, 4): B, which queued
//     while A's sync ran, is not in that sync's answer though its bytes might have been on their way.
//  2. Nobody sees a record before it is durable: views change between sync and release (5).
//  3. Batch n+1 is written only after batch n was synced. Recovery leans on this: a valid batch n+1 proves that batch n
//     was durable once, so damage in n is corruption; damage in the last batch is a torn write, which nobody was
//     answered for, and is cut.
//  4. Requests of one group are admitted, written and published in the order in which they were queued. Whether an
//     append is contiguous is decided by the writer, against what the batch holds so far.
//
// # When the disk fails
//
// After a failed write or sync nobody knows what is on the disk, and a later sync that succeeds does not say (the
// kernel has dropped the pages). So the first failure poisons the journal: everybody gets the error, for ever, and the
// process has to end and recover. A write that hangs is treated the same after WriteDeadline, because a Raft leader
// whose disk hangs keeps its office and answers nobody. The system call may still return, and the bytes may still
// land; therefore nothing is written after it, and the memory it reads is the journal's own, never a caller's.
// A full disk is different: segments are allocated before they are begun, so it shows before a byte is written, only
// the calls at hand are refused (ErrNoSpace), and the next one tries again.
//
// # Rejected
//
//   - A log per group: n groups share one disk and sync n times. Measured at 32 groups, a third of the throughput.
//   - Gathering on a timer (BookKeeper waits a millisecond by default): adds its wait to every idle write, and nothing
//     to a busy one. MaxGroupWait exists for disks that bill by the sync.
//   - pwritev over the callers' slices instead of a copy: saves about 1 µs per 16 KiB, but a caller released by the
//     deadline would get back memory that a hung system call still reads, and serving the tail from memory would need
//     the copy anyway.
//   - A pipeline with two syncs in flight: breaks 3, without which torn and corrupt look the same.
//   - Zeroing new segments, so that the first pass changes no metadata either: writes every byte twice in a journal
//     whose segments are kept as the storage of ledgers.
//   - Appending to the last segment after a restart: what is left of a torn batch behind the cut could come back.
//     Each Open begins a new segment, and the old one is trimmed.
//
// Locking: one mutex for queue and fate; each Group has one for its view; the tables of files and the tail have their
// own. None is held while another is taken, except a Group's or the tail's under nothing.
type Journal struct {
	opts    Options
	id      uint64
	metrics *metrics
	segs    *segments
	tail    *tail
	prep    *preparer
	lock    io.Closer
	reqs    requests
	failed  chan struct{} // closed when poisoned
	done    sync.WaitGroup
	clock   *time.Timer
	begun   chan error    // the writer's answer to Open
	ended   chan struct{} // closed when writer and preparer are done
	w       writer
	old     oldSegment

	fate
}

// oldSegment is where recovery ended.
type oldSegment struct {
	number uint64
	end    int64
	ended  bool     // by a mark
	sum    *summary // nil if it is damaged
}

// fate is what the callers and the writer share.
type fate struct {
	mu       sync.Mutex
	wake     *sync.Cond // the writer: there is something to do
	groups   map[uint32]*Group
	queue    []*request
	queued   int64 // bytes in queue
	inflight []*request
	closing  bool
	closed   bool
	err      error     // INVARIANT: once set, never changed; set exactly when failed is closed
	armed    string    // what the writer is doing that may hang
	steps    int       // that it has left before it counts as hung
	due      time.Time // when the present step is over
	hung     bool
}

// Open takes the directory, recovers the journal in it, or makes a new one, and begins a new segment.
func Open(o Options) (*Journal, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("journal: instruments: %w", err)
	}
	j := &Journal{
		opts: o, metrics: m, segs: newSegments(&o), tail: newTail(o.TailSize),
		failed: make(chan struct{}), begun: make(chan error, 1), ended: make(chan struct{}),
	}
	j.groups = map[uint32]*Group{}
	j.wake = sync.NewCond(&j.mu)
	j.prep = newPreparer(j.segs, o.Logger)
	j.clock = time.AfterFunc(time.Hour, j.expired)
	j.clock.Stop()
	start := time.Now()
	if err := j.start(); err != nil {
		if !j.isHung() {
			err = errors.Join(err, j.segs.closeAll(), j.unlock())
		}
		return nil, err
	}
	o.Logger.Info("journal open", "dir", o.Dir, "segments", len(j.Segments()), "groups", len(j.Groups()),
		"took", time.Since(start))
	return j, nil
}

// start recovers and begins to write.
func (j *Journal) start() error {
	if err := j.restore(); err != nil {
		return err
	}
	j.prep.start(&j.done)
	j.done.Go(j.run)
	select {
	case err := <-j.begun:
		if err == nil {
			return nil
		}
		return errors.Join(err, j.settle())
	case <-j.failed:
		return errors.Join(j.Err(), j.settle())
	}
}

// settle waits for the goroutines, unless a write hangs: then it returns at once.
func (j *Journal) settle() error {
	select {
	case <-j.ended:
	case <-j.failed:
		if !j.isHung() {
			<-j.ended
		}
	}
	if j.isHung() {
		return nil
	}
	j.done.Wait()
	return j.prep.leftover()
}

func (j *Journal) unlock() error {
	if j.lock == nil {
		return nil
	}
	return j.lock.Close()
}

// Close writes what is queued, marks the end, and lets go of the directory. After a hung write it returns at once, and
// keeps the directory locked until the process ends, because the write may still land.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	j.closing, j.closed = true, true
	j.wake.Signal()
	j.mu.Unlock()

	err := j.settle()
	if j.isHung() {
		return j.Err()
	}
	return errors.Join(j.Err(), err, j.segs.closeAll(), j.unlock())
}

func (j *Journal) isHung() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.hung
}

// Err is not nil once the journal is poisoned.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Failed is closed when the journal is poisoned. The owner gives up leadership, reports Err, and ends the process.
func (j *Journal) Failed() <-chan struct{} { return j.failed }

// Group returns the view of a group, which is empty if nothing was ever written for it.
func (j *Journal) Group(id uint32) *Group {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.groupLocked(id)
}

func (j *Journal) groupLocked(id uint32) *Group {
	g := j.groups[id]
	if g == nil {
		g = j.newGroup(id)
		if j.w.unsure {
			g.lost = &CorruptError{Group: id, Reason: "records of unknown groups were lost before"}
		}
		j.groups[id] = g
	}
	return g
}

func (j *Journal) newGroup(id uint32) *Group {
	return &Group{j: j, id: id, stable: map[string][]byte{}}
}

// Groups returns the ids of all groups that have records, stable values or damage, ascending.
func (j *Journal) Groups() []uint32 {
	var ids []uint32
	for _, g := range j.allGroups() {
		g.mu.RLock()
		if !g.blankLocked() {
			ids = append(ids, g.id)
		}
		g.mu.RUnlock()
	}
	return ids
}

// allGroups returns every group that was asked for, by id.
func (j *Journal) allGroups() []*Group {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([]*Group, 0, len(j.groups))
	for _, g := range j.groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *Group) int { return cmp.Compare(a.id, b.id) })
	return all
}

// submit queues a request and waits until it is durable.
func (j *Journal) submit(r *request) error {
	r.measure()
	j.mu.Lock()
	switch {
	case j.err != nil:
		err := j.err
		j.mu.Unlock()
		return err
	case j.closing:
		j.mu.Unlock()
		return ErrClosed
	}
	j.queue = append(j.queue, r)
	j.queued += r.size
	j.wake.Signal()
	j.mu.Unlock()
	err := <-r.done
	if err == nil {
		j.reqs.put(r)
	}
	return err
}

// Segments returns the numbers of all segments, oldest first. The last one is being written.
func (j *Journal) Segments() []uint64 { return j.segs.numbers() }

// Recycle gives up a segment: its places become invalid and its file is used again. ErrInUse says that a group holds
// records in it, in its log or kept, or that it is the one being written.
//
// What lay there is nowhere else any more only if it was released: what was moved is durable in its new place, also
// without Options.SyncData.
func (j *Journal) Recycle(segment uint64) error {
	if err := j.Err(); err != nil {
		return err
	}
	if ns := j.Segments(); len(ns) == 0 || segment >= ns[len(ns)-1] {
		return fmt.Errorf("%w: %d is being written", ErrInUse, segment)
	}
	for _, g := range j.allGroups() {
		g.mu.RLock()
		n := g.uses.of(segment)
		g.mu.RUnlock()
		if n > 0 {
			return fmt.Errorf("%w: %d has %d records of group %d", ErrInUse, segment, n, g.id)
		}
	}
	if !j.opts.SyncData {
		if err := j.syncNewest(); err != nil {
			return err
		}
	}
	return j.segs.recycle(segment)
}

// Shed gives the space of recycled files back that the journal keeps for its next segments, but for one, with which it goes on
// when others take the rest.
func (j *Journal) Shed() (files int, err error) { return j.segs.shed(1) }

// syncNewest makes durable what was moved, which a journal without SyncData has not done yet. Older segments were synced
// when they were sealed.
func (j *Journal) syncNewest() error {
	numbers := j.Segments()
	seg, err := j.segs.acquire(numbers[len(numbers)-1])
	if err != nil {
		return err
	}
	defer j.segs.release(seg)
	if err = seg.file.SyncData(); err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.poisonLocked(fmt.Errorf("sync before recycling: %w", err))
		return j.err
	}
	return nil
}
