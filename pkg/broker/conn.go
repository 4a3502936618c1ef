package broker

import (
	"errors"
	"fmt"
	"time"

	"geminga/pkg/eventloop"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// conn is the state of one connection. Loop-owned; what other goroutines may touch is in sink.
//
//	accepted ──CONNECT──▶ connected ──CLOSE_*, SEND, …──▶ connected
//	    │                     │
//	    └─deadline, bad bytes─┴──▶ closed: producers and consumers are removed from their topics
type conn struct {
	server *Server
	state  *loopState
	ec     *eventloop.Conn
	sink   sink

	connected     bool
	closed        bool
	brokerEntries bool  // is sent entries with the broker's metadata
	version       int32 // of the protocol, the older of both sides'
	clientVersion string
	remote        string
	opened        time.Time
	pinged        time.Time // zero: no PING is unanswered
	probes        []probe
	stuck         stuck

	producers map[uint64]*producer
	consumers map[uint64]*consumer
	// dropped holds ids of producers that we closed while the client may still have sends under way for them.
	dropped map[uint64]struct{}

	refusal   error // why it will not be served, when it asks
	requests  int   // that are answered later
	cool      cooldown
	pending   int           // sends without outcome
	throttles throttle      // reasons not to go on
	line      *publishLimit // in whose line the connection waits
	called    *publishLimit // that has called it from there
}

// handler is what the event loops call.
type handler struct{ s *Server }

// Opened implements eventloop.Handler.
func (h *handler) Opened(ec *eventloop.Conn) {
	st := h.s.stateOf(ec.Loop())
	c := &conn{server: h.s, state: st, ec: ec, remote: ec.RemoteAddr().String(), opened: ec.Loop().Now()}
	c.sink.c = c
	ec.SetContext(c)
	h.s.metrics.opened()
	c.refusal = h.s.conns.enter(ec.RemoteAddr())
	if h.s.closing.Load() {
		ec.Close(errShuttingDown)
	}
}

// stateOf returns the state of a loop, on the loop.
func (s *Server) stateOf(l *eventloop.Loop) *loopState {
	st := s.states[l.Index()]
	if st.out.loop == nil {
		st.out.loop = l
	}
	return st
}

// Data implements eventloop.Handler: it works through the frames that are complete.
func (h *handler) Data(ec *eventloop.Conn, root *eventloop.Root, data []byte) (consumed, need int, err error) {
	c := ec.Context().(*conn)
	c.pinged = time.Time{}
	c.alive()
	maxFrame := protocol.MaxFrameSize(h.s.opts.MaxMessageSize)
	defer func() {
		c.called = nil
		h.s.memory.holdAtOnce(ec.Loop())
	}()
	for c.admitted() {
		rest := data[consumed:]
		size, err := protocol.FrameSize(rest, maxFrame)
		if err != nil {
			return consumed, 0, c.broken(err, rest)
		}
		if size == 0 || size > len(rest) {
			return consumed, needed(size, len(rest)), nil
		}
		if err := c.frame(root, rest[:size:size]); err != nil {
			if errors.Is(err, errHeld) {
				return consumed, 0, nil
			}
			return consumed, 0, err
		}
		consumed += size
	}
	// Stopped. Whether a frame waits or only a part of one makes a difference to the loop.
	size, err := protocol.FrameSize(data[consumed:], maxFrame)
	if rest := len(data) - consumed; err == nil && (size == 0 || size > rest) {
		return consumed, needed(size, rest), nil
	}
	return consumed, 0, nil
}

// needed returns how much of a frame must be there before it makes sense to look at it again. size 0: not even its
// length is known; but that something is missing must be, or a loop that holds its reads would not end the frame.
func needed(size, have int) int {
	if size == 0 && have > 0 {
		return have + 1
	}
	return size
}

// TurnEnd implements eventloop.Handler.
func (h *handler) TurnEnd(l *eventloop.Loop) { h.s.states[l.Index()].flush() }

// Writable implements eventloop.WritableHandler.
func (h *handler) Writable(ec *eventloop.Conn) {
	c := ec.Context().(*conn)
	c.coolDown()
	c.unthrottle(throttleOutbound)
	c.sink.settle()
}

// Closed implements eventloop.Handler.
func (h *handler) Closed(ec *eventloop.Conn, err error) {
	c := ec.Context().(*conn)
	c.closed = true
	c.sink.gone.Store(true)
	c.state.flush()
	for _, p := range c.producers {
		p.leave(nil)
	}
	for _, k := range c.consumers {
		k.leave(nil)
	}
	for _, p := range c.probes {
		p.done(false)
	}
	if c.line != nil {
		c.line.forget(c)
		c.line = nil
	}
	c.cool.stop()
	if c.refusal == nil {
		h.s.conns.leave(ec.RemoteAddr())
	}
	c.producers, c.consumers, c.probes = nil, nil, nil
	h.s.metrics.closed()
	h.s.log.Debug("Connection closed", "remote", c.remote, "reason", err)
}

// Tick implements eventloop.Handler: deadlines and keep-alive.
func (h *handler) Tick(l *eventloop.Loop, now time.Time) {
	l.Conns(func(ec *eventloop.Conn) bool {
		if c, ok := ec.Context().(*conn); ok {
			c.tick(now)
		}
		return true
	})
}

func (c *conn) tick(now time.Time) {
	o := &c.server.opts
	c.checkProbes(now)
	quiet := now.Sub(c.ec.LastRead())
	switch {
	case !c.connected && c.unheard():
		c.opened = now
	case !c.connected:
		if now.Sub(c.opened) > o.HandshakeTimeout {
			c.say(kindHandshake, "Connection closed: no CONNECT in time")
			c.ec.Close(errHandshake)
		}
	case c.stuck.check(now, c.ec.Outbound(), c.maxOutbound()) > 2*o.KeepAliveInterval:
		c.say(kindSlowReader, "Connection closed: client does not read", "unread", c.ec.Outbound())
		c.ec.Close(errSlowReader)
	case c.unheard():
		c.pinged = time.Time{}
	case !c.pinged.IsZero():
		if now.Sub(c.pinged) > o.KeepAliveInterval {
			c.say(kindKeepAlive, "Connection closed: no answer to PING", "quiet", quiet)
			c.ec.Close(errKeepAlive)
		}
	case quiet > o.KeepAliveInterval:
		c.ping(now)
	}
}

// unheard reports whether what the client sends is not read, so that its silence says nothing.
func (c *conn) unheard() bool { return c.ec.Paused() || c.ec.Loop().Held() }

// stuck measures how long a client has not read anything of much output.
type stuck struct {
	since time.Time
	bytes int
}

func (s *stuck) check(now time.Time, outbound, most int) time.Duration {
	if outbound < most || outbound < s.bytes || s.since.IsZero() {
		s.since = now
	}
	s.bytes = outbound
	return now.Sub(s.since)
}

func (c *conn) ping(now time.Time) {
	c.pinged = now
	c.state.buf = protocol.AppendPing(c.state.buf[:0])
	c.write(c.state.buf)
}

// frame handles one frame.
func (c *conn) frame(root *eventloop.Root, b []byte) error {
	f := &c.state.frame
	if err := f.Parse(b); err != nil {
		return c.broken(err, b)
	}
	var cmd *command
	if f.Type >= 0 && int(f.Type) < len(c.server.commands) {
		cmd = &c.server.commands[f.Type]
	}
	if cmd == nil || cmd.hot == nil && cmd.handle == nil {
		return c.violation("unexpected command", "command", f.Type.String())
	}
	if !c.connected && f.Type != pulsarpb.BaseCommand_CONNECT {
		return c.violation("command before CONNECT", "command", f.Type.String())
	}
	c.cool.spend(f.Type)
	if cmd.hot != nil {
		return cmd.hot(c, root)
	}
	var base pulsarpb.BaseCommand
	if err := f.Unmarshal(&base); err != nil {
		return c.broken(err, b)
	}
	return cmd.handle(c, &base)
}

// write puts output in the connection's buffer.
func (c *conn) write(b []byte) {
	if len(b) > 0 && !c.closed {
		c.ec.Write(b)
		if !c.ec.Writable() {
			c.sink.full.Store(true)
		}
	}
}

// reply sends a command that the generated code encodes.
func (c *conn) reply(cmd *pulsarpb.BaseCommand) {
	b, err := protocol.AppendCommand(c.state.buf[:0], cmd)
	if err != nil { // a required field was left out: a fault of ours
		c.server.log.Error("Answer does not encode", "error", err)
		return
	}
	c.state.buf = b
	c.write(b)
}

// fail answers a request with ERROR.
func (c *conn) fail(request uint64, err error) {
	code := c.server.codeOf(err)
	c.server.log.Debug("Request failed", "remote", c.remote, "code", code, "error", err)
	c.state.buf = protocol.AppendError(c.state.buf[:0], request, code, c.server.text(code, err))
	c.write(c.state.buf)
}

// succeed answers a request with SUCCESS.
func (c *conn) succeed(request uint64) {
	c.state.buf = protocol.AppendSuccess(c.state.buf[:0], request)
	c.write(c.state.buf)
}

// post runs f on the connection's loop, unless the connection is closed by then. Any goroutine.
func (c *conn) post(f func()) {
	c.state.out.loop.Post(eventloop.TaskFunc(f))
}

// say logs a complaint about this connection.
func (c *conn) say(k kind, text string, args ...any) {
	c.server.complain.say(k, time.Now(), text, append([]any{"remote", c.remote, "client", c.clientVersion}, args...)...)
}

// broken logs what is wrong with bytes from the wire and returns the error that closes the connection.
func (c *conn) broken(err error, data []byte) error {
	if f := protocol.Sniff(data); f != protocol.NotForeign && !c.connected {
		hint := "use the TLS port, pulsar+ssl://"
		if f == protocol.HTTP {
			hint = "use the web service port"
		}
		c.say(kindForeign, fmt.Sprintf("Connection closed: %s on the plain Pulsar port, %s", f, hint))
		return fmt.Errorf("%w: %s", errProtocol, f)
	}
	c.say(kindOf(err), "Connection closed: "+err.Error())
	return err
}

// violation logs a command that must not come now.
func (c *conn) violation(text string, args ...any) error {
	c.say(kindOutOfOrder, "Connection closed: "+text, args...)
	return fmt.Errorf("%w: %s", errProtocol, text)
}
