package cluster

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"
)

// keepJoining joins whoever should be there and is not: quickly until somebody is found and the members have settled, then
// every RejoinInterval, jittered. Without it two halves of a cluster that have declared each other dead never meet again.
func (c *Cluster) keepJoining() {
	wait := min(200*time.Millisecond, c.opts.RejoinInterval)
	for {
		c.joinMissing()
		if (len(c.Members()) > 1 || len(c.opts.Join) == 0) && c.Settled() {
			wait = c.opts.RejoinInterval
		} else {
			wait = min(2*wait, c.opts.RejoinInterval)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-c.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// joinMissing tries everybody who is missing.
func (c *Cluster) joinMissing() {
	for _, address := range c.missing() {
		if c.ctx.Err() != nil {
			return
		}
		if _, err := c.list.Join([]string{address}); err != nil {
			c.log.Debug("cannot join", "address", address, "error", err)
		}
	}
}

// missing lists the addresses, configured or of members that are gone, behind which no live member is known. Names are
// resolved each time, because what they stand for changes.
func (c *Cluster) missing() []string {
	alive := []string{c.self.Address}
	for _, m := range c.Members() {
		alive = append(alive, m.Address)
	}
	var out []string
	for _, address := range c.opts.Join {
		host, port, err := splitAddress(address)
		if err != nil {
			continue
		}
		ips, err := net.DefaultResolver.LookupHost(c.ctx, host)
		if err != nil {
			c.log.Debug("cannot resolve", "address", address, "error", err)
			continue
		}
		for _, ip := range ips {
			if resolved := net.JoinHostPort(ip, strconv.Itoa(port)); !slices.Contains(alive, resolved) {
				out = append(out, resolved)
			}
		}
	}
	for address := range *c.lost.Load() {
		if !slices.Contains(alive, address) {
			out = append(out, address)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
