package protocol

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

// What is put in front of an entry is what the generated code reads, and leaves the entry and its checksum as they were.
func TestBrokerEntry(t *testing.T) {
	entry, err := AppendSection(nil, testMetadata(), []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []BrokerEntry{
		{}, {HasIndex: true}, {Timestamp: 1_700_000_000_000, HasTimestamp: true},
		{Timestamp: math.MaxUint64, HasTimestamp: true, Index: math.MaxUint64, HasIndex: true},
	} {
		front := AppendBrokerEntry(nil, e)
		if len(front) > BrokerEntrySize {
			t.Errorf("%+v takes %d bytes", e, len(front))
		}
		whole := append(bytes.Clone(front), entry...)
		if !bytes.Equal(CutBrokerEntry(whole), entry) || !bytes.Equal(CutBrokerEntry(entry), entry) {
			t.Errorf("%+v: the entry is not what it was", e)
		}
		var s Section
		if err := s.Parse(whole); err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
		var got BrokerEntry
		if err := got.Parse(s.BrokerEntry); err != nil || got != e {
			t.Errorf("%+v (%v), expected %+v", got, err, e)
		}
		var m pulsarpb.BrokerEntryMetadata
		if err := proto.Unmarshal(s.BrokerEntry, &m); err != nil {
			t.Fatal(err)
		}
		if m.GetIndex() != e.Index || m.GetBrokerTimestamp() != e.Timestamp || (m.Index != nil) != e.HasIndex || (m.BrokerTimestamp != nil) != e.HasTimestamp {
			t.Errorf("%v, expected %+v", &m, e)
		}
		for n := range len(front) {
			if got := CutBrokerEntry(whole[:n]); !bytes.Equal(got, whole[:n]) {
				t.Errorf("%d bytes of a cut entry become %d", n, len(got))
			}
		}
	}
	if err := new(BrokerEntry).Parse([]byte{8}); err == nil {
		t.Error("a field that is cut off passes")
	}
}
