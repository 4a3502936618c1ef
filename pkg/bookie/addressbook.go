package bookie

import (
	"encoding/json"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"geminga/pkg/metadata"
	"geminga/pkg/vfs"
)

// peersFile keeps what was last known of the other bookies, so that after a restart of everything a bookie finds its
// peers, and recognizes a wiped one, before there is a metadata leader to ask.
const peersFile = "peers.json"

// addressBook says where the bookies listen and which instance each is. It follows the keys below /bookies/.
type addressBook struct {
	fs   vfs.FS
	path string
	log  *slog.Logger

	mu    sync.RWMutex
	peers map[string]metadata.BookieInfo
}

// openAddressBook starts from the members of the metadata group and what was known before.
func openAddressBook(fs vfs.FS, dir string, members []Member, log *slog.Logger) *addressBook {
	a := &addressBook{fs: fs, path: filepath.Join(dir, peersFile), log: log, peers: map[string]metadata.BookieInfo{}}
	for _, m := range members {
		a.peers[m.ID] = metadata.BookieInfo{ID: m.ID, Address: m.Address}
	}
	known := map[string]metadata.BookieInfo{}
	b, err := readFile(fs, a.path)
	if err == nil {
		err = json.Unmarshal(b, &known)
	}
	if err != nil && !isNotExist(err) {
		log.Warn("cannot read the list of peers; it is made again", "file", a.path, "error", err)
		return a
	}
	maps.Copy(a.peers, known)
	return a
}

func (a *addressBook) address(id string) (string, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	p, ok := a.peers[id]
	return p.Address, ok && p.Address != ""
}

// ids returns all bookies that are known, sorted.
func (a *addressBook) ids() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Sorted(maps.Keys(a.peers))
}

// known reports whether there is a bookie of this id.
func (a *addressBook) known(id string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, ok := a.peers[id]
	return ok
}

// instance returns the registered instance of a bookie, if it is known.
func (a *addressBook) instance(id string) (string, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	p, ok := a.peers[id]
	return p.Instance, ok && p.Instance != ""
}

// update takes registrations over and writes them down when they are news. A bookie that leaves /bookies/ stays
// known: nothing else may come under its id.
func (a *addressBook) update(infos []metadata.BookieInfo) {
	a.mu.Lock()
	news := false
	for _, info := range infos {
		if a.peers[info.ID] != info {
			a.peers[info.ID] = info
			news = true
		}
	}
	b, err := json.MarshalIndent(a.peers, "", "  ")
	a.mu.Unlock()
	if !news {
		return
	}
	if err == nil {
		err = writeFile(a.fs, a.path, b)
	}
	if err != nil {
		a.log.Warn("cannot write the list of peers", "file", a.path, "error", err)
	}
}
