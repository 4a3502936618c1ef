package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

func sampleCommands() []Command {
	return []Command{
		{Op: OpCreate, Ledger: 1, Epoch: 2},
		{Op: OpAppend, Ledger: 1 << 60, Epoch: 1<<63 + 5, First: 7, Count: 3, Body: testBody(1, 7, 3, "x")},
		{Op: OpAppend, Ledger: 3, Epoch: 4, First: 0, Count: 1, Body: AppendEntry(nil, nil)},
		{Op: OpFence, Ledger: 1, Epoch: 9},
		{Op: OpClose, Ledger: 1, Epoch: 9, Last: NoEntry},
		{Op: OpClose, Ledger: 1, Epoch: 9, Last: 12},
		{Op: OpDelete, Ledger: 1},
	}
}

func TestCommandsRoundTrip(t *testing.T) {
	var wire []byte
	for _, c := range sampleCommands() {
		before := len(wire)
		wire = c.AppendTo(wire)
		if len(wire)-before != c.EncodedLen() {
			t.Errorf("%s: %d bytes, announced %d", &c, len(wire)-before, c.EncodedLen())
		}
	}
	rest := wire
	for _, want := range sampleCommands() {
		var got Command
		var err error
		if got, rest, err = NextCommand(rest); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if err := got.CheckBody(); err != nil {
			t.Error(err)
		}
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes left", len(rest))
	}
}

// The bytes are a format: old logs must stay readable.
func TestCommandBytes(t *testing.T) {
	c := Command{Op: OpAppend, Ledger: 0x0102, Epoch: 3, First: 4, Count: 1, Body: AppendEntry(nil, []byte("abc"))}
	want := "01" + "0000000000000102" + "0000000000000003" + "0000000000000004" + "00000001" + "0000000b" + "00000003" + "364b3fb7" + "616263"
	if got := fmt.Sprintf("%x", c.AppendTo(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	c = Command{Op: OpClose, Ledger: 1, Epoch: 2, Last: -1}
	if got, want := fmt.Sprintf("%x", c.AppendTo(nil)), "04"+"0000000000000001"+"0000000000000002"+"ffffffffffffffff"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBrokenCommands(t *testing.T) {
	for _, c := range sampleCommands() {
		wire := c.AppendTo(nil)
		for n := range wire {
			if _, _, err := NextCommand(wire[:n]); !errors.Is(err, ErrBadCommand) {
				t.Errorf("%s cut to %d: %v", &c, n, err)
			}
		}
	}
	appendOf := func(first EntryID, count, bodyLen int) []byte {
		return append(PutAppendHeader(nil, 1, 1, first, count, bodyLen), make([]byte, 64)...)
	}
	for name, wire := range map[string][]byte{
		"unknown op":         append([]byte{9}, make([]byte, 40)...),
		"no entries":         appendOf(0, 0, 8),
		"huge count":         appendOf(0, 1<<32-1, 64),
		"more than fit":      appendOf(0, 9, 64),
		"huge body":          appendOf(0, 1, 1<<32-1),
		"negative entry":     appendOf(-1, 1, 8),
		"entry id overflow":  appendOf(1<<63-2, 2, 64),
		"close before start": (&Command{Op: OpClose, Last: -2}).AppendTo(nil),
	} {
		if _, _, err := NextCommand(wire); !errors.Is(err, ErrBadCommand) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBrokenBodies(t *testing.T) {
	good := testBody(1, 0, 2, "")
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]Command{
		"flipped bit":    {Op: OpAppend, Count: 2, Body: flipped},
		"too few":        {Op: OpAppend, Count: 3, Body: good},
		"too many":       {Op: OpAppend, Count: 1, Body: good},
		"cut":            {Op: OpAppend, Count: 2, Body: good[:len(good)-1]},
		"length past it": {Op: OpAppend, Count: 1, Body: []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1}},
	} {
		if err := c.CheckBody(); !errors.Is(err, ErrBadCommand) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := NextEntry(flipped[len(good)/2:]); !errors.Is(err, ErrUnreadable) {
		t.Errorf("flipped entry: %v", err)
	}
}

func TestSnapshotIsChecked(t *testing.T) {
	m := NewMachine()
	for _, c := range sampleCommands()[:4] {
		m.Apply(&c)
	}
	m.Apply(&Command{Op: OpCreate, Ledger: 2, Epoch: 2})
	good := m.AppendSnapshot([]byte("prefix"))[len("prefix"):]
	if err := NewMachine().Restore(good); err != nil {
		t.Fatal(err)
	}
	target := NewMachine()
	target.Apply(&Command{Op: OpCreate, Ledger: 77, Epoch: 1})
	for i := range good {
		for _, bad := range [][]byte{good[:i], flip(good, i)} {
			if err := target.Restore(bad); !errors.Is(err, ErrUnreadable) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
	if _, ok := target.State(77); !ok || target.Len() != 1 {
		t.Error("a failed restore changed the machine")
	}
	// A right checksum over an impossible state is refused, too.
	broken := NewMachine()
	broken.ledgers[1] = &State{Owner: 5, Epoch: 1, Last: NoEntry, Summed: NoEntry}
	if err := target.Restore(broken.AppendSnapshot(nil)); !errors.Is(err, ErrUnreadable) {
		t.Errorf("impossible state: %v", err)
	}
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 0x40
	return b
}

// Whatever comes in, decoding neither panics nor reads beyond the input, what decodes encodes to the same bytes, and
// what passes CheckBody is accepted by the machine.
func FuzzNextCommand(f *testing.F) {
	for _, c := range sampleCommands() {
		f.Add(c.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := NewMachine()
		for rest := b; len(rest) > 0; {
			c, next, err := NextCommand(rest)
			if err != nil {
				if !errors.Is(err, ErrBadCommand) {
					t.Fatal(err)
				}
				return
			}
			used := rest[:len(rest)-len(next)]
			if got := c.AppendTo(nil); !bytes.Equal(got, used) {
				t.Fatalf("%x encodes to %x", used, got)
			}
			m.Apply(&Command{Op: OpCreate, Ledger: c.Ledger, Epoch: c.Epoch})
			bodyErr := c.CheckBody()
			res, change := applyChecked(t, m, &c)
			if bodyErr == nil && errors.Is(res.Err, ErrBadCommand) {
				t.Fatalf("%s: the machine refuses a good body", &c)
			}
			if change.Appended && bodyErr != nil && !errors.Is(bodyErr, ErrUnreadable) {
				t.Fatalf("%s: the machine takes a broken body: %v", &c, bodyErr)
			}
			rest = next
		}
	})
}

func BenchmarkCommands(b *testing.B) {
	for _, size := range []int{128, 1024} {
		const count = 128
		payload := make([]byte, size)
		body := make([]byte, 0, count*FramedLen(size))
		wire := make([]byte, 0, AppendHeaderLen+cap(body))
		encode := func() {
			body = body[:0]
			for range count {
				body = AppendEntry(body, payload)
			}
			wire = append(PutAppendHeader(wire[:0], 1, 1, 0, count, len(body)), body...)
		}
		encode()
		run := func(name string, fn func()) {
			b.Run(fmt.Sprintf("%s/size=%d/count=%d", name, size, count), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					fn()
				}
			})
		}
		run("encode", encode)
		run("decode", func() {
			if _, _, err := NextCommand(wire); err != nil {
				b.Fatal(err)
			}
		})
		c, _, _ := NextCommand(wire)
		run("check", func() {
			if err := c.CheckBody(); err != nil {
				b.Fatal(err)
			}
		})
		m := NewMachine()
		m.Apply(&Command{Op: OpCreate, Ledger: 1, Epoch: 1})
		run("apply", func() {
			if res, _ := m.Apply(&c); res.Err != nil {
				b.Fatal(res.Err)
			}
			c.First += EntryID(c.Count)
		})
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	payload := make([]byte, 100)
	wire := make([]byte, 0, 1<<10)
	m := NewMachine()
	m.Apply(&Command{Op: OpCreate, Ledger: 1, Epoch: 1})
	first := EntryID(0)
	if n := testing.AllocsPerRun(100, func() {
		wire = PutAppendHeader(wire[:0], 1, 1, first, 2, 2*FramedLen(len(payload)))
		wire = AppendEntry(wire, payload)
		wire = append(AppendEntryHeader(wire, payload), payload...)
		c, _, err := NextCommand(wire)
		if err != nil || c.CheckBody() != nil {
			t.Fatal(err)
		}
		if res, _ := m.Apply(&c); res.Err != nil {
			t.Fatal(res.Err)
		}
		first += 2
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
