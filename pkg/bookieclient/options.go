package bookieclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Options configures a Client.
type Options struct {
	// Bookies are addresses (host:port) to start from. The others are found through them.
	Bookies []string
	// ClusterID, when set, is checked by the bookies: a client of another cluster is refused.
	ClusterID string

	Logger        *slog.Logger
	MeterProvider metric.MeterProvider
	// Credentials of the connections; plain text by default.
	Credentials credentials.TransportCredentials
	// Dial replaces the dialer, for tests.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// ConnectTimeout bounds one attempt to connect.
	ConnectTimeout time.Duration
	// TryTimeout bounds one attempt of a unary call or a read.
	TryTimeout time.Duration
	// CallTimeout bounds a call with all its attempts.
	CallTimeout time.Duration
	// AnswerTimeout is how long an append stream may leave its oldest command unanswered before another is tried.
	AnswerTimeout time.Duration
	// StallTimeout is how old an unanswered append may be before its group counts as unhealthy for new ledgers.
	StallTimeout time.Duration
	// RetryMin and RetryMax bound the pause between attempts, which doubles and is jittered.
	RetryMin, RetryMax time.Duration
	// StatusInterval is how often bookies are asked for their groups.
	StatusInterval time.Duration

	// MaxBatchBytes is the size at which an append message is sent without taking more.
	MaxBatchBytes int
	// MaxMessagesInFlight bounds the append messages of a group that are on their way; what is queued meanwhile goes
	// out together.
	MaxMessagesInFlight int
}

// EnsureDefaults fills what is not set.
func (o *Options) EnsureDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MeterProvider == nil {
		o.MeterProvider = noop.NewMeterProvider()
	}
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	setDefault(&o.ConnectTimeout, time.Second)
	setDefault(&o.TryTimeout, 2*time.Second)
	setDefault(&o.CallTimeout, 10*time.Second)
	setDefault(&o.AnswerTimeout, 3*time.Second)
	setDefault(&o.StallTimeout, 250*time.Millisecond)
	setDefault(&o.RetryMin, 10*time.Millisecond)
	setDefault(&o.RetryMax, 300*time.Millisecond)
	setDefault(&o.StatusInterval, time.Second)
	setDefault(&o.MaxBatchBytes, 1<<20)
	setDefault(&o.MaxMessagesInFlight, 8)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports everything that is wrong.
func (o *Options) Validate() error {
	var faults []error
	if len(o.Bookies) == 0 {
		faults = append(faults, errors.New("no bookie addresses"))
	}
	for _, address := range o.Bookies {
		if _, _, err := net.SplitHostPort(address); err != nil {
			faults = append(faults, fmt.Errorf("bookie address %q: %w", address, err))
		}
	}
	for name, d := range map[string]time.Duration{
		"ConnectTimeout": o.ConnectTimeout, "TryTimeout": o.TryTimeout, "CallTimeout": o.CallTimeout,
		"AnswerTimeout": o.AnswerTimeout, "StallTimeout": o.StallTimeout, "RetryMin": o.RetryMin,
		"StatusInterval": o.StatusInterval,
	} {
		if d <= 0 {
			faults = append(faults, fmt.Errorf("%s is %v, must be positive", name, d))
		}
	}
	if o.RetryMax < o.RetryMin {
		faults = append(faults, fmt.Errorf("RetryMax %v is below RetryMin %v", o.RetryMax, o.RetryMin))
	}
	if o.MaxBatchBytes < 1 || o.MaxBatchBytes > maxEntryBytes {
		faults = append(faults, fmt.Errorf("MaxBatchBytes is %d, must be 1 to %d", o.MaxBatchBytes, maxEntryBytes))
	}
	if o.MaxMessagesInFlight < 1 {
		faults = append(faults, fmt.Errorf("MaxMessagesInFlight is %d, must be positive", o.MaxMessagesInFlight))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("bookieclient options: %w", err)
	}
	return nil
}
