package eventloop

import (
	"io"
	"net"
	"time"
)

// Conn is one connection. It lives on one loop, and except for Loop, ID, LocalAddr and RemoteAddr its methods may only
// be called there: in a method of the Handler or in a task posted to the loop.
//
//	arrives ──Opened──▶ open ──Close, EOF, error──▶ gone ──end of the turn: Closed──▶ (slot free)
//	                     │ CloseAfterFlush            ▲
//	                     └──▶ draining ──all written──┘  and lingers (linger.go)
//
// Once gone, nothing is read, delivered or written any more; calls are harmless.
type Conn struct {
	loop          *Loop
	id            uint64
	slot          int32
	remote, local net.Addr
	context       any
	lastRead      time.Time
	link          link
	in            inbound
	out           outbound

	paused    bool // by PauseRead
	redeliver bool // is in loop.resumed
	dirty     bool // is in loop.dirty
	full      bool // has been above high water and not yet below low water
	draining  bool // goes when its output is written
	gone      bool // is in loop.closing, or past it
	eof       bool // goes at the end of the turn, after one attempt to write
	polite    bool // is to linger once gone
	lingers   bool // is gone for the handler, but its socket is not freed
	freed     bool
	err       error
}

// link is how the bytes of a connection travel: a socket on the loop's epoll, or two goroutines.
type link interface {
	start() error   // begin to read
	rearm()         // reading was resumed, or may go on
	write()         // write c.out, as much as can be
	hurry()         // a write that is under way is the last one
	deserted() bool // the peer has gone and nobody would notice, because nothing is read
	shut() bool     // close the sending half and discard what comes, until release; false: that cannot be done
	close()         // free the socket; called once
	discard()       // close a connection that never was opened
	handle(s signal)
}

// signal is the result of a helper goroutine.
type signal struct {
	link link
	kind signalKind
}

type signalKind uint8

const (
	signalRead signalKind = iota
	signalWritten
	signalEnded
)

// Loop returns the loop that the connection lives on.
func (c *Conn) Loop() *Loop { return c.loop }

// ID returns a number that no other connection of the group has had.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr returns the own address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// Context returns what SetContext has stored.
func (c *Conn) Context() any { return c.context }

// SetContext stores the handler's state of this connection.
func (c *Conn) SetContext(v any) { c.context = v }

// LastRead returns the beginning of the turn in which bytes last arrived, or in which the connection was opened.
func (c *Conn) LastRead() time.Time { return c.lastRead }

// Closed reports whether the connection is gone, or about to.
func (c *Conn) Closed() bool { return c.gone }

// PauseRead stops the reading of the socket and further calls of Data. Called in Data, it does not stop that call; what
// the call leaves unconsumed is kept. A TLS handshake is part of reading: a connection paused in Opened waits with it.
func (c *Conn) PauseRead() {
	c.check()
	c.paused = true
}

// Paused reports whether reading is paused.
func (c *Conn) Paused() bool { return c.paused }

// readable reports whether the socket may be read: the connection is not paused and its loop does not hold reads, or
// the rest of a frame is missing that has begun to arrive.
func (c *Conn) readable() bool {
	return !c.paused && (!c.loop.held || c.in.begun() > 0)
}

// allowed returns how much of n bytes of room the next read may fill: while the loop holds reads, up to the end of the
// frame.
func (c *Conn) allowed(n int) int {
	if c.loop.held {
		return min(n, c.in.begun())
	}
	return n
}

// ResumeRead undoes PauseRead. Bytes that were read and not consumed are handed to Data in the next turn, also when none
// follow them and while the loop holds reads.
func (c *Conn) ResumeRead() {
	c.check()
	if !c.paused || c.gone || c.draining || c.eof {
		return
	}
	c.paused = false
	if !c.redeliver {
		c.redeliver = true
		c.loop.resumed = append(c.loop.resumed, c)
	}
}

// Close closes the connection at the end of the turn. Output that is not written yet is dropped. Closed gets err.
func (c *Conn) Close(err error) {
	c.check()
	if c.gone {
		return
	}
	c.gone = true
	if !c.eof { // whose reason came first
		c.err = err
	}
	c.loop.closing = append(c.loop.closing, c)
}

// CloseAfterFlush stops reading and closes the connection when its output is written, so that it reaches a peer that is
// still sending. A peer that has not read it within Options.Linger does not get the rest.
func (c *Conn) CloseAfterFlush(err error) {
	c.check()
	if c.gone || c.draining {
		return
	}
	c.draining = true
	c.paused = true
	if !c.eof {
		c.err = err
	}
	c.loop.depart(c)
	c.markDirty()
}

// end closes the connection at the end of the turn, after one attempt to write its output.
func (c *Conn) end(err error) {
	if c.gone || c.eof {
		return
	}
	c.eof = true
	c.paused = true
	if c.err == nil {
		c.err = err
	}
	c.markDirty()
}

// check panics in invariants builds when the caller is not on the loop.
func (c *Conn) check() { c.loop.owner.Check("connection") }

// deliver hands the unconsumed bytes to the handler.
func (c *Conn) deliver() {
	in := &c.in
	if have := in.end - in.start; have == 0 || have < in.need || c.gone {
		return
	}
	in.root.chargeTo(c.loop.group.account.Load())
	consumed, need, err := c.loop.group.handler.Data(c, in.root, in.root.buf[in.start:in.end:in.end])
	in.advance(consumed, need)
	if err != nil {
		c.CloseAfterFlush(err)
	}
}

// failed ends the connection because reading failed. io.EOF leaves a last chance to write.
func (c *Conn) failed(err error) {
	if err == io.EOF { //nolint:errorlint // read returns it bare
		c.end(err)
		return
	}
	c.Close(err)
}

// flush writes, and draws the consequences of what was written.
func (c *Conn) flush() {
	if c.gone {
		return
	}
	if c.out.bytes > 0 {
		c.link.write()
	}
	if c.gone {
		return
	}
	if c.eof && c.out.lent {
		c.link.hurry()
		return
	}
	if c.eof || c.draining && c.out.bytes == 0 {
		c.polite = !c.eof
		c.Close(c.err)
		return
	}
	c.relieve()
}

func (c *Conn) markDirty() {
	if !c.dirty && !c.gone {
		c.dirty = true
		c.loop.dirty = append(c.loop.dirty, c)
	}
}

// release gives back the buffers, except those that a helper goroutine still uses.
func (c *Conn) release() {
	if !c.in.lent {
		c.in.drop()
	}
	if !c.out.lent {
		c.dropOutbound()
	}
}
