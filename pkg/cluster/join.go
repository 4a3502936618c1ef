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
		if c.joinMissing() && !c.Settled() {
			eventSink{c.events, c.ctx.Done()}.reached()
		}
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

// joinMissing tries everybody who is missing. It reports whether all of Join have answered.
func (c *Cluster) joinMissing() bool {
	missing, all := c.missing()
	for _, address := range missing {
		if c.ctx.Err() != nil {
			return false
		}
		if _, err := c.list.Join([]string{address}); err != nil {
			c.log.Debug("cannot join", "address", address, "error", err)
			all = false
		}
	}
	return all
}

// missing lists the addresses, configured or of members that are gone, behind which no live member is known. Names are
// resolved each time, because what they stand for changes; all says that there are some, and each could be.
func (c *Cluster) missing() (addresses []string, all bool) {
	alive := []string{c.self.Address}
	for _, m := range c.Members() {
		alive = append(alive, m.Address)
	}
	var out []string
	all = len(c.opts.Join) > 0
	for _, address := range c.opts.Join {
		host, port, err := splitAddress(address)
		if err != nil {
			all = false
			continue
		}
		ips, err := net.DefaultResolver.LookupHost(c.ctx, host)
		if err != nil {
			c.log.Debug("cannot resolve", "address", address, "error", err)
			all = false
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
	return slices.Compact(out), all
}
