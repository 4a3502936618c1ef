package eventloop

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Backend says how sockets are served. TLS and in-memory connections are always served by goroutines.
type Backend uint8

const (
	// DefaultBackend is Epoll where there is epoll, else Portable.
	DefaultBackend Backend = iota
	// Epoll serves TCP sockets on the loop itself.
	Epoll
	// Portable serves every connection with a goroutine that reads and one that writes.
	Portable
)

// Options of a Group.
type Options struct {
	Name      string  // for logs; "io" by default
	Loops     int     // 0: DefaultLoops(GOMAXPROCS)
	Backend   Backend // for Listen
	RootMin   int     // smallest size of root buffers, 1 KiB
	RootStart int     // size that a loop starts with, 16 KiB
	RootMax   int     // largest size that a loop reads into, 1 MiB; single frames may need more
	ReadShare int     // bytes that a connection may read in a turn while others wait, 64 KiB
	HighWater int     // outbound bytes from which on a connection is not writable, 64 KiB
	LowWater  int     // outbound bytes at which it is writable again, 32 KiB
	MaxConns  int     // 0: no limit
	// MaxOutbound is how many bytes all connections together may have to write before each of them gets more only when it
	// has nothing left (Loop.OutboundRoom). Each loop has an equal share. 0: no limit.
	MaxOutbound int64

	TickInterval  time.Duration // 1 s
	Linger        time.Duration // how long a connection that is closed after its flush may take to leave, 5 s
	Logger        *slog.Logger
	MeterProvider metric.MeterProvider

	newPoller func() (poller, error) // for measurements of alternatives
}

// DefaultLoops returns the number of loops for n processors: min(2n, max(8, n/2)).
func DefaultLoops(n int) int { return min(2*n, max(8, n/2)) }

// EnsureDefaults fills in what is not set.
func (o *Options) EnsureDefaults() {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Name == "" {
		o.Name = "io"
	}
	def(&o.Loops, DefaultLoops(runtime.GOMAXPROCS(0)))
	if o.Backend == DefaultBackend {
		o.Backend = defaultBackend
	}
	def(&o.RootMin, 1<<10)
	def(&o.RootStart, 16<<10)
	def(&o.RootMax, 1<<20)
	def(&o.ReadShare, 64<<10)
	def(&o.HighWater, 64<<10)
	def(&o.LowWater, o.HighWater/2)
	if o.newPoller == nil {
		backend := o.Backend
		o.newPoller = func() (poller, error) { return newPoller(backend) }
	}
	if o.TickInterval == 0 {
		o.TickInterval = time.Second
	}
	if o.Linger == 0 {
		o.Linger = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MeterProvider == nil {
		o.MeterProvider = noop.NewMeterProvider()
	}
}

// share returns a loop's part of MaxOutbound.
func (o *Options) share() int64 {
	if o.MaxOutbound == 0 {
		return 0
	}
	return max(1, o.MaxOutbound/int64(o.Loops))
}

// Validate reports everything that is wrong.
func (o *Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Loops > 0, "loops: %d", o.Loops)
	check(o.Backend == Portable || defaultBackend == Epoll, "backend: %w", ErrNoBackend)
	check(o.RootMin >= minRootSize, "smallest root %d is below %d", o.RootMin, minRootSize)
	check(o.RootMin <= o.RootStart && o.RootStart <= o.RootMax,
		"root sizes %d, %d, %d are not in order", o.RootMin, o.RootStart, o.RootMax)
	check(o.ReadShare >= o.RootMin, "read share %d is below the smallest root %d", o.ReadShare, o.RootMin)
	check(0 < o.LowWater && o.LowWater < o.HighWater, "water marks %d and %d", o.LowWater, o.HighWater)
	check(o.MaxOutbound >= 0, "outbound limit %d", o.MaxOutbound)
	check(o.MaxConns >= 0, "connection limit %d", o.MaxConns)
	check(o.TickInterval > 0, "tick interval %v", o.TickInterval)
	check(o.Linger > 0, "linger %v", o.Linger)
	return errors.Join(errs...)
}
