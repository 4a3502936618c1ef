package broker

import (
	"errors"

	"geminga/pkg/eventloop"
)

// throttle is a set of reasons to stop a connection: to read its socket no more, and to leave the frames alone that were
// read already. They are looked at before each frame, and the connection goes on when the last is gone.
//
// Request-frame memory is no such reason. It holds the reads of whole loops (see frameMemory) and never a frame that is
// there, since that keeps the memory whose release is waited for.
type throttle uint8

const (
	throttlePending    throttle = 1 << iota // too many sends of the connection in flight
	throttleBytes                           // too many bytes in flight on its loop
	throttleTopicRate                       // its next send is for a topic whose rate is used up
	throttleBrokerRate                      // the broker's is
	throttleOutbound                        // the client does not read
	throttleCooldown                        // after throttleOutbound, its requests of this second are used up
	throttleShutdown
)

// errHeld says that a frame was not worked on, because the connection has been stopped before it.
var errHeld = errors.New("frame held back")

// throttle stops a connection for a reason.
func (c *conn) throttle(why throttle) {
	if c.throttles == 0 {
		c.ec.PauseRead()
		c.server.metrics.paused()
	}
	c.throttles |= why
}

// unthrottle takes a reason away. With the last one the frames that wait are worked on, and then reading goes on.
func (c *conn) unthrottle(why throttle) {
	if c.throttles&why == 0 {
		return
	}
	c.throttles &^= why
	if c.throttles == 0 {
		c.ec.ResumeRead()
		c.server.metrics.resumed()
	}
}

// admitted reports whether the connection's next frame may be worked on, whatever it is.
func (c *conn) admitted() bool {
	if c.ec.Paused() || c.ec.Closed() {
		return false
	}
	s := c.server
	switch {
	case c.ec.Outbound() > c.maxOutbound() || s.opts.Admission.PauseIfUnwritable && !c.ec.Writable():
		c.throttle(throttleOutbound)
	case c.state.inFlight.full && len(c.producers) > 0:
		c.state.stop(c)
	case c.cooling():
		c.throttle(throttleCooldown)
	default:
		return true
	}
	return false
}

// maxOutbound is how many bytes the client may leave unread before its requests are left alone. Above the low-water mark a
// connection of a loop that is short of room is not writable, and so will be told when it is again.
func (c *conn) maxOutbound() int {
	if c.ec.Loop().OutboundTight() {
		return c.server.opts.Admission.LowWater
	}
	return c.server.maxOutbound
}

// mayPublish reports whether the rates allow a send. If not, the connection waits in a line and the frame is to be
// worked on again.
func (c *conn) mayPublish(h *hosted, messages, bytes int) bool {
	broker, topic := &c.server.publishLimit, &h.limit
	b, t := broker.on.Load(), topic.on.Load()
	if !b && !t {
		return true
	}
	now := c.ec.Loop().Now()
	for _, l := range [...]*publishLimit{broker, topic} {
		if l.on.Load() && !l.pass(c, now) {
			c.line, c.called = l, nil
			c.throttle(l.why)
			return false
		}
	}
	if b {
		broker.spend(messages, bytes, now)
	}
	if t {
		topic.spend(messages, bytes, now)
	}
	return true
}

// sent and answered count what is in flight.
func (c *conn) sent(bytes int) {
	c.pending++
	if c.pending >= c.server.maxSend {
		c.throttle(throttlePending)
	}
	c.state.sent(bytes)
}

func (c *conn) answered(n int) {
	c.pending -= n
	if c.pending <= c.server.maxSend/2 {
		c.unthrottle(throttlePending)
	}
}

// inFlight is the payload bytes that connections of a loop have published and that are not answered yet. Above share, the
// loop's part of maxMessagePublishBufferSizeInMB, every connection of the loop that has a producer is stopped, until they
// are down to half of it. Loop-owned.
type inFlight struct {
	bytes, share int64 // share 0: no limit
	full         bool
	stopped      []*conn
}

func (st *loopState) sent(bytes int) {
	f := &st.inFlight
	f.bytes += int64(bytes)
	if f.share <= 0 || f.full || f.bytes <= f.share {
		return
	}
	f.full = true
	st.eachConn(func(c *conn) {
		if len(c.producers) > 0 {
			st.stop(c)
		}
	})
}

// eachConn calls f for the open connections of the loop.
func (st *loopState) eachConn(f func(*conn)) {
	st.holder.loop.Conns(func(ec *eventloop.Conn) bool {
		if c, ok := ec.Context().(*conn); ok {
			f(c)
		}
		return true
	})
}

func (st *loopState) stop(c *conn) {
	if c.throttles&throttleBytes == 0 {
		c.throttle(throttleBytes)
		st.inFlight.stopped = append(st.inFlight.stopped, c)
	}
}

func (st *loopState) answered(bytes int64) {
	f := &st.inFlight
	f.bytes -= bytes
	if !f.full || f.bytes > f.share/2 {
		return
	}
	f.full = false
	stopped := f.stopped
	f.stopped = nil
	for _, c := range stopped {
		c.unthrottle(throttleBytes)
	}
}
