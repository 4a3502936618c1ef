package bookie

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
)

// A snapshot of a ledger group is its machine and its index. The entries are not in it: the journal keeps them.
//
//	┌─────────────┬────────────┬─────────────┬──────────┬────────────┬──────────────────┬─────────┬─────────┬────────┬────────────┐
//	│ magic "GBS" │ version u8 │ applied u64 │ flags u8 │ layers u32 │ machine size u64 │ layer … │ machine │ inline │ crc32c u32 │
//	└─────────────┴────────────┴─────────────┴──────────┴────────────┴──────────────────┴─────────┴─────────┴────────┴────────────┘
//	layer: size u64 | sum u32 | name size u8 | name
//
// Fixed numbers are big endian. The checksum covers all before it. A layer with a name lies in a file of its own, which no
// later snapshot writes again; those without lie one behind the other in inline.
//
//	taken here                     layers have names: it costs what came since the one before, and some merging
//	sent to another replica        all are inline, whatever they were here; installed there, they are merged into a file by the next
//	sent, one layer, no flags      equal states have equal snapshots, byte for byte
const (
	stateMagic   = "GBS"
	stateVersion = 2
	stateHeader  = len(stateMagic) + 1 + 8 + 1 + 4 + 8
	stateLayer   = 8 + 4 + 1
	stateTrailer = 4
	maxLayers    = 1024

	stateWhole = 1 << 0 // the replica had all entries: see filler
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stateHead is what a snapshot begins with.
type stateHead struct {
	applied uint64
	flags   uint8
	machine int64 // size
	layers  []layerHead
	length  int64 // of the head
}

// layerHead describes a layer. The checksum tells it from any other that has the name.
type layerHead struct {
	size int64
	sum  uint32
	name string // empty: inline
}

func (h *stateHead) encode() []byte {
	b := append([]byte(stateMagic), stateVersion)
	b = binary.BigEndian.AppendUint64(b, h.applied)
	b = append(b, h.flags)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.layers)))
	b = binary.BigEndian.AppendUint64(b, uint64(h.machine))
	for _, l := range h.layers {
		b = binary.BigEndian.AppendUint64(b, uint64(l.size))
		b = binary.BigEndian.AppendUint32(b, l.sum)
		b = append(b, byte(len(l.name)))
		b = append(b, l.name...)
	}
	return b
}

// inline describes the same state with all layers in it.
func (h *stateHead) inline() *stateHead {
	out := &stateHead{applied: h.applied, machine: h.machine, layers: make([]layerHead, len(h.layers))}
	for i, l := range h.layers {
		out.layers[i] = layerHead{size: l.size, sum: l.sum}
	}
	out.length = int64(stateHeader + stateLayer*len(out.layers))
	return out
}

// isInline says that the layers are in the snapshot, and that there are some.
func (h *stateHead) isInline() bool { return len(h.layers) > 0 && h.layers[0].name == "" }

// size is what all of it takes.
func (h *stateHead) size() int64 {
	n := h.length + h.machine + stateTrailer
	for _, l := range h.layers {
		if l.name == "" {
			n += l.size
		}
	}
	return n
}

func badState(what string) error { return fmt.Errorf("%w: snapshot: %s", ErrDamaged, what) }

func brokenState(cause error) error { return fmt.Errorf("%w: snapshot: %w", ErrDamaged, cause) }

// errStateVersion: another build wrote it. It is whole and of use to that build, so it is not ErrDamaged, for which it would
// be replaced: a bookie that has one does not start.
var errStateVersion = errors.New("snapshot of a ledger group")

// readStateHead reads the head of a snapshot of so many bytes, whose checksum was compared. Errors are ErrDamaged or
// errStateVersion.
func readStateHead(r io.ReaderAt, size int64) (*stateHead, error) {
	in := io.NewSectionReader(r, 0, size)
	b := make([]byte, stateHeader)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, brokenState(err)
	}
	if string(b[:len(stateMagic)]) != stateMagic {
		return nil, badState("not that of a ledger group")
	}
	if v := b[len(stateMagic)]; v != stateVersion {
		return nil, fmt.Errorf("%w: version %d, this build reads %d", errStateVersion, v, stateVersion)
	}
	b = b[len(stateMagic)+1:]
	h := &stateHead{applied: binary.BigEndian.Uint64(b), flags: b[8], machine: int64(binary.BigEndian.Uint64(b[13:]))}
	n := binary.BigEndian.Uint32(b[9:])
	if n > maxLayers || h.machine < 0 || h.machine > size {
		return nil, badState("head")
	}
	h.length = int64(stateHeader)
	for range n {
		l, err := readLayerHead(in)
		if err != nil {
			return nil, err
		}
		if l.name == "" && l.size > size || len(h.layers) > 0 && (h.layers[0].name == "") != (l.name == "") {
			return nil, badState("layers")
		}
		h.layers = append(h.layers, l)
		h.length += int64(stateLayer + len(l.name))
	}
	if h.size() != size {
		return nil, badState(fmt.Sprintf("%d bytes of %d", size, h.size()))
	}
	return h, nil
}

func readLayerHead(in io.Reader) (l layerHead, err error) {
	var b [stateLayer + 255]byte
	if _, err := io.ReadFull(in, b[:stateLayer]); err != nil {
		return l, brokenState(err)
	}
	name := b[stateLayer : stateLayer+int(b[stateLayer-1])]
	if _, err := io.ReadFull(in, name); err != nil {
		return l, brokenState(err)
	}
	l = layerHead{size: int64(binary.BigEndian.Uint64(b[:])), sum: binary.BigEndian.Uint32(b[8:]), name: string(name)}
	if l.size < 0 {
		return l, badState("size of a layer")
	}
	return l, nil
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

// fsmState is what a snapshot holds.
type fsmState struct {
	applied uint64 // index of the last command applied
	whole   bool   // the replica has all entries that the index names
	machine *ledger.Machine
	index   *index

	life  int                                // of the fsm's state: it changes when a snapshot replaces it
	files *snapshotStore                     // nil: snapshots are inline
	taken func(s *fsmState, layers []*layer) // called when it is durable
}

// Persist implements raft.FSMSnapshot.
func (s *fsmState) Persist(sink raft.SnapshotSink) error {
	if s.files == nil {
		if err := s.encode(sink); err != nil {
			return errors.Join(err, sink.Cancel())
		}
		return sink.Close()
	}
	layers, made, err := s.settle()
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if made != nil {
		defer s.files.referred(made.name)
	}
	if err := s.write(sink, layers); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	s.taken(s, layers)
	return nil
}

// Release implements raft.FSMSnapshot.
func (s *fsmState) Release() {}

// settle puts what the tail has into a layer, with what it takes to keep layers few: each of those that stay has more runs
// than all that are younger. So a run is written again some times, as often as the index doubles.
func (s *fsmState) settle() (layers []*layer, made *layer, err error) {
	old := s.index.layers
	n, keep := s.index.runsOf(), len(old)
	for keep > 0 && (old[keep-1].name == "" || n > 0 && old[keep-1].runs <= n) {
		keep--
		n += old[keep].runs
	}
	for i, l := range old[:keep] { // one that is in memory only has to be written, with all that are younger
		if l.name == "" {
			keep = i
			break
		}
	}
	if n == 0 && keep == len(old) {
		return old, nil, nil
	}
	var sources []*cursor
	for _, l := range old[keep:] {
		sources = append(sources, l.cursor())
	}
	made, err = s.files.writeLayer(func(w *layerWriter) error {
		return merge(append(sources, tailCursor(s.index.tail)), s.last, w.add)
	})
	if err != nil || made == nil {
		return old[:keep:keep], nil, err
	}
	return append(old[:keep:keep], made), made, nil
}

// write writes a snapshot that names its layers.
func (s *fsmState) write(to io.Writer, layers []*layer) error {
	machine := s.machine.AppendSnapshot(nil)
	h := stateHead{applied: s.applied, machine: int64(len(machine))}
	if s.whole {
		h.flags |= stateWhole
	}
	for _, l := range layers {
		h.layers = append(h.layers, layerHead{l.size, l.sum, l.name})
	}
	return writeState(to, &h, machine, nil)
}

func writeState(to io.Writer, h *stateHead, machine, inline []byte) error {
	sum := crc32.New(castagnoli)
	both := io.MultiWriter(to, sum)
	for _, b := range [][]byte{h.encode(), machine, inline} {
		if _, err := both.Write(b); err != nil {
			return err
		}
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

// encode writes the snapshot with one layer, inline.
func (s *fsmState) encode(to io.Writer) error {
	var inline bytes.Buffer
	w := newLayerWriter(&inline)
	if err := s.each(0, w.add); err != nil {
		return err
	}
	if err := w.finish(); err != nil {
		return err
	}
	machine, b := s.machine.AppendSnapshot(nil), inline.Bytes()
	sum := binary.BigEndian.Uint32(b[len(b)-4:])
	h := stateHead{applied: s.applied, machine: int64(len(machine)), layers: []layerHead{{size: int64(len(b)), sum: sum}}}
	return writeState(to, &h, machine, b)
}

// decodeState takes a snapshot apart that came from elsewhere: all layers are inline. Errors are those of readStateHead.
func decodeState(b []byte) (*fsmState, error) {
	if err := checkState(bytes.NewReader(b), int64(len(b))); err != nil {
		return nil, err
	}
	h, err := readStateHead(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	s := &fsmState{applied: h.applied, machine: ledger.NewMachine(), index: newIndex()}
	b = b[h.length:]
	if err := s.machine.Restore(b[:h.machine]); err != nil {
		return nil, brokenState(err)
	}
	b = b[h.machine:]
	for _, lh := range h.layers {
		if lh.name != "" {
			return nil, badState("a layer is elsewhere")
		}
		l, err := openLayer("", bytes.NewReader(b[:lh.size:lh.size]), lh.size)
		if err != nil {
			return nil, err
		}
		s.index.layers = append(s.index.layers, l)
		b = b[lh.size:]
	}
	return s, s.check()
}

// check reads the whole index: every ledger has its entries, each once.
func (s *fsmState) check() error {
	for _, l := range s.index.layers {
		if err := l.verify(); err != nil {
			return err
		}
	}
	next := map[ledger.ID]ledger.EntryID{}
	err := s.each(0, func(id ledger.ID, r run) error {
		if r.first != next[id] {
			return badState(fmt.Sprintf("index of ledger %d: entry %d after %d", id, r.first, next[id]-1))
		}
		next[id] = r.end() + 1
		return nil
	})
	for id, st := range s.machine.Ledgers() {
		if err == nil && next[id] != st.Last+1 {
			err = badState(fmt.Sprintf("index of ledger %d ends at %d", id, next[id]-1))
		}
	}
	return err
}
