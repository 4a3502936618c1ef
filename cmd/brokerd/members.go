package main

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"geminga/pkg/broker"
	"geminga/pkg/cluster"
)

// members is who is alive, as the broker sees it: gossip, less the brokers whose port has refused connections for a
// while. Before gossip runs nobody else is known.
//
// Gossip takes several seconds to declare a killed process dead, since silence proves little. A refused connection
// proves more: the host answers and nobody listens. Either way it is a suggestion; the owner record and its epoch decide,
// so being wrong costs a change of owner and nothing else.
type members struct {
	cluster atomic.Pointer[cluster.Cluster]
	reach   reach
}

// Brokers returns the brokers that are alive. It never blocks.
func (m *members) Brokers() []broker.Member {
	c := m.cluster.Load()
	if c == nil {
		return nil
	}
	var out []broker.Member
	for _, b := range cluster.WithRole(c.Members(), cluster.Broker) {
		url := b.Services[servicePulsar]
		if b.Name != c.Self().Name && m.reach.refuses(strings.TrimPrefix(url, "pulsar://")) {
			continue
		}
		out = append(out, broker.Member{
			ID: b.Name, Incarnation: b.Services[serviceIncarnation], ServiceURL: url, WebURL: b.Services[serviceWeb],
		})
	}
	return out
}

// Settled reports whether gossip runs and had the time to tell of everybody.
func (m *members) Settled() bool {
	c := m.cluster.Load()
	return c != nil && c.Settled()
}

const (
	probeEvery   = 300 * time.Millisecond
	probeTimeout = 300 * time.Millisecond
	// refusedFor is longer than a broker that shuts down cleanly needs to hand its topics over after it stopped listening.
	refusedFor = time.Second
	// probeFresh is how long an answer counts when nobody asks again.
	probeFresh = 3 * time.Second
)

// reach remembers which addresses refuse connections. It dials in the background when asked about an address, so the
// first answers after a death are out of date.
type reach struct {
	mu     sync.Mutex
	byAddr map[string]*probe
	dial   func(addr string) error // nil: TCP
}

type probe struct {
	busy         bool
	at           time.Time // of the last answer
	refusedSince time.Time // zero: it does not refuse
}

// refuses reports that the address has refused every connection for refusedFor or longer.
func (r *reach) refuses(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.byAddr[addr]
	if p == nil {
		p = &probe{}
		if r.byAddr == nil {
			r.byAddr = map[string]*probe{}
		}
		r.byAddr[addr] = p
	}
	now := time.Now()
	if now.Sub(p.at) > probeFresh {
		p.refusedSince = time.Time{}
	}
	if !p.busy && now.Sub(p.at) >= probeEvery {
		p.busy = true
		go r.probe(addr, p)
	}
	return !p.refusedSince.IsZero() && now.Sub(p.refusedSince) >= refusedFor
}

func (r *reach) probe(addr string, p *probe) {
	dial := r.dial
	if dial == nil {
		dial = dialTCP
	}
	refused := errors.Is(dial(addr), syscall.ECONNREFUSED)
	r.mu.Lock()
	defer r.mu.Unlock()
	p.busy, p.at = false, time.Now()
	switch {
	case !refused:
		p.refusedSince = time.Time{}
	case p.refusedSince.IsZero():
		p.refusedSince = p.at
	}
}

func dialTCP(addr string) error {
	c, err := net.DialTimeout("tcp", addr, probeTimeout)
	if err == nil {
		c.Close()
	}
	return err
}
