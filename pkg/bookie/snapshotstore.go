package bookie

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

// snapshotsDir, in the data directory, has a directory for each ledger group.
const snapshotsDir = "snapshots"

func snapshotDir(dataDir string, id ledger.GroupID) string {
	return filepath.Join(dataDir, snapshotsDir, fmt.Sprint(id))
}

// snapshotStore keeps the snapshots of one ledger group, each in a file of its own:
//
//	<index>-<term>-<number>.snap
//	┌─────────────┬────────────┬─────────────────┬───────────────────┬────────────┬─────────────────────────────────┐
//	│ magic "GSF" │ version u8 │ meta length u32 │ meta, JSON        │ crc32c u32 │ state, which ends with a crc32c │
//	└─────────────┴────────────┴─────────────────┴───────────────────┴────────────┴─────────────────────────────────┘
//
// A file gets its name when all of it is durable and was read back, so what has a name and is bad was damaged later.
// The newest two are kept, and the log from the older one on: when the newest is damaged the replica starts from the
// other. Two may be of the same index; then they are copies. Any method may be called from any goroutine.
type snapshotStore struct {
	fs  vfs.FS
	dir string
	log *slog.Logger

	mu      sync.Mutex
	number  uint64               // of the last file made
	metas   []raft.SnapshotMeta  // what can be restored, newest first; ID is the file's name
	damaged []raft.SnapshotMeta  // what cannot, by its name: Index, Term and ID only
	faults  map[string]error     // why not, by ID
	info    map[string]stateInfo // of what can be restored, by ID
	making  []string             // layers that no snapshot names yet
	made    uint64               // snapshots since this was opened
}

var _ raft.SnapshotStore = (*snapshotStore)(nil)

const (
	fileMagic    = "GSF"
	fileVersion  = 1
	fileHeader   = len(fileMagic) + 1 + 4
	fileSuffix   = ".snap"
	unfinished   = ".tmp"
	maxFileMeta  = 1 << 20
	snapshotKept = 2
)

// fileMeta is the description of a snapshot in its file.
type fileMeta struct {
	Version            int    `json:"version"` // of raft's description
	Index              uint64 `json:"index"`
	Term               uint64 `json:"term"`
	Configuration      []byte `json:"configuration"` // in raft's encoding
	ConfigurationIndex uint64 `json:"configurationIndex"`
}

// openSnapshotStore reads all snapshots of a directory, which it makes, and compares their checksums. The error is about
// what could not be read; damage is logged and left out.
func openSnapshotStore(fs vfs.FS, dir string, log *slog.Logger) (*snapshotStore, error) {
	s := &snapshotStore{fs: fs, dir: dir, log: log}
	if err := fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	return s, s.load(true)
}

// load looks through the directory. Clean: remove what was never finished.
func (s *snapshotStore) load(clean bool) error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	s.info, s.faults = map[string]stateInfo{}, map[string]error{}
	for _, name := range names {
		if strings.HasSuffix(name, unfinished) && clean {
			if err := s.fs.Remove(filepath.Join(s.dir, name)); err != nil {
				return err
			}
		}
		meta, number, ok := parseSnapshotName(name)
		if !ok {
			s.number = max(s.number, layerNumber(name))
			continue
		}
		s.number = max(s.number, number)
		info, err := s.check(&meta)
		if errors.Is(err, ErrDamaged) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			s.log.Error("snapshot is damaged", "file", filepath.Join(s.dir, name), "error", err)
			s.damaged, s.faults[meta.ID] = append(s.damaged, meta), err
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(s.dir, name), err)
		}
		s.metas = append(s.metas, meta)
		s.info[meta.ID] = info
	}
	slices.SortFunc(s.metas, newestFirst)
	slices.SortFunc(s.damaged, newestFirst)
	if clean && len(s.damaged) == 0 { // what a damaged one names may be of use yet
		return s.sweep()
	}
	return nil
}

func newestFirst(a, b raft.SnapshotMeta) int { return strings.Compare(b.ID, a.ID) }

func snapshotName(index, term, number uint64) string {
	return fmt.Sprintf("%020d-%020d-%08d%s", index, term, number, fileSuffix)
}

func parseSnapshotName(name string) (m raft.SnapshotMeta, number uint64, ok bool) {
	_, err := fmt.Sscanf(name, "%d-%d-%d", &m.Index, &m.Term, &number)
	m.ID = name
	return m, number, err == nil && name == snapshotName(m.Index, m.Term, number)
}

// check completes a description from its file, compares the checksum of the state, and looks at the layers.
func (s *snapshotStore) check(m *raft.SnapshotMeta) (info stateInfo, err error) {
	f, err := s.fs.Open(filepath.Join(s.dir, m.ID))
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return s.examine(f, m)
}

// examine is check for a file that is open. Of the description, Size becomes that of what Open's reader reads.
func (s *snapshotStore) examine(f vfs.File, m *raft.SnapshotMeta) (stateInfo, error) {
	state, err := readFileMeta(f, m)
	if err != nil {
		return stateInfo{}, err
	}
	if err := checkState(state, state.Size()); err != nil {
		return stateInfo{}, err
	}
	h, err := readStateHead(state, state.Size())
	if err != nil {
		return stateInfo{}, err
	}
	info := stateInfo{bytes: state.Size()}
	for _, l := range h.layers {
		if l.name != "" {
			info.layers = append(info.layers, l.name)
		}
	}
	m.Size = h.inline().size()
	return info, s.checkLayers(h, state)
}

// readFileMeta reads the head of a file. What is returned reads the state.
func readFileMeta(f vfs.File, m *raft.SnapshotMeta) (*io.SectionReader, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	head := make([]byte, fileHeader)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[len(head)-4:])
	if string(head[:len(fileMagic)]) != fileMagic || head[len(fileMagic)] != fileVersion || n > maxFileMeta {
		return nil, fmt.Errorf("%w: head of a snapshot file", ErrDamaged)
	}
	b := make([]byte, fileHeader+int(n)+4)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), b); err != nil {
		return nil, err
	}
	var meta fileMeta
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return nil, fmt.Errorf("%w: head of a snapshot file: checksum", ErrDamaged)
	}
	if err := json.Unmarshal(b[fileHeader:end], &meta); err != nil {
		return nil, fmt.Errorf("%w: head of a snapshot file: %w", ErrDamaged, err)
	}
	if meta.Index != m.Index || meta.Term != m.Term {
		return nil, fmt.Errorf("%w: %s holds the snapshot of index %d, term %d", ErrDamaged, m.ID, meta.Index, meta.Term)
	}
	m.Version, m.ConfigurationIndex = raft.SnapshotVersion(meta.Version), meta.ConfigurationIndex
	m.Configuration = raft.DecodeConfiguration(meta.Configuration)
	return io.NewSectionReader(f, int64(len(b)), size-int64(len(b))), nil
}

// List implements raft.SnapshotStore.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*raft.SnapshotMeta, len(s.metas))
	for i, m := range s.metas {
		out[i] = &m
	}
	return out, nil
}

// Open implements raft.SnapshotStore. A file that is open stays readable when it is removed.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.metas, func(m raft.SnapshotMeta) bool { return m.ID == id })
	if i < 0 {
		return nil, nil, fmt.Errorf("no snapshot %s", id)
	}
	f, err := s.fs.Open(filepath.Join(s.dir, id))
	if err != nil {
		return nil, nil, err
	}
	m := s.metas[i]
	state, err := readFileMeta(f, &m)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	h, err := readStateHead(state, state.Size())
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	if h.isInline() {
		return &m, snapshotReader{state, f}, nil
	}
	n, err := s.openNamed(f, h, state)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &m, n, nil
}

type snapshotReader struct {
	io.Reader
	io.Closer
}

// newest returns the snapshot that a restart begins with; false: there is none.
func (s *snapshotStore) newest() (raft.SnapshotMeta, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.metas) == 0 {
		return raft.SnapshotMeta{}, false
	}
	return s.metas[0], true
}

// cost is the size of the file of the newest snapshot: what the next one costs, beside its share of the index.
func (s *snapshotStore) cost() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.metas) == 0 {
		return 0
	}
	return s.info[s.metas[0].ID].bytes
}

// floor is the index up to which no log is needed, whichever of the snapshots gets damaged; 0: all of it is.
func (s *snapshotStore) floor() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.metas) < snapshotKept {
		return 0
	}
	return s.metas[snapshotKept-1].Index
}

// agreed is the index of the oldest snapshot if the log has the same entry there, and so the same ones before it; else 0.
func (s *snapshotStore) agreed(log raft.LogStore) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var at raft.Log
	if n := len(s.metas); n > 0 && log.GetLog(s.metas[n-1].Index, &at) == nil && at.Term == s.metas[n-1].Term {
		return at.Index
	}
	return 0
}

// Create implements raft.SnapshotStore.
//
//nolint:revive // the library's signature
func (s *snapshotStore) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	meta, err := json.Marshal(fileMeta{
		Version: int(v), Index: index, Term: term, Configuration: raft.EncodeConfiguration(c), ConfigurationIndex: ci,
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.number++
	name := snapshotName(index, term, s.number)
	s.mu.Unlock()
	f, err := s.fs.Create(filepath.Join(s.dir, name+unfinished))
	if err != nil {
		return nil, err
	}
	k := &snapshotSink{store: s, file: f, meta: raft.SnapshotMeta{ID: name, Index: index, Term: term}}
	head := append([]byte(fileMagic), fileVersion)
	head = binary.BigEndian.AppendUint32(head, uint32(len(meta)))
	head = append(head, meta...)
	if _, err := k.Write(binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))); err != nil {
		return nil, errors.Join(err, k.Cancel())
	}
	return k, nil
}

// snapshotSink writes one file.
type snapshotSink struct {
	store *snapshotStore
	file  vfs.File // nil when closed or cancelled
	meta  raft.SnapshotMeta
	info  stateInfo
	size  int64
}

// ID implements raft.SnapshotSink.
func (k *snapshotSink) ID() string { return k.meta.ID }

// Write implements io.Writer.
func (k *snapshotSink) Write(b []byte) (int, error) {
	n, err := k.file.WriteAt(b, k.size)
	k.size += int64(n)
	return n, err
}

func (k *snapshotSink) temporary() string { return filepath.Join(k.store.dir, k.meta.ID+unfinished) }

// Cancel implements raft.SnapshotSink. After Close it does nothing.
func (k *snapshotSink) Cancel() error {
	if k.file == nil {
		return nil
	}
	err := k.file.Close()
	k.file = nil
	return errors.Join(err, k.store.fs.Remove(k.temporary()))
}

// Close implements raft.SnapshotSink: the snapshot is durable and was read back when it returns nil. Raft closes a sink
// twice; the second call does nothing.
func (k *snapshotSink) Close() error {
	if k.file == nil {
		return nil
	}
	info, err := k.store.examine(k.file, &k.meta)
	if err == nil {
		err = k.file.Sync()
	}
	if err != nil {
		return errors.Join(err, k.Cancel())
	}
	err = k.file.Close()
	k.file, k.info = nil, info
	if err != nil {
		return err
	}
	return k.store.add(k)
}

// add gives a file its name, and removes the oldest.
func (s *snapshotStore) add(k *snapshotSink) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fs.Rename(k.temporary(), filepath.Join(s.dir, k.meta.ID)); err != nil {
		return err
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return err
	}
	s.metas = append(s.metas, k.meta)
	s.info[k.meta.ID] = k.info
	slices.SortFunc(s.metas, newestFirst)
	s.made++
	stale := s.damaged
	if len(s.metas) > snapshotKept {
		stale = append(stale, s.metas[snapshotKept:]...)
		s.metas = s.metas[:snapshotKept:snapshotKept]
	}
	s.damaged = nil
	for _, m := range stale {
		if err := s.fs.Remove(filepath.Join(s.dir, m.ID)); err != nil && !isNotExist(err) {
			s.log.Warn("an old snapshot stays", "file", m.ID, "error", err)
		}
		delete(s.info, m.ID)
	}
	if err := s.fs.SyncDir(s.dir); err != nil { // a snapshot must not come back without its layers
		return err
	}
	return s.sweepLocked()
}

// forget removes all snapshots but one.
func (s *snapshotStore) forget(but raft.SnapshotMeta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	s.metas = slices.DeleteFunc(s.metas, func(m raft.SnapshotMeta) bool {
		if m.ID == but.ID {
			return false
		}
		err = errors.Join(err, s.fs.Remove(filepath.Join(s.dir, m.ID)))
		delete(s.info, m.ID)
		return true
	})
	if err = errors.Join(err, s.fs.SyncDir(s.dir)); err != nil {
		return err
	}
	return s.sweepLocked()
}

// removeSnapshots deletes all snapshots of a group.
func removeSnapshots(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if isNotExist(err) {
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, fs.Remove(filepath.Join(dir, name)))
	}
	return errors.Join(err, fs.SyncDir(dir))
}
