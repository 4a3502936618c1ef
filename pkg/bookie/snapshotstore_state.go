package bookie

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
)

// A snapshot of a ledger group is its machine and its index. The entries are not in it: the journal keeps them.
//
//	┌─────────────┬────────────┬─────────────┬────────────────────┬─────────────────┬───────────┬────────────┐
//	│ magic "GBS" │ version u8 │ applied u64 │ machine length u64 │ machine snapshot│ index …   │ crc32c u32 │
//	└─────────────┴────────────┴─────────────┴────────────────────┴─────────────────┴───────────┴────────────┘
//	index:  ledgers u64, then for each by id: id u64 | runs uvarint | runs …
//	run:    count | offset | length | index, less that of the run before; all uvarint
//
// Fixed numbers are big endian. The checksum covers all before it. The first entry of a run is where the run before
// ended. Equal states have equal snapshots, byte for byte.
const (
	stateMagic   = "GBS"
	stateVersion = 1
	stateHeader  = len(stateMagic) + 1 + 8 + 8
	stateTrailer = 4
)

// fsmState is what a snapshot holds.
type fsmState struct {
	applied uint64 // index of the last command applied
	machine *ledger.Machine
	index   *index
}

// Persist implements raft.FSMSnapshot.
func (s *fsmState) Persist(sink raft.SnapshotSink) error {
	if err := s.encode(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s *fsmState) Release() {}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes the snapshot.
func (s *fsmState) encode(to io.Writer) error {
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), 256<<10)
	machine := s.machine.AppendSnapshot(nil)
	b := append([]byte(stateMagic), stateVersion)
	b = binary.BigEndian.AppendUint64(b, s.applied)
	b = binary.BigEndian.AppendUint64(b, uint64(len(machine)))
	_, _ = w.Write(b) // a bufio.Writer keeps its first error for Flush
	_, _ = w.Write(machine)
	_, _ = w.Write(binary.BigEndian.AppendUint64(b[:0], uint64(len(s.index.ledgers))))
	for _, id := range slices.Sorted(maps.Keys(s.index.ledgers)) {
		runs := s.index.ledgers[id]
		b = binary.BigEndian.AppendUint64(b[:0], uint64(id))
		b = binary.AppendUvarint(b, uint64(len(runs)))
		before := uint64(0)
		for _, r := range runs {
			for _, v := range [...]uint64{uint64(r.count), uint64(r.offset), uint64(r.length), r.index - before} {
				b = binary.AppendUvarint(b, v)
			}
			before = r.index
			if len(b) > 4096 {
				_, _ = w.Write(b)
				b = b[:0]
			}
		}
		_, _ = w.Write(b)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

// decodeState takes a snapshot apart. Errors are ErrDamaged.
func decodeState(b []byte) (*fsmState, error) {
	bad := func(what string) (*fsmState, error) { return nil, fmt.Errorf("%w: snapshot: %s", ErrDamaged, what) }
	if len(b) < stateHeader+8+stateTrailer || string(b[:len(stateMagic)]) != stateMagic {
		return bad("not that of a ledger group")
	}
	if v := b[len(stateMagic)]; v != stateVersion {
		return bad(fmt.Sprintf("version %d, this build reads %d", v, stateVersion))
	}
	body, sum := b[:len(b)-stateTrailer], binary.BigEndian.Uint32(b[len(b)-stateTrailer:])
	if crc32.Checksum(body, castagnoli) != sum {
		return bad("checksum")
	}
	s := &fsmState{applied: binary.BigEndian.Uint64(b[len(stateMagic)+1:]), machine: ledger.NewMachine()}
	n := binary.BigEndian.Uint64(b[stateHeader-8:])
	body = body[stateHeader:]
	if n > uint64(len(body))-8 {
		return bad("too short")
	}
	if err := s.machine.Restore(body[:n]); err != nil {
		return bad(err.Error())
	}
	var ok bool
	if s.index, ok = decodeIndex(body[n:]); !ok {
		return bad("index")
	}
	for id, runs := range s.index.ledgers {
		if st, exists := s.machine.State(id); !exists || runs[len(runs)-1].end() != st.Last {
			return bad(fmt.Sprintf("index of ledger %d", id))
		}
	}
	return s, nil
}

func decodeIndex(b []byte) (*index, bool) {
	r := stateReader{b: b}
	count := r.fixed()
	x := newIndex()
	for range count {
		id := ledger.ID(r.fixed())
		n := r.number(uint64(len(r.b))) // a run has several bytes
		if r.bad || n == 0 {
			return nil, false
		}
		runs := make([]run, n)
		next, before := ledger.EntryID(0), uint64(0)
		for i := range runs {
			runs[i] = run{
				first: next, count: uint32(r.number(math.MaxUint32)), offset: uint32(r.number(math.MaxUint32)),
				length: uint32(r.number(math.MaxUint32)), index: before + r.number(math.MaxInt64),
			}
			next, before = runs[i].end()+1, runs[i].index
		}
		x.ledgers[id] = runs
	}
	return x, !r.bad && len(r.b) == 0
}

// stateReader reads numbers; bad says that one was not there, or too large.
type stateReader struct {
	b   []byte
	bad bool
}

func (r *stateReader) fixed() uint64 {
	if len(r.b) < 8 {
		r.bad, r.b = true, nil
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *stateReader) number(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// checkState compares the checksum of a snapshot without taking it apart.
func checkState(r io.Reader, size int64) error {
	if size < stateTrailer {
		return fmt.Errorf("%w: snapshot of %d bytes", ErrDamaged, size)
	}
	sum := crc32.New(castagnoli)
	if _, err := io.CopyN(sum, r, size-stateTrailer); err != nil {
		return err
	}
	var trailer [stateTrailer]byte
	if _, err := io.ReadFull(r, trailer[:]); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(trailer[:]) != sum.Sum32() {
		return fmt.Errorf("%w: snapshot: checksum", ErrDamaged)
	}
	return nil
}
