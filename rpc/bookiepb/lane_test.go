package bookiepb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"
)

// lanePair returns the two ends of a lane over TCP, greeted.
func lanePair(t testing.TB) (caller, other *Lane) {
	t.Helper()
	here, there := tcpPair(t)
	caller, other = NewLane(here), NewLane(there)
	answered := make(chan error, 1)
	go func() {
		answered <- other.Answer(&RaftHello{BookieId: "other"}, func(h *RaftHello) error {
			if h.GetBookieId() != "caller" {
				return errors.New("a stranger")
			}
			return nil
		})
	}()
	if h, err := caller.Call(&RaftHello{BookieId: "caller"}); err != nil || h.GetBookieId() != "other" {
		t.Fatalf("%v, %v", h, err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	return caller, other
}

func tcpPair(t testing.TB) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		here.Close()
		there.Close()
	})
	return here, there
}

// someCall has payloads of all sizes, some of which are sent by reference.
func someCall(rng *rand.Rand, id uint64) *RaftRequest {
	a := &AppendEntries{Header: &RaftHeader{ProtocolVersion: 3, Id: []byte("caller")}, Term: 3, PrevLogEntry: 9}
	for i := range rng.Intn(6) {
		data := make([]byte, 1+rng.Intn(1<<(1+rng.Intn(17))))
		rng.Read(data)
		a.Entries = append(a.Entries, &RaftLog{Index: uint64(10 + i), Term: 3, Data: data})
	}
	return &RaftRequest{Id: id, Group: 7, ClusterId: "test", Body: &RaftRequest_AppendEntries{AppendEntries: a}}
}

// TestLane: calls arrive as they were, however many are sent together, with pings between them; and so do answers.
func TestLane(t *testing.T) {
	caller, other := lanePair(t)
	rng := rand.New(rand.NewSource(1))
	for round := range 200 {
		var sent []*RaftRequest // nil: a ping
		size := 0
		for n := 1 + rng.Intn(5); len(sent) < n; {
			if rng.Intn(4) == 0 {
				caller.PutPing()
				sent, size = append(sent, nil), size+frameHead
				continue
			}
			m := someCall(rng, uint64(round))
			if err := caller.PutRequest(m); err != nil {
				t.Fatal(err)
			}
			sent, size = append(sent, m), size+frameHead+proto.Size(m)
		}
		if caller.Buffered() != size {
			t.Fatalf("%d bytes wait to be sent, should be %d", caller.Buffered(), size)
		}
		flushed := make(chan error, 1)
		go func() { flushed <- caller.Flush() }()
		for i, want := range sent {
			got, err := other.ReadRequest()
			if err != nil || (want == nil) != (got == nil) || want != nil && !proto.Equal(got, want) {
				t.Fatalf("message %d of round %d is another one, error %v", i, round, err)
			}
		}
		if err := <-flushed; err != nil {
			t.Fatal(err)
		}
		answer := &RaftResponse{Id: uint64(round), Full: true}
		other.PutPing()
		if err := errors.Join(other.PutResponse(answer), other.Flush()); err != nil {
			t.Fatal(err)
		}
		if m, err := caller.ReadResponse(); m != nil || err != nil {
			t.Fatalf("%v, %v is not the answer to a ping", m, err)
		}
		if got, err := caller.ReadResponse(); err != nil || !proto.Equal(got, answer) {
			t.Fatalf("%v, %v, want %v", got, err, answer)
		}
	}
}

// TestLaneAfterTooLarge: a call that is too large is left out, and what was put before and after it arrives.
func TestLaneAfterTooLarge(t *testing.T) {
	caller, other := lanePair(t)
	large := &RaftRequest{Id: 2, Body: &RaftRequest_AppendEntries{AppendEntries: &AppendEntries{
		Entries: []*RaftLog{{Index: 1, Data: make([]byte, MaxMessageSize)}},
	}}}
	first, last := &RaftRequest{Id: 1}, &RaftRequest{Id: 3}
	if err := caller.PutRequest(first); err != nil {
		t.Fatal(err)
	}
	before := caller.Buffered()
	if err := caller.PutRequest(large); !errors.Is(err, ErrTooLarge) || caller.Buffered() != before {
		t.Fatalf("%v, %d bytes buffered, %d before", err, caller.Buffered(), before)
	}
	if err := errors.Join(caller.PutRequest(last), caller.Flush()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []*RaftRequest{first, last} {
		if got, err := other.ReadRequest(); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
	}
}

// TestLaneRefuses: who is refused is told why, and what does not begin as a lane should is refused.
func TestLaneRefuses(t *testing.T) {
	here, there := tcpPair(t)
	no := errors.New("no")
	answered := make(chan error, 1)
	go func() { answered <- NewLane(there).Answer(&RaftHello{}, func(*RaftHello) error { return no }) }()
	if h, err := NewLane(here).Call(&RaftHello{BookieId: "x"}); err != nil || h.GetError() != "no" {
		t.Errorf("%v, %v", h, err)
	}
	if err := <-answered; !errors.Is(err, no) {
		t.Error(err)
	}
	if err := NewLane(strangeConn("\x00geminga raft 2\nand more")).Answer(&RaftHello{}, nil); err == nil {
		t.Error("another version is taken")
	}
}

// TestLaneHelloIsSmall: nobody gets memory for a hello that says it is large.
func TestLaneHelloIsSmall(t *testing.T) {
	for _, n := range []uint32{laneHello + 1, laneTrust, MaxMessageSize, 1<<32 - 1} {
		head := string(binary.LittleEndian.AppendUint32(nil, n))
		lane := NewLane(strangeConn(LaneMagic + head))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := lane.Answer(&RaftHello{}, func(*RaftHello) error { return nil })
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrTooLarge) || after.TotalAlloc-before.TotalAlloc > laneHello {
			t.Errorf("%d bytes: %v, %d were allocated", n, err, after.TotalAlloc-before.TotalAlloc)
		}
		if _, err := NewLane(strangeConn(head)).Call(&RaftHello{BookieId: "a"}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes in answer: %v", n, err)
		}
	}
}

// strangeConn is a connection from which only this comes.
type strange struct {
	net.Conn
	from io.Reader
}

func strangeConn(s string) net.Conn { return strange{from: bytes.NewReader([]byte(s))} }

func (s strange) Read(p []byte) (int, error)  { return s.from.Read(p) }
func (s strange) Write(p []byte) (int, error) { return len(p), nil }

// TestLaneMalformed: a length is not believed before its bytes have come, and what is cut short is an error.
func TestLaneMalformed(t *testing.T) {
	frame := func(n uint32, body string) string {
		return string(binary.LittleEndian.AppendUint32(nil, n)) + body
	}
	for name, c := range map[string]struct {
		bytes string
		want  error
	}{
		"nothing":            {"", io.EOF},
		"half a length":      {"\x01\x00", io.ErrUnexpectedEOF},
		"no body":            {frame(5, ""), io.ErrUnexpectedEOF},
		"half a body":        {frame(5, "\x08"), io.ErrUnexpectedEOF},
		"a large one, cut":   {frame(MaxMessageSize, "\x08"), io.ErrUnexpectedEOF},
		"larger than may be": {frame(MaxMessageSize+1, "\x08"), ErrTooLarge},
		"the largest number": {frame(1<<32-1, "\x08"), ErrTooLarge},
	} {
		lane := NewLane(strangeConn(c.bytes))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := lane.ReadRequest()
		runtime.ReadMemStats(&after)
		if m != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > laneTrust+64<<10 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
	if _, err := NewLane(strangeConn(frame(2, "\xff\xff"))).ReadRequest(); err == nil {
		t.Error("nonsense is read as a call")
	}
	if _, err := NewLane(strangeConn(frame(2, "\xff\xff"))).ReadResponse(); err == nil {
		t.Error("nonsense is read as an answer")
	}
}

// TestLaneLarge: what is above laneTrust arrives whole.
func TestLaneLarge(t *testing.T) {
	caller, other := lanePair(t)
	data := make([]byte, 3*laneTrust+17)
	rand.New(rand.NewSource(2)).Read(data)
	want := &RaftRequest{Id: 1, Body: &RaftRequest_AppendEntries{AppendEntries: &AppendEntries{Entries: []*RaftLog{{Index: 1, Data: data}}}}}
	flushed := make(chan error, 1)
	go func() { flushed <- errors.Join(caller.PutRequest(want), caller.Flush()) }()
	if got, err := other.ReadRequest(); err != nil || !proto.Equal(got, want) {
		t.Fatalf("another one arrives, error %v", err)
	}
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
}

// BenchmarkLane sends calls with one entry and waits for each answer.
func BenchmarkLane(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 512 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			caller, other := lanePair(b)
			go func() {
				for {
					m, err := other.ReadRequest()
					if err != nil || errors.Join(other.PutResponse(&RaftResponse{Id: m.GetId()}), other.Flush()) != nil {
						return
					}
				}
			}()
			m := &RaftRequest{Id: 1, ClusterId: "test", Body: &RaftRequest_AppendEntries{AppendEntries: &AppendEntries{
				Entries: []*RaftLog{{Index: 1, Term: 1, Data: make([]byte, size)}},
			}}}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := errors.Join(caller.PutRequest(m), caller.Flush()); err != nil {
					b.Fatal(err)
				}
				if _, err := caller.ReadResponse(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
