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
)

// BenchmarkPublish sends messages over a socket and reads their receipts: all of the broker, on bookies in memory (whose
// share of time and allocations is in the figures). window is how many are written at once.
func BenchmarkPublish(b *testing.B) {
	for _, window := range []int{1, 100} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) { benchmarkPublish(b, window) })
	}
}

func benchmarkPublish(b *testing.B, window int) {
	cluster := bookietest.New(bookietest.Options{})
	client := cluster.Client()
	s, err := Open(b.Context(), Options{
		ListenAddress: "127.0.0.1:0", Bookies: client, Store: client, Loops: 2, Logger: slog.New(slog.DiscardHandler),
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
	for i := range window {
		frames = append(frames, sendFrame(t, 1, uint64(i), strings.Repeat("x", 128))...)
	}
	_ = c.SetDeadline(time.Time{})
	head := make([]byte, 1<<16)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(frames); err != nil {
			b.Fatal(err)
		}
		for range window {
			if _, err := io.ReadFull(c, head[:4]); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, head[:binary.BigEndian.Uint32(head)]); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*window), "ns/message")
}
