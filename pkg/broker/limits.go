package broker

import (
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// Limits bound what clients may have and ask for. 0 is no limit.
type Limits struct {
	Connections      int // brokerMaxConnections
	ConnectionsPerIP int // brokerMaxConnectionsPerIp

	// Of one connection: maxProducersPerConnection, maxConsumersPerConnection, and maxPendingRequestsPerConnection, the
	// lookups and openings of producers and consumers that are not answered yet.
	Producers, Consumers, Requests int

	Lookups       int           // maxConcurrentLookupRequest: of all connections, beyond which they are refused
	TopicLoads    int           // maxConcurrentTopicLoadRequest: at a time, others wait
	SubscribeRate SubscribeRate // subscribeThrottlingRatePerConsumer in subscribeRatePeriodPerConsumerInSecond
}

func (l *Limits) validate(check func(ok bool, format string, args ...any)) {
	for _, n := range []int{l.Connections, l.ConnectionsPerIP, l.Producers, l.Consumers, l.Requests, l.Lookups, l.TopicLoads, l.SubscribeRate.Times} {
		check(n >= 0, "a limit is %d", n)
	}
	check(l.SubscribeRate.Times == 0 || l.SubscribeRate.Period > 0, "subscribeRatePeriodPerConsumerInSecond is %v", l.SubscribeRate.Period)
}

var (
	errTooManyConns      = errors.New("Reached the maximum number of connections") //nolint:staticcheck // Pulsar's words
	errTooManyLookups    = errors.New("too many lookups are under way, try again")
	errTooManyRequests   = errors.New("too many requests of this connection are under way, try again")
	errTooManyHandles    = errors.New("this connection has as many producers or consumers as it may have")
	errSubscribesTooFast = errors.New("this consumer subscribes too often, try again later")
)

// gate lets so many in at a time. Any goroutine.
type gate struct{ most, inside atomic.Int64 }

// enter reports whether there was room; then leave must follow.
func (g *gate) enter() bool {
	n, most := g.inside.Add(1), g.most.Load()
	if most > 0 && n > most {
		g.inside.Add(-1)
		return false
	}
	return true
}

func (g *gate) leave() { g.inside.Add(-1) }

// refusing is how many connections beyond the limit are let in to be told so. Still more are closed without a word.
const refusing = 100

// maxConns is where the event loops close connections without a word.
func maxConns(most int) int {
	if most == 0 {
		return 0
	}
	return most + refusing
}

// connections counts the connections that are served, also by the address of the client. Any goroutine.
type connections struct {
	most, mostPerIP int
	mu              struct {
		sync.Mutex
		all  int
		byIP map[string]int // only with mostPerIP
	}
}

// enter returns why a connection is not to be served; nil means that leave must follow.
func (l *connections) enter(remote net.Addr) error {
	if l.most == 0 && l.mostPerIP == 0 {
		return nil
	}
	ip := hostOf(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.most > 0 && l.mu.all >= l.most:
		return errTooManyConns
	case l.mostPerIP > 0 && l.mu.byIP[ip] >= l.mostPerIP:
		return fmt.Errorf("%w on address %s", errTooManyConns, ip)
	}
	l.mu.all++
	if l.mostPerIP > 0 {
		if l.mu.byIP == nil {
			l.mu.byIP = map[string]int{}
		}
		l.mu.byIP[ip]++
	}
	return nil
}

func (l *connections) leave(remote net.Addr) {
	if l.most == 0 && l.mostPerIP == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.all--
	if l.mostPerIP > 0 {
		ip := hostOf(remote)
		if l.mu.byIP[ip]--; l.mu.byIP[ip] == 0 {
			delete(l.mu.byIP, ip)
		}
	}
}

func hostOf(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return a.String()
}

// began counts a request that is answered later; ended must follow. On the loop.
func (c *conn) began() error {
	if most := c.server.opts.Limits.Requests; most > 0 && c.requests >= most {
		return errTooManyRequests
	}
	c.requests++
	return nil
}

func (c *conn) ended() { c.requests-- }

// beganLookup is began for requests that only read the metadata, which are bounded for all connections together, too.
// lookups.leave must be called when the metadata has answered, and ended on the loop.
func (c *conn) beganLookup() error {
	if err := c.began(); err != nil {
		return err
	}
	if !c.server.lookups.enter() {
		c.ended()
		return errTooManyLookups
	}
	return nil
}

// room reports whether a connection with n producers or consumers may have one more.
func room(n, most int) error {
	if most > 0 && n >= most {
		return errTooManyHandles
	}
	return nil
}

// SubscribeRate bounds how often one consumer may subscribe to a topic: so many times in each period; 0: not bounded. A
// consumer is known by its address, name and id.
type SubscribeRate struct {
	Times  int
	Period time.Duration
}

type subscriber struct {
	ip, name string
	id       uint64
}

// subscribeLimit counts what each consumer did in the present period. On the topic's executor.
type subscribeLimit struct {
	since time.Time
	times map[subscriber]int
}

func (l *subscribeLimit) pass(who subscriber, r *SubscribeRate, now time.Time) error {
	if r.Times == 0 {
		l.times = nil
		return nil
	}
	if l.times == nil || now.Sub(l.since) >= r.Period {
		l.since, l.times = now, map[subscriber]int{}
	}
	if l.times[who] >= r.Times {
		return errSubscribesTooFast
	}
	l.times[who]++
	return nil
}

// refuse answers CONNECT when the connection is not to be served: with an error that no request has asked for, as Pulsar
// does.
func (c *conn) refuse(err error) {
	const noRequest = math.MaxUint64
	c.state.buf = protocol.AppendError(c.state.buf[:0], noRequest, pulsarpb.ServerError_NotAllowedError, err.Error())
	c.write(c.state.buf)
	c.say(kindRefused, "Connection refused: "+err.Error())
	c.ec.CloseAfterFlush(err)
}
