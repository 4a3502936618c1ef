package bookiepb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/protobuf/proto"
)

// LaneMagic begins a connection that is a lane. Its first byte begins neither HTTP/2 nor TLS, so it tells lanes from the
// other connections to a bookie's port.
const LaneMagic = "\x00geminga raft 1\n"

const (
	frameHead = 4        // bytes of a frame's length
	laneRead  = 64 << 10 // bytes of one read, unless a message wants more
	laneKeep  = 1 << 20  // bytes of the write buffer that outlive a flush
	laneTrust = 4 << 20  // up to this size a message's length is believed before its bytes have come
	laneHello = 4 << 10  // bytes of a hello, which anybody may send
)

// ErrTooLarge says that a message is larger than it may be, or that its frame says so.
var ErrTooLarge = errors.New("bookiepb: message too large")

// Lane is one end of a connection that carries the calls of Raft (RaftRequest) one way and their answers (RaftResponse) the
// other, in this form:
//
//	caller     magic, hello    { length, little endian │ message }, length 0: ping
//	other end         hello    { length                │ message }, length 0: answer to a ping
//
// It is not gRPC because of what gRPC does to large messages: frames of 16 KiB, two copies of every byte at each end and a
// wiped buffer (decision 027). Here a payload goes from where it is kept to the socket, and from the socket into the
// buffer that it is kept in.
//
// One goroutine may write (Put… and Flush) while another reads.
type Lane struct {
	conn net.Conn
	in   *bufio.Reader
	head [frameHead]byte

	out  []byte
	cuts []bodyRef // payloads between the bytes of out
	refs int       // their bytes
	vec  net.Buffers
}

// NewLane returns the lane on a connection, which stays the caller's to close.
func NewLane(conn net.Conn) *Lane {
	return &Lane{conn: conn, in: bufio.NewReaderSize(conn, laneRead)}
}

// Call begins a lane: it says who calls and returns what the other end says of itself.
func (l *Lane) Call(self *RaftHello) (*RaftHello, error) {
	l.out = append(l.out, LaneMagic...)
	return l.greet(self, nil)
}

// Answer is the other end of Call. What judge says of the caller is told to it, and returned if it is not nil.
func (l *Lane) Answer(self *RaftHello, judge func(*RaftHello) error) error {
	magic := make([]byte, len(LaneMagic))
	if _, err := io.ReadFull(l.in, magic); err != nil {
		return err
	}
	if string(magic) != LaneMagic {
		return fmt.Errorf("bookiepb: a lane begins with %q", magic)
	}
	_, err := l.greet(self, judge)
	return err
}

// greet exchanges hellos; with a judge the other end's comes first.
func (l *Lane) greet(self *RaftHello, judge func(*RaftHello) error) (*RaftHello, error) {
	if judge == nil {
		if err := errors.Join(l.put(self), l.Flush()); err != nil {
			return nil, err
		}
	}
	b, err := l.read(laneHello)
	if err != nil {
		return nil, err
	}
	other := &RaftHello{}
	if err := proto.Unmarshal(b, other); err != nil {
		return nil, err
	}
	if judge == nil {
		return other, nil
	}
	if err = judge(other); err != nil {
		self = &RaftHello{Error: err.Error()}
	}
	return other, errors.Join(err, l.put(self), l.Flush())
}

// PutRequest adds a call to what the next Flush sends. Its payloads must not change until then. ErrTooLarge says that it was left
// out, and the lane is as before.
func (l *Lane) PutRequest(m *RaftRequest) (err error) {
	return l.frame(func() error {
		l.out, l.cuts, err = appendRaftRequest(l.out, l.cuts, m)
		return err
	})
}

// PutResponse adds an answer to what the next Flush sends.
func (l *Lane) PutResponse(m *RaftResponse) error { return l.put(m) }

// PutPing adds a ping, or the answer to one.
func (l *Lane) PutPing() { l.out = append(l.out, 0, 0, 0, 0) }

func (l *Lane) put(m proto.Message) (err error) {
	return l.frame(func() error {
		l.out, err = proto.MarshalOptions{}.MarshalAppend(l.out, m)
		return err
	})
}

// frame puts a length before what encode appends, or takes all of it back.
func (l *Lane) frame(encode func() error) error {
	start, cuts := len(l.out), len(l.cuts)
	l.PutPing() // four bytes
	err := encode()
	refs := 0
	for _, c := range l.cuts[cuts:] {
		refs += len(c.data)
	}
	size := len(l.out) - start - frameHead + refs
	switch {
	case err != nil:
	case size == 0:
		err = errors.New("bookiepb: an empty message would be a ping")
	case size > MaxMessageSize:
		err = fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
	}
	if err != nil {
		l.out, l.cuts = l.out[:start], l.cuts[:cuts]
		return err
	}
	binary.LittleEndian.PutUint32(l.out[start:], uint32(size))
	l.refs += refs
	return nil
}

// Buffered returns the bytes that Flush will send.
func (l *Lane) Buffered() int { return len(l.out) + l.refs }

// Flush sends what was put, and no longer refers to it when it returns.
func (l *Lane) Flush() error {
	if len(l.out) == 0 {
		return nil
	}
	var err error
	if len(l.cuts) == 0 {
		_, err = l.conn.Write(l.out)
	} else {
		err = l.gather()
	}
	clear(l.cuts)
	l.out, l.cuts, l.refs = l.out[:0], l.cuts[:0], 0
	if cap(l.out) > laneKeep {
		l.out = nil
	}
	return err
}

// gather sends out with the payloads in their places, in one system call where it can.
func (l *Lane) gather() error {
	vec, start := l.vec[:0], 0
	for _, c := range l.cuts {
		vec = append(vec, l.out[start:c.after], c.data)
		start = c.after
	}
	if start < len(l.out) {
		vec = append(vec, l.out[start:])
	}
	l.vec = vec
	_, err := l.vec.WriteTo(l.conn) // moves l.vec to the end of its array
	clear(vec)
	l.vec = vec[:0]
	return err
}

// ReadRequest returns the next call, nil for a ping. What it returns owns its memory.
func (l *Lane) ReadRequest() (*RaftRequest, error) {
	b, err := l.read(MaxMessageSize)
	if err != nil || b == nil {
		return nil, err
	}
	m := &RaftRequest{}
	return m, readRaftRequest(b, m)
}

// ReadResponse returns the next answer, nil for a ping's.
func (l *Lane) ReadResponse() (*RaftResponse, error) {
	b, err := l.read(MaxMessageSize)
	if err != nil || b == nil {
		return nil, err
	}
	m := &RaftResponse{}
	return m, proto.Unmarshal(b, m)
}

// read returns the next message, of limit bytes at most, in memory of its own, nil for a ping.
func (l *Lane) read(limit uint32) ([]byte, error) {
	if _, err := io.ReadFull(l.in, l.head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(l.head[:])
	switch {
	case n == 0:
		return nil, nil
	case n > limit:
		return nil, fmt.Errorf("%w: a frame of %d bytes", ErrTooLarge, n)
	case n > laneTrust:
		return l.readLarge(int(n))
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(l.in, b); err != nil {
		return nil, cutShort(err)
	}
	return b, nil
}

// readLarge takes memory as the bytes come, a doubling at a time.
func (l *Lane) readLarge(n int) ([]byte, error) {
	b := make([]byte, laneTrust)
	for have := 0; ; {
		if _, err := io.ReadFull(l.in, b[have:]); err != nil {
			return nil, cutShort(err)
		}
		if have = len(b); have == n {
			return b, nil
		}
		grown := make([]byte, min(n, 2*have))
		copy(grown, b)
		b = grown
	}
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
