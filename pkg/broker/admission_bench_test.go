package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/eventloop"
	"geminga/rpc/pulsarpb"
)

// BenchmarkFrameMemory publishes over a socket in each mode, 100 messages at a time.
func BenchmarkFrameMemory(b *testing.B) {
	for _, mode := range modes() {
		b.Run(fmt.Sprintf("mode=%s", mode), func(b *testing.B) {
			benchmarkAdmission(b, Admission{FrameMemory: mode})
		})
	}
}

func modes() []FrameMemoryMode {
	return []FrameMemoryMode{FrameMemoryDisabled, FrameMemoryTracking, FrameMemoryAuto, FrameMemoryEnabled}
}

// BenchmarkSendOnLoop is the loop's part of publishing alone, without socket, executors and storage: 100 frames of one
// root, whose first and last reference are counted as the mode says. Per message; it must not allocate.
func BenchmarkSendOnLoop(b *testing.B) {
	for _, mode := range modes() {
		b.Run("mode="+mode.String(), func(b *testing.B) { benchmarkSendOnLoop(b, Admission{FrameMemory: mode}) })
	}
	const never = 1 << 40
	b.Run("rate=topic", func(b *testing.B) { benchmarkSendOnLoop(b, Admission{TopicRate: Rate{Messages: never, Bytes: never}}) })
}

func benchmarkSendOnLoop(b *testing.B, a Admission) {
	cluster := bookietest.New(bookietest.Options{})
	defer cluster.Close()
	client := cluster.Client()
	s, err := Open(b.Context(), Options{ListenAddress: "127.0.0.1:0", Bookies: client, Store: client, Loops: 1, Admission: a,
		MaxPendingPublishRequestsPerConnection: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close(b.Context()) }()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.ServiceURL(), "pulsar://"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	t := &testing.T{}
	p := &peer{t: t, conn: c}
	p.handshake()
	p.producer(name(1), 1, "")
	var frames []byte
	for i := range benchWindow {
		frames = append(frames, sendFrame(t, 1, uint64(i), strings.Repeat("x", 128))...)
	}
	var root *eventloop.Root
	send := &s.commands[pulsarpb.BaseCommand_SEND]
	plain := send.hot
	send.hot = func(c *conn, r *eventloop.Root) error {
		root = r
		root.Retain()
		return plain(c, r)
	}
	p.publish(1, 0, "x")
	send.hot = plain
	defer root.Release()
	done := make(chan struct{})
	s.group.Loops()[0].Post(eventloop.TaskFunc(func() {
		defer close(done)
		st := s.states[0]
		st.eachConn(func(c *conn) { sendAll(b, c, root, frames) })
	}))
	<-done
}

// sendAll works on the frames as if they had been read, and drops the batches. On the loop.
func sendAll(b *testing.B, c *conn, root *eventloop.Root, frames []byte) {
	st := c.state
	h := &handler{st.server}
	drop := func(account *eventloop.Account) {
		for _, t := range st.turn {
			batch := t.batches[0]
			if account != nil {
				account.Changed(1 << 16)
			}
			for i := range batch.messages {
				batch.messages[i].Payload.Release()
			}
			if account != nil {
				account.Changed(-1 << 16)
			}
			batch.messages, batch.bytes, batch.count = batch.messages[:0], 0, 0
		}
		c.pending, st.inFlight.bytes = 0, 0
	}
	account := st.server.memory.accountFor(st.server.opts.Admission.FrameMemory)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N / benchWindow {
		if n, _, err := h.Data(c.ec, root, frames); n != len(frames) || err != nil {
			b.Fatalf("%d bytes, %v", n, err)
		}
		drop(account)
	}
	b.StopTimer()
	st.flush()
}

// BenchmarkPublishRate publishes under limits that are never reached.
func BenchmarkPublishRate(b *testing.B) {
	const never = 1 << 40
	for what, a := range map[string]Admission{
		"none": {}, "topic": {TopicRate: Rate{Messages: never, Bytes: never}}, "both": {TopicRate: Rate{Messages: never}, BrokerRate: Rate{Messages: never}},
	} {
		b.Run("limits="+what, func(b *testing.B) { benchmarkAdmission(b, a) })
	}
}

const benchWindow = 100

func benchmarkAdmission(b *testing.B, a Admission) {
	cluster := bookietest.New(bookietest.Options{})
	defer cluster.Close()
	client := cluster.Client()
	s, err := Open(b.Context(), Options{
		ListenAddress: "127.0.0.1:0", Bookies: client, Store: client, Loops: 1, Admission: a, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close(b.Context()) }()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.ServiceURL(), "pulsar://"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	t := &testing.T{}
	p := &peer{t: t, conn: c}
	p.handshake()
	p.producer(name(1), 1, "")
	var frames []byte
	for i := range benchWindow {
		frames = append(frames, sendFrame(t, 1, uint64(i), strings.Repeat("x", 128))...)
	}
	_ = c.SetDeadline(time.Time{})
	head := make([]byte, 1<<16)
	round := func() {
		if _, err := c.Write(frames); err != nil {
			b.Fatal(err)
		}
		for range benchWindow {
			if _, err := io.ReadFull(c, head[:4]); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, head[:binary.BigEndian.Uint32(head)]); err != nil {
				b.Fatal(err)
			}
		}
	}
	for range 100 {
		round()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		round()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchWindow), "ns/message")
}
