package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// Role says what a member does.
type Role string

// The roles. One process may do both, as two members.
const (
	Broker Role = "broker"
	Bookie Role = "bookie"
)

// Options configures membership.
type Options struct {
	// Name is the member's stable id, the same after a restart. Required, at most 128 bytes.
	Name string
	Role Role
	// Cluster keeps clusters apart that can reach each other: gossip of another is not listened to. Required, the same for
	// all members, at most 255 bytes.
	Cluster string
	// Services are addresses that others need, by name, for example "pulsar", "http", "grpc". They travel with every
	// gossip message about the member, so keep them few and short: all together at most 512 bytes.
	Services map[string]string

	// Bind is the host:port that gossip listens on, UDP and TCP. Port 0 takes a free one.
	Bind string
	// Advertise is the host:port that others use instead, when it differs.
	Advertise string
	// Join are host:port of other members. They need not be up, and may include this one.
	Join []string
	// SecretKey encrypts gossip when set: 16, 24 or 32 bytes, the same for all.
	SecretKey []byte

	Logger *slog.Logger

	// ProbeInterval and ProbeTimeout decide how soon a dead member is noticed. On starved machines raise them (5 s, 2 s):
	// wrong accusations cost more than late ones.
	ProbeInterval time.Duration
	ProbeTimeout  time.Duration
	// SuspicionMult times the probe interval is about how long a suspect may defend itself.
	SuspicionMult int
	// RejoinInterval is how often members that are missing are tried again.
	RejoinInterval time.Duration
	// SettleTime after Open, Settled is true.
	SettleTime time.Duration
	// LeaveTimeout bounds taking leave at Close.
	LeaveTimeout time.Duration

	transport memberlist.Transport // tests
}

// EnsureDefaults fills what is not set.
func (o *Options) EnsureDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ProbeInterval == 0 {
		o.ProbeInterval = time.Second
	}
	if o.ProbeTimeout == 0 {
		o.ProbeTimeout = o.ProbeInterval / 2
	}
	if o.SuspicionMult == 0 {
		o.SuspicionMult = 4
	}
	if o.RejoinInterval == 0 {
		o.RejoinInterval = 30 * time.Second
	}
	if o.SettleTime == 0 {
		o.SettleTime = 5 * time.Second
	}
	if o.LeaveTimeout == 0 {
		o.LeaveTimeout = 2 * time.Second
	}
}

// Validate reports everything that is wrong.
//
//nolint:revive // a list of independent checks
func (o *Options) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.Name == "" || len(o.Name) > 128 || strings.ContainsAny(o.Name, nameSeparator) {
		fault("name %q must have 1 to 128 bytes without %q", o.Name, nameSeparator)
	}
	if o.Role != Broker && o.Role != Bookie {
		fault("role %q is neither %q nor %q", o.Role, Broker, Bookie)
	}
	if o.Cluster == "" || len(o.Cluster) > memberlist.LabelMaxSize {
		fault("cluster %q must have 1 to %d bytes", o.Cluster, memberlist.LabelMaxSize)
	}
	faults = append(faults, o.checkAddresses()...)
	if n := len(o.SecretKey); n != 0 && n != 16 && n != 24 && n != 32 {
		fault("secret key has %d bytes, must be 16, 24 or 32", n)
	}
	if o.ProbeInterval <= 0 || o.ProbeTimeout <= 0 || o.ProbeTimeout > o.ProbeInterval {
		fault("probe timeout %v must be positive and at most the interval %v", o.ProbeTimeout, o.ProbeInterval)
	}
	if o.SuspicionMult < 1 || o.RejoinInterval <= 0 || o.SettleTime <= 0 || o.LeaveTimeout <= 0 {
		fault("suspicion multiplier %d, rejoin interval %v, settle time %v and leave timeout %v must be positive",
			o.SuspicionMult, o.RejoinInterval, o.SettleTime, o.LeaveTimeout)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("cluster options: %w", err)
	}
	return nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	port, err = net.LookupPort("tcp", text)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	return host, port, nil
}

func (o *Options) checkAddresses() []error {
	var faults []error
	check := func(what, address string) {
		if _, _, err := splitAddress(address); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", what, err))
		}
	}
	check("bind", o.Bind)
	if o.Advertise != "" {
		check("advertise", o.Advertise)
	}
	for _, address := range o.Join {
		check("join", address)
	}
	return faults
}
