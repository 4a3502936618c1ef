package broker

import (
	"bytes"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// logBuffer collects log lines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func logTo(b *logBuffer) func(*Options) {
	return func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(b, nil)) }
}

// corpus is the broken frames that pkg/protocol keeps.
func corpus(t *testing.T) [][]byte {
	t.Helper()
	text, err := os.ReadFile("../protocol/testdata/broken")
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, line := range strings.Split(string(text), "\n") {
		if b, err := hex.DecodeString(strings.ReplaceAll(line, " ", "")); err == nil && len(b) > 0 {
			out = append(out, b)
		}
	}
	if len(out) < 25 {
		t.Fatalf("only %d broken frames", len(out))
	}
	return out
}

// Every broken frame is answered or closes the connection, before and after the handshake, and the broker serves on. The
// log gets one line per kind, not one per frame.
func TestBrokenFrames(t *testing.T) {
	var log logBuffer
	s, _ := start(t, logTo(&log))
	for _, shaken := range []bool{false, true} {
		for _, b := range corpus(t) {
			p := dial(t, s)
			if shaken {
				p.handshake()
				p.producer(name(1), 1, "")
			}
			p.write(b)
			if size, err := protocol.FrameSize(b, protocol.MaxFrameSize(5<<20)); err == nil && size > len(b) {
				_ = p.conn.Close() // incomplete: nothing to be said yet
				continue
			}
			_ = p.conn.(*net.TCPConn).CloseWrite()
			for { // answers, then the end
				if _, _, err := p.frame(); err != nil {
					if ne, ok := err.(net.Error); ok && ne.Timeout() {
						t.Errorf("%x: neither answered nor closed", b)
					}
					break
				}
			}
		}
	}
	connect(t, s).publishOne(name(1))
	if lines := strings.Count(log.String(), "Connection closed"); lines == 0 || lines > int(kinds) {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
}

func (p *peer) publishOne(topic string) {
	p.t.Helper()
	p.producer(topic, 99, "")
	p.publish(99, 0, "alive")
}

func TestWrongProtocol(t *testing.T) {
	for in, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":            "HTTP request on the plain Pulsar port, use the web service port",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": "TLS handshake on the plain Pulsar port, use the TLS port",
	} {
		var log logBuffer
		s, _ := start(t, logTo(&log))
		for range 20 {
			p := dial(t, s)
			p.write([]byte(in))
			p.closed()
		}
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%d lines with %q:\n%s", n, want, log.String())
		}
	}
}

func TestRandomBytes(t *testing.T) {
	s, _ := start(t)
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 60 {
		p := dial(t, s)
		if i%2 == 0 {
			p.handshake()
		}
		b := make([]byte, 8+r.IntN(2000))
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		if i%3 == 0 { // a sound length, so that the command is looked at
			copy(b, []byte{0, 0, byte((len(b) - 4) >> 8), byte(len(b) - 4), 0, 0, 0, 40})
		}
		_, _ = p.conn.Write(b)
		_ = p.conn.(*net.TCPConn).CloseWrite()
		p.closed()
	}
	connect(t, s).publishOne(name(1))
}

// Broken bits in sound frames: whatever happens, the broker serves on.
func TestMutatedFrames(t *testing.T) {
	s, _ := start(t)
	r := rand.New(rand.NewPCG(9, 9))
	good := [][]byte{sendFrame(t, 1, 0, "hello"), batchFrame(t, 1, 1, 3), ackBytes(t)}
	for range 60 {
		p := connect(t, s)
		p.producer(name(1), 1, "")
		for range 10 {
			b := bytes.Clone(good[r.IntN(len(good))])
			b[4+r.IntN(len(b)-4)] ^= 1 << r.IntN(8)
			if _, err := p.conn.Write(b); err != nil {
				break
			}
		}
		_ = p.conn.(*net.TCPConn).CloseWrite()
		p.closed()
	}
	connect(t, s).publishOne(name(1))
}

func ackBytes(t *testing.T) []byte {
	t.Helper()
	b, err := protocol.AppendCommand(nil, &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_ACK.Enum(),
		Ack: &pulsarpb.CommandAck{
			ConsumerId: proto.Uint64(1), AckType: individual.Enum(),
			MessageId: []*pulsarpb.MessageIdData{{LedgerId: proto.Uint64(1), EntryId: proto.Uint64(2), AckSet: []int64{1, 2}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Connections that announce 5 MiB and send one byte cost what they send, not what they announce.
func TestAnnouncedMemory(t *testing.T) {
	conns := 10_000
	if testing.Short() {
		conns = 1000
	}
	s, _ := start(t, func(o *Options) { o.HandshakeTimeout = time.Minute })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range conns {
		mine, theirs := net.Pipe()
		if err := s.Serve(theirs); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { _ = mine.Close() })
		_ = mine.SetWriteDeadline(time.Now().Add(patience))
		if _, err := mine.Write([]byte{0x00, 0x50, 0x00, 0x00, 0x00}); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse) / conns
	t.Logf("%d bytes for each of %d connections", each, conns)
	if each > 64<<10 {
		t.Errorf("%d bytes for each connection that has sent 5", each)
	}
	connect(t, s).publishOne(name(1))
}

func TestHandshakeRules(t *testing.T) {
	var log logBuffer
	s, _ := start(t, logTo(&log))
	p := dial(t, s)
	p.send(producerCommand(name(1), 1, 1, "")) // before CONNECT
	p.closed()
	p = connect(t, s)
	p.send(&pulsarpb.BaseCommand{ // a second CONNECT
		Type: pulsarpb.BaseCommand_CONNECT.Enum(), Connect: &pulsarpb.CommandConnect{ClientVersion: proto.String("x")},
	})
	p.closed()
	p = connect(t, s)
	p.send(&pulsarpb.BaseCommand{ // what only brokers say
		Type: pulsarpb.BaseCommand_SUCCESS.Enum(), Success: &pulsarpb.CommandSuccess{RequestId: proto.Uint64(1)},
	})
	p.closed()
	p = connect(t, s)
	p.write(protocol.AppendPing(nil))
	p.expect(pulsarpb.BaseCommand_PONG)
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	s, _ := start(t, func(o *Options) {
		o.HandshakeTimeout, o.KeepAliveInterval = 50*time.Millisecond, 50*time.Millisecond
	})
	silent := dial(t, s)
	silent.closed() // no CONNECT
	p := connect(t, s)
	for range 2 {
		p.expect(pulsarpb.BaseCommand_PING)
		p.write(protocol.AppendPong(nil))
	}
	if cmd, _, err := p.frame(); err != nil || cmd.GetType() != pulsarpb.BaseCommand_PING {
		t.Fatalf("%v, %v", cmd, err)
	}
	p.closed() // no PONG
}

func TestBadChecksum(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	b := sendFrame(t, 1, 0, "hello")
	b[len(b)-1] ^= 1
	p.write(b)
	e := p.expect(pulsarpb.BaseCommand_SEND_ERROR).SendError
	if e.GetError() != pulsarpb.ServerError_ChecksumError || e.GetSequenceId() != 0 || e.GetProducerId() != 1 {
		t.Errorf("%v", e)
	}
	p.publish(1, 0, "hello") // the connection serves on
}
