package ledgers

import (
	"bytes"
	"encoding/json"
	"fmt"

	"geminga/pkg/ledger"
)

// Tool runs a command of bookied that looks into the data directory of one bookie, and returns what it printed.
type Tool func(args ...string) ([]byte, error)

// Directory is a data directory that no process uses.
type Directory struct {
	Name string
	Tool Tool
}

// held is what bookied inspect says of a ledger.
type held struct {
	Group    ledger.GroupID
	Ledger   ledger.ID
	Last     ledger.EntryID
	Closed   bool
	Checksum string
	Summed   ledger.EntryID
	Bytes    int64
	Complete bool
}

// CheckDirectories compares the directories of all bookies with what was written and with each other: undamaged, every
// ledger in as many of them as there are replicas, closed where it was closed, with one checksum. It returns how many
// copies of ledgers it compared. sample ledgers are read entry by entry.
func (g *Log) CheckDirectories(dirs []Directory, wanted, sample int) (copies int, err error) {
	have, where := map[ledger.ID][]held{}, map[ledger.ID][]Directory{}
	for _, d := range dirs {
		if out, err := d.Tool("verify"); err != nil {
			g.fault(fmt.Errorf("%s: bookied verify: %w\n%s", d.Name, err, out))
		}
		list, err := d.ledgers()
		if err != nil {
			return copies, err
		}
		for _, h := range list {
			if !h.Complete {
				g.fault(fmt.Errorf("%s: ledger %d in group %d: the group's log is not complete", d.Name, h.Ledger, h.Group))
			}
			have[h.Ledger], where[h.Ledger] = append(have[h.Ledger], h), append(where[h.Ledger], d)
			copies++
		}
	}
	every := max(1, len(g.Ledgers())/max(1, sample))
	for i, l := range g.Ledgers() {
		g.fault(l.compare(have[l.ID], wanted))
		delete(have, l.ID)
		if !l.deleted && i%every == 0 {
			for _, d := range where[l.ID] {
				g.fault(d.dump(l))
			}
		}
	}
	for id, rest := range have { // of a create that was not answered; nobody has written to it
		if rest[0].Summed != ledger.NoEntry {
			g.fault(fmt.Errorf("ledger %d, which nobody made, has entries: %+v", id, rest))
		}
	}
	return copies, g.Err()
}

func (d Directory) ledgers() (out []held, err error) {
	b, err := d.Tool("inspect", "ledgers", "--json")
	if err != nil {
		return nil, fmt.Errorf("%s: bookied inspect: %w\n%s", d.Name, err, b)
	}
	for dec := json.NewDecoder(bytes.NewReader(b)); dec.More(); {
		var h held
		if err := dec.Decode(&h); err != nil {
			return nil, fmt.Errorf("%s: bookied inspect: %w", d.Name, err)
		}
		out = append(out, h)
	}
	return out, nil
}

func (l *Ledger) compare(have []held, wanted int) error {
	if l.deleted {
		if len(have) > 0 {
			return fmt.Errorf("%v was deleted: %+v", l.Ref, have)
		}
		return nil
	}
	if len(have) != wanted {
		return fmt.Errorf("%v is in %d directories, %d are wanted: %+v", l.Ref, len(have), wanted, have)
	}
	for _, h := range have {
		if h != have[0] || h.Group != l.Group || !h.Closed || h.Last != l.last {
			return fmt.Errorf("%v, closed at %d: copies differ: %+v", l.Ref, l.last, have)
		}
	}
	return nil
}

// dump reads a ledger in one directory.
func (d Directory) dump(l *Ledger) error {
	b, err := d.Tool("dump", "--json", "--ledger", fmt.Sprint(l.ID))
	if err != nil {
		return fmt.Errorf("%s: bookied dump of %v: %w\n%.2000s", d.Name, l.Ref, err, b)
	}
	next := ledger.EntryID(0)
	for dec := json.NewDecoder(bytes.NewReader(b)); dec.More(); next++ {
		var e struct {
			Entry   ledger.EntryID
			Payload []byte
		}
		if err := dec.Decode(&e); err != nil {
			return fmt.Errorf("%s: bookied dump of %v: %w", d.Name, l.Ref, err)
		}
		if e.Entry != next || next > l.last {
			return fmt.Errorf("%s: bookied dump of %v, closed at %d: entry %d where %d is expected", d.Name, l.Ref, l.last, e.Entry, next)
		}
		if err := l.stamp(next).compare(e.Payload); err != nil {
			return fmt.Errorf("%s: bookied dump: %w", d.Name, err)
		}
	}
	if next != l.last+1 {
		return fmt.Errorf("%s: bookied dump of %v ends before entry %d, it was closed at %d", d.Name, l.Ref, next, l.last)
	}
	return nil
}
