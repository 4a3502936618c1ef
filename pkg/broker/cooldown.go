package broker

import (
	"time"

	"geminga/rpc/pulsarpb"
)

// cooldown follows when a client reads again whose requests were left alone because it did not (PIP-434): for a while it
// may send only so many requests a second, so that it does not fill its output again at once. PING and PONG do not count.
// Loop-owned.
type cooldown struct {
	until  time.Time // zero: there is none
	second time.Time // begin of the present second
	spent  int       // requests in it
	timer  *time.Timer
}

// coolDown begins a cooldown when a pause for output ends.
func (c *conn) coolDown() {
	a := &c.server.opts.Admission
	if c.throttles&throttleOutbound == 0 || !a.PauseIfUnwritable || a.Cooldown <= 0 || a.CooldownRate <= 0 {
		return
	}
	now := c.ec.Loop().Now()
	c.cool.until = now.Add(a.Cooldown)
	c.cool.second, c.cool.spent = now, 0
}

// cooling reports whether the requests of this second are used up; the connection goes on in the next.
func (c *conn) cooling() bool {
	w := &c.cool
	if w.until.IsZero() {
		return false
	}
	now := c.ec.Loop().Now()
	if !now.Before(w.until) {
		w.until = time.Time{}
		return false
	}
	if now.Sub(w.second) >= time.Second {
		w.second, w.spent = now, 0
	}
	if w.spent < c.server.opts.Admission.CooldownRate {
		return false
	}
	wait := max(time.Second-now.Sub(w.second), time.Millisecond)
	if w.timer == nil {
		w.timer = time.AfterFunc(wait, func() { c.post(func() { c.cooled() }) })
	} else {
		w.timer.Reset(wait)
	}
	return true
}

func (c *conn) cooled() {
	if !c.closed {
		c.unthrottle(throttleCooldown)
	}
}

// spend counts a request.
func (w *cooldown) spend(t pulsarpb.BaseCommand_Type) {
	if !w.until.IsZero() && t != pulsarpb.BaseCommand_PING && t != pulsarpb.BaseCommand_PONG {
		w.spent++
	}
}

func (w *cooldown) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
