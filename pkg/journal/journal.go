package journal

import "errors"

var errTodo = errors.New("journal: under construction")

// Journal is the log.
type Journal struct{}

// Open recovers the journal in o.Dir, or makes a new one.
func Open(o Options) (*Journal, error) { return nil, errTodo }

// Close writes what is queued, marks the end, and lets go of the directory.
func (j *Journal) Close() error { return errTodo }

// Err is not nil once the journal is poisoned.
func (j *Journal) Err() error { return errTodo }

// Failed is closed when the journal is poisoned.
func (j *Journal) Failed() <-chan struct{} { return nil }

// Group returns the view of a group, which is empty if nothing was ever written for it.
func (j *Journal) Group(id uint32) *Group { return nil }

// Groups returns the ids of all groups that have records or stable values, ascending.
func (j *Journal) Groups() []uint32 { return nil }

// ReadAt returns the Data of the record at p, checked. It uses buf if that is large enough; the result starts where
// buf starts then.
func (j *Journal) ReadAt(p Place, buf []byte) ([]byte, error) { return nil, errTodo }

// Segments returns the numbers of all segments, oldest first. The last one is being written.
func (j *Journal) Segments() []uint64 { return nil }

// Recycle gives up a segment: its places become invalid and its file is used again. It is for the caller to know that
// no ledger needs it; ErrInUse says that the log of a group does, or that it is the one being written.
func (j *Journal) Recycle(segment uint64) error { return errTodo }

// Group is the log of one Raft group.
type Group struct{}

// ID returns the group's id.
func (g *Group) ID() uint32 { return 0 }

// FirstIndex returns the first index, 0 when the log is empty.
func (g *Group) FirstIndex() uint64 { return 0 }

// LastIndex returns the last index, 0 when the log is empty.
func (g *Group) LastIndex() uint64 { return 0 }

// Append adds records right after LastIndex (anywhere when the log is empty). They are durable when it returns nil,
// and all of them or a leading part of them may be there after a crash when it does not. It keeps no reference to recs.
func (g *Group) Append(recs []Record) error { return errTodo }

// Get reads a record into rec, whose slices are fresh memory.
func (g *Group) Get(index uint64, rec *Record) error { return errTodo }

// Place returns where a record is.
func (g *Group) Place(index uint64) (Place, error) { return Place{}, errTodo }

// TruncateSuffix removes the records with index >= from. Durable when it returns.
func (g *Group) TruncateSuffix(from uint64) error { return errTodo }

// CompactPrefix removes the records with index <= to. Durable when it returns.
func (g *Group) CompactPrefix(to uint64) error { return errTodo }

// Reset forgets everything of the group: records, stable values, damage. Durable when it returns.
func (g *Group) Reset() error { return errTodo }

// SetStable keeps a value under a key. Durable when it returns.
func (g *Group) SetStable(key, val []byte) error { return errTodo }

// GetStable returns a copy of the value of a key.
func (g *Group) GetStable(key []byte) ([]byte, error) { return nil, errTodo }

// Damaged returns the *CorruptError that stopped the group, nil when it is whole. A damaged group answers every Get,
// Append and SetStable with it.
func (g *Group) Damaged() error { return nil }
