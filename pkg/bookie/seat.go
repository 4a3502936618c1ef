package bookie

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/pkg/vfs"
)

// seatFile, in the data directory, says what this bookie is in the metadata group. It is not there until that changes for
// the first time: before, cluster.json tells.
const seatFile = "seat.json"

// seatState is what a bookie is in the metadata group.
type seatState string

const (
	seatJoining seatState = "joining" // it has a replica without a say in elections, which may be empty
	seatHeld    seatState = "held"    // it has a replica that others count on
	seatLeft    seatState = "left"    // it has none, and what is left of one may go
)

// seatJSON is the content of seatFile.
type seatJSON struct {
	State   seatState `json:"state"`
	Version int64     `json:"version"` // of the group's record that made it so
}

// readSeat returns what the directory of a bookie says it is. A state is made up for a bookie that never changed it.
func readSeat(fs vfs.FS, dir string, c *clusterJSON) (s seatJSON, err error) {
	b, err := readFile(fs, filepath.Join(dir, seatFile))
	switch {
	case isNotExist(err) && c.isMember():
		return seatJSON{State: seatHeld}, nil
	case isNotExist(err):
		return seatJSON{State: seatLeft}, nil
	case err != nil:
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s in %s is damaged: %w", seatFile, dir, err)
	}
	if !slices.Contains([]seatState{seatJoining, seatHeld, seatLeft}, s.State) {
		return s, fmt.Errorf("%s in %s: unknown state %q", seatFile, dir, s.State)
	}
	return s, nil
}

// seat is this bookie's place in the metadata group, which it may get and lose while it runs. It follows the group's record
// as groups follows those of the ledger groups:
//
//	left ──record names us──▶ joining ──our copy of the record names us──▶ held
//	  ▲                          │                                          │
//	  └──────────────────────────┴─────record names us no more, confirmed───┘
//
// A bookie may have been a member before and have forgotten its votes and its log. Another one may still go by a
// configuration of that time: one that was dead when it was removed, and has come back. A newcomer must not help it to be
// elected. So it neither votes nor stands for election before its own state machine holds the record that made it join:
// from then on its log is newer than that of whoever was removed before. The library alone would let it vote with an empty
// log, and follow the old configurations that it is sent on the way.
type seat struct {
	b     *Bookie
	group atomic.Pointer[metaGroup]     // nil: there is no replica here
	seen  atomic.Pointer[metadata.Item] // the group's record, as last seen
	news  chan struct{}                 // holds one: look at seen
	life  lifetime

	now seatJSON // of keep
}

// meta returns the replica of the metadata group, nil when there is none here.
func (b *Bookie) meta() *metaGroup {
	if b.seat == nil {
		return nil
	}
	return b.seat.group.Load()
}

// openSeat opens the replica, if there is to be one.
func openSeat(b *Bookie) (*seat, error) {
	s := &seat{b: b, news: make(chan struct{}, 1)}
	var err error
	if s.now, err = readSeat(b.opts.FS, b.opts.DataDir, b.cluster); err != nil {
		return nil, err
	}
	if s.now.State == seatLeft {
		return s, nil
	}
	return s, s.open()
}

func (s *seat) open() error {
	g, err := openMetaGroup(metaDeps{
		opts: &s.b.opts, links: s.b.links, spare: s.b.reserve, joining: s.now.State == seatJoining,
		onReady: func(bool) { s.b.place() }, failed: s.b.fail,
	})
	if err == nil {
		s.group.Store(g)
	}
	return err
}

// follow takes a newer record over. It does not wait for what follows from it.
func (s *seat) follow(items map[string]metadata.Item) {
	it, ok := items[metadata.GroupKey(ledger.MetadataGroup)]
	if !ok {
		return
	}
	s.seen.Store(&it)
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// keep does what the record says, and looks after the group when it is led from here, until the bookie closes.
func (s *seat) keep() {
	s.life.start(func() {
		tick := time.NewTicker(s.b.opts.ProbeInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-s.news:
			case <-s.b.ctx.Done():
				return
			}
			if err := s.obey(); err != nil && s.b.ctx.Err() == nil {
				s.b.log.Warn("the place in the metadata group; it is tried again", "error", err)
			}
			if g := s.group.Load(); g != nil && g.isReady() {
				if err := s.b.metaSettler(g).settle(s.b.ctx); err != nil {
					s.b.log.Debug("a change of the metadata group; it is tried again", "error", err)
				}
			}
		}
	})
}

func (s *seat) obey() error {
	if s.now.State == seatJoining {
		if err := s.arrive(); err != nil {
			return err
		}
	}
	g := s.group.Load()
	it := s.seen.Load()
	if it == nil {
		return nil
	}
	info, err := groupRecord(*it)
	if err != nil {
		return err
	}
	self := s.b.self.bookieID
	s.b.client.follow(info.Members())
	switch {
	case g == nil && it.Version > s.now.Version && slices.Contains(info.Replicas, self):
		return s.join(it.Version)
	case g != nil && it.Version > s.now.Version && !slices.Contains(info.Members(), self):
		return s.leave(g, it.Version)
	}
	return nil
}

// arrive opens the replica of a newcomer, if that could not be done: no other is chosen while this bookie lives. One that has
// seen why it joined gets its say.
func (s *seat) arrive() error {
	g := s.group.Load()
	if g == nil {
		return s.open()
	}
	if it, _ := g.fsm.get(metadata.GroupKey(ledger.MetadataGroup)); it.Version < s.now.Version {
		return nil
	}
	if err := s.become(seatHeld, s.now.Version); err != nil {
		return err
	}
	g.joined()
	return nil
}

// become writes down what this bookie is now.
func (s *seat) become(state seatState, version int64) error {
	next := seatJSON{State: state, Version: version}
	b, err := json.Marshal(next)
	if err == nil {
		err = writeFile(s.b.opts.FS, filepath.Join(s.b.opts.DataDir, seatFile), b)
	}
	if err == nil {
		s.now = next
	}
	return err
}

// join opens an empty replica. Should it not come to that, arrive or the next start does it.
func (s *seat) join(version int64) error {
	dir := s.b.opts.MetadataDir
	err := forgetMetadata(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = s.become(seatJoining, version)
	}
	if err == nil {
		err = s.open()
	}
	if err == nil {
		err = errors.Join(vfs.Disk{}.SyncDir(dir), vfs.Disk{}.SyncDir(filepath.Dir(dir)))
	}
	if err == nil {
		s.b.log.Info("joining the metadata group")
	}
	return err
}

// leave forgets the replica. What is forgotten cannot be had back, so the metadata is asked once more.
func (s *seat) leave(g *metaGroup, version int64) error {
	if err := s.b.confirmLeft(ledger.MetadataGroup); err != nil {
		return err
	}
	s.group.Store(nil)
	if err := errors.Join(g.close(context.Background()), s.vacate(version)); err != nil {
		return err
	}
	s.b.log.Info("the metadata group has moved away and is forgotten here")
	return nil
}

// vacate removes what is left of a replica, once it is durable that there need not be one: a bookie that believes to hold a
// seat, and finds nothing there, does not start any more.
func (s *seat) vacate(version int64) error {
	if err := s.become(seatLeft, version); err != nil {
		return err
	}
	return forgetMetadata(s.b.opts.MetadataDir)
}

// forgetMetadata removes what openMetaGroup makes. The directory itself may be a volume.
func forgetMetadata(dir string) error {
	err := os.Remove(filepath.Join(dir, boltFile))
	if os.IsNotExist(err) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(dir, raftSnapshots)))
}

// close ends the replica.
func (s *seat) close(ctx context.Context) error {
	s.life.finish()
	if g := s.group.Load(); g != nil {
		return g.close(ctx)
	}
	return nil
}

// holdsMetadata says whether there is a replica of the metadata group in a directory.
func holdsMetadata(fs vfs.FS, dir string, c *clusterJSON) (bool, error) {
	s, err := readSeat(fs, dir, c)
	return s.State == seatHeld || s.State == seatJoining, err
}
