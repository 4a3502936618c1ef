package bookie

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
)

// written is what a metaLog of the tests holds.
func written() []*raft.Log {
	var logs []*raft.Log
	for i := range 40 {
		logs = append(logs, &raft.Log{
			Index: uint64(i + 1), Term: uint64(i/10 + 1), Type: raft.LogCommand, Data: bytes.Repeat([]byte(fmt.Sprintf("entry %d;", i)), i+1),
		})
	}
	return logs
}

const testTerm = 0x1122334455667788

// look compares what can be read with what was written: the same, or damage.
func look(t *testing.T, dir string) (damaged bool) {
	s, err := openBolt(dir)
	if err != nil {
		return true // bbolt has noticed
	}
	defer func() { _ = s.Close() }() // it was not written to
	noticed := func(err error) bool {
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%v is not ErrDamaged", err)
		}
		return err != nil
	}
	for _, want := range written() {
		var got raft.Log
		err := s.GetLog(want.Index, &got)
		if err == raft.ErrLogNotFound { // the library compares so, too
			damaged = true // raft fails the replica when an entry between the first and the last is missing
			continue
		}
		if noticed(err) {
			damaged = true
			continue
		}
		if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) || len(got.Extensions) > 0 {
			t.Errorf("entry %d reads as %+v", want.Index, got)
		}
	}
	switch term, err := s.GetUint64([]byte(termKey)); {
	case noticed(err):
		damaged = true
	case term != testTerm:
		t.Errorf("term reads as %x", term)
	}
	return damaged
}

// Bits are flipped in what bbolt keeps of entries and values, one at a time: none changes what is read, and those that say
// something are noticed.
// Flips in keys and page headers are left to bbolt, which ends the process when it opens such a file.
func TestMetaLogNoticesFlips(t *testing.T) {
	dir := t.TempDir()
	s, err := openBolt(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.StoreLogs(written()), s.Set([]byte("candidate"), []byte("a")), s.SetUint64([]byte(termKey), testTerm), s.Close()); err != nil {
		t.Fatal(err)
	}
	if look(t, dir) {
		t.Fatal("damaged as it was written")
	}
	path := filepath.Join(dir, boltFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	term := bytes.Index(whole, []byte{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88})
	if term < 0 {
		t.Fatal("the term is not found")
	}
	type place struct {
		at   int
		must bool // it says something: it has to be noticed
	}
	places := []place{{term, true}, {term + 7, true}, {term + 8, true}, {term + 11, true}}
	for _, log := range written() { // names and values, as the library encodes them, the data before index, term and type
		data := bytes.Index(whole, log.Data)
		if data < 0 {
			t.Fatalf("entry %d is not found", log.Index)
		}
		for range 4 {
			places = append(places, place{data + rng.IntN(len(log.Data)), true}, place{data + len(log.Data) + rng.IntN(35), false})
		}
	}
	noticed := 0
	for _, p := range places {
		b := bytes.Clone(whole)
		b[p.at] ^= 1 << rng.IntN(8)
		other := t.TempDir()
		if err := os.WriteFile(filepath.Join(other, boltFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if look(t, other) {
			noticed++
		} else if p.must {
			t.Errorf("the flip at %d was not noticed", p.at)
		}
	}
	t.Logf("%d flips of %d noticed, the others changed nothing", noticed, len(places))
}

// Nothing of the checksums is to be seen above, and entries without them are not believed.
func TestMetaLogHandsNothingOn(t *testing.T) {
	s, err := openBolt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // the test is over
	want := raft.Log{Index: 1, Term: 1, Data: []byte("x")}
	kept := want
	if err := s.StoreLog(&want); err != nil {
		t.Fatal(err)
	}
	var got raft.Log
	if err := s.GetLog(1, &got); err != nil || !reflect.DeepEqual(want, kept) || len(got.Extensions) > 0 {
		t.Errorf("%+v became %+v; read: %+v, %v", kept, want, got, err)
	}
	if err := s.bolt.StoreLog(&raft.Log{Index: 2, Term: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.GetLog(2, &got); !errors.Is(err, ErrDamaged) {
		t.Errorf("an entry without a checksum: %v", err)
	}
	if _, err := s.Get([]byte("nothing")); err == nil || err.Error() != "not found" { // raft looks at the text
		t.Errorf("a value that is not there: %v", err)
	}
}
