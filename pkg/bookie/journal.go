package bookie

import (
	"fmt"
	"path/filepath"

	"geminga/pkg/journal"
)

// journalFile is in the data directory from the moment at which its journal exists. The journal may be on another disk,
// which can be lost, or not be mounted, while cluster.json is still there; begun anew under the old identity, it would
// have forgotten votes and acknowledged entries, and nobody could tell.
//
//	                        journal is there           journal is not there
//	no journalFile          first start that crashed   first start
//	journalFile             any other start            refused
const journalFile = "journal.begun"

// beginJournal opens the journal, and a new one only once in the life of a data directory.
func beginJournal(o *Options) (*journal.Journal, error) {
	mark := filepath.Join(o.DataDir, journalFile)
	_, err := readFile(o.FS, mark)
	if err != nil && !isNotExist(err) {
		return nil, err
	}
	begun := err == nil
	there, err := journal.Exists(o.FS, o.Journal.Dir)
	if err != nil {
		return nil, err
	}
	if begun && !there {
		return nil, fmt.Errorf("%w: it is gone; mount or name the directory that holds it. "+
			"A bookie that lost its journal comes back under a new id", ErrDamaged)
	}
	j, err := journal.Open(o.journalOptions())
	if err != nil || begun {
		return j, err
	}
	if err := writeFile(o.FS, mark, nil); err != nil {
		return j, err
	}
	return j, nil
}
