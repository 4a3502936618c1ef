package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func sampleTxn() Txn {
	return Txn{}.If("/a", 0).If("/b", 1<<40).
		Then(Put("/a", []byte("value")), Put("/empty", []byte{}), Delete("/b"), Add("/c", -5), Add("/d", 1<<62))
}

func TestTxnRoundTrip(t *testing.T) {
	for _, txn := range []Txn{{}, sampleTxn(), Txn{}.If("/x", 3), Txn{}.Then(Delete("/x"))} {
		got, err := DecodeTxn(txn.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, txn) {
			t.Errorf("got %+v\nwant %+v", got, txn)
		}
	}
}

// The bytes are a format: old logs must stay readable.
func TestTxnBytes(t *testing.T) {
	txn := Txn{}.If("/a", 1).Then(Put("/b", []byte("v")), Delete("/c"), Add("/d", -1))
	want := "01" + "01" + "022f61" + "02" + "03" + "01022f62" + "0176" + "02022f63" + "03022f64" + "01"
	if got := fmt.Sprintf("%x", txn.Encode()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBrokenTxns(t *testing.T) {
	sample := sampleTxn()
	good := sample.Encode()
	for n := range good {
		if _, err := DecodeTxn(good[:n]); !errors.Is(err, ErrBadTxn) {
			t.Errorf("cut to %d: %v", n, err)
		}
	}
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}
	for name, b := range map[string][]byte{
		"trailing byte": append(bytes.Clone(good), 0),
		"other version": append([]byte{2}, good[1:]...),
		"huge count":    append([]byte{1}, huge...),
		"huge ops":      append([]byte{1, 0}, huge...),
		"huge key":      append([]byte{1, 1}, huge...),
		"huge value":    append([]byte{1, 0, 1, 1, 2, '/', 'a'}, huge...),
		"unknown op":    {1, 0, 1, 9, 2, '/', 'a'},
		"empty key":     {1, 0, 1, 2, 0},
		"no UTF-8":      {1, 0, 1, 2, 2, '/', 0xff},
		"bad condition": {1, 1, 2, '/', 'a', 1, 0},
	} {
		if _, err := DecodeTxn(b); !errors.Is(err, ErrBadTxn) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLimits(t *testing.T) {
	big := make([]byte, MaxValueSize)
	for name, c := range map[string]struct {
		txn  Txn
		want error
	}{
		"largest value":  {Txn{}.Then(Put("/a", big)), nil},
		"value too big":  {Txn{}.Then(Put("/a", append(big, 0))), ErrTooLarge},
		"all too big":    {Txn{}.Then(Put("/a", big), Put("/b", big)), ErrTooLarge},
		"key too big":    {Txn{}.Then(Delete("/" + strings.Repeat("k", MaxKeySize))), ErrTooLarge},
		"too many parts": {Txn{Conditions: make([]Condition, MaxTxnParts+1)}, ErrTooLarge},
		"put with delta": {Txn{Ops: []Operation{{Kind: OpPut, Key: "/a", Delta: 1}}}, ErrBadTxn},
	} {
		if err := c.txn.Validate(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		out, _ := NewMachine().Apply(c.txn)
		if !errors.Is(out.Err, c.want) {
			t.Errorf("%s: applied with %v", name, out.Err)
		}
	}
}

func TestSnapshotIsChecked(t *testing.T) {
	m := NewMachine()
	m.Apply(Txn{}.Then(Put("/a", []byte("1")), Put("/b", nil)))
	m.Apply(Txn{}.Then(Put("/a", []byte("2"))))
	good := m.AppendSnapshot([]byte("prefix"))[len("prefix"):]
	target := NewMachine()
	if err := target.Restore(good); err != nil || target.Len() != 2 || target.Revision() != 2 {
		t.Fatalf("%v, %d keys at %d", err, target.Len(), target.Revision())
	}
	for i := range good {
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x10
		for _, bad := range [][]byte{good[:i], flipped} {
			if err := target.Restore(bad); !errors.Is(err, ErrBadSnapshot) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
	if target.Len() != 2 {
		t.Error("a failed restore changed the machine")
	}
}

// Whatever comes in, decoding neither panics nor trusts a count; what decodes is stable, and the machine takes it.
func FuzzDecodeTxn(f *testing.F) {
	sample := sampleTxn()
	f.Add(sample.Encode())
	f.Add((&Txn{}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		txn, err := DecodeTxn(b)
		if err != nil {
			if !errors.Is(err, ErrBadTxn) && !errors.Is(err, ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeTxn(txn.Encode())
		if err != nil || !reflect.DeepEqual(again, txn) {
			t.Fatalf("%+v becomes %+v: %v", txn, again, err)
		}
		m := NewMachine()
		out, events := m.Apply(txn)
		if (out.Err == nil) != (len(out.Versions) == len(txn.Ops)) && len(txn.Ops) > 0 || (out.Err != nil && len(events) > 0) {
			t.Fatalf("%+v: %+v", txn, out)
		}
	})
}
