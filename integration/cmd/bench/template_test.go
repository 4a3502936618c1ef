package main

import (
	"testing"
	"time"

	"geminga/pkg/protocol"
)

// What the template gives must be what a broker would accept, with the values in it.
func TestTemplate(t *testing.T) {
	tmpl, err := newTemplate(7, 16)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []message{{0, 0, 0}, {1, 12, 345 * time.Second}, {70_000_000, 99_999_999, 1}} {
		var f protocol.Frame
		var send protocol.Send
		var section protocol.Section
		var meta protocol.Metadata
		if err := f.Parse(tmpl.appendTo(nil, want)); err != nil {
			t.Fatal(err)
		}
		if err := send.Decode(f.Body); err != nil {
			t.Fatal(err)
		}
		stamp, err := stampOf(&f, &section)
		if err != nil {
			t.Fatal(err)
		}
		if err := section.Verify(); err != nil {
			t.Error(err)
		}
		if err := meta.Parse(section.Metadata); err != nil {
			t.Fatal(err)
		}
		key := 0
		for _, c := range meta.PartitionKey {
			key = 10*key + int(c-'0')
		}
		if got := (message{int(send.SequenceID) - firstSequence, key, stamp}); got != want || send.ProducerID != 7 || len(section.Body) != 16 {
			t.Errorf("got %+v, producer %d, %d bytes; want %+v", got, send.ProducerID, len(section.Body), want)
		}
	}
	if _, err := newTemplate(1, stampSize-1); err == nil {
		t.Error("a payload without room for the time")
	}
}

func TestTemplateDoesNotAllocate(t *testing.T) {
	tmpl, err := newTemplate(1, 128)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { tmpl.appendTo(buf, message{1, 2, 3}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
