package eventloop

import (
	"net"
	"time"

	"geminga/pkg/invariant"
)

// netLink serves a connection of any kind with a goroutine that reads and, once there is something to write, one that
// writes. Both only move bytes: whatever they did is handled on the loop, so that a handler sees no difference.
//
//	loop: room ──requests──▶ reader: conn.Read ──signalRead──▶ loop: deliver, settle, room …
//	loop: segments ──▶ writer: conn.Write ──signalWritten──▶ loop: release, write the rest …
//
// A buffer belongs to exactly one side at a time (in.lent, out.lent). Close of the connection ends a call under way;
// the buffers are given back when the goroutine has reported.
type netLink struct {
	c    *Conn
	conn net.Conn

	reads  chan []byte // to the reader; capacity 1
	read   result      // by the reader, before its signal
	size   int         // of the next read into an empty root
	dead   bool        // reader has reported an error
	hasty  bool        // hurry was called
	closed bool

	writes chan struct{} // to the writer; nil until it is needed
	buffer net.Buffers   // what the writer writes
	backup [][]byte      // memory of buffer
	wrote  result
}

type result struct {
	n   int
	err error
}

func newNetLink(c *Conn, conn net.Conn) *netLink {
	return &netLink{c: c, conn: conn, size: c.loop.group.options.RootMin}
}

func (k *netLink) start() error {
	k.reads = make(chan []byte, 1)
	k.c.loop.helpers++
	k.c.loop.group.wg.Go(k.reader)
	k.rearm()
	return nil
}

func (k *netLink) discard() { _ = k.conn.Close() }

// rearm asks for the next read unless one is under way.
func (k *netLink) rearm() {
	c := k.c
	if k.reads == nil || c.in.lent || !c.readable() || c.gone || k.dead {
		return
	}
	room := k.room()
	k.reads <- room[:c.allowed(len(room))]
	c.in.lent = true
}

// room returns where the reader puts the next bytes. An idle connection holds this room, so it stays at most the start
// size; frames that are longer make it grow.
func (k *netLink) room() []byte {
	c, in := k.c, &k.c.in
	if in.root == nil {
		in.root = c.loop.group.pool.get(k.size)
		in.start, in.end = 0, 0
	} else if !c.roomy() {
		c.grow()
	}
	return in.root.buf[in.end:]
}

func (k *netLink) reader() {
	for buf := range k.reads {
		n, err := k.conn.Read(buf)
		k.read = result{n, err}
		k.c.loop.signal(signal{k, signalRead})
		if err != nil {
			break
		}
	}
	k.c.loop.signal(signal{k, signalEnded})
}

// lastWrite is how long a write may take that is under way when the connection ends.
const lastWrite = time.Second

func (k *netLink) hurry() {
	if !k.hasty {
		k.hasty = true
		_ = k.conn.SetWriteDeadline(time.Now().Add(lastWrite))
	}
}

func (k *netLink) handle(s signal) {
	switch s.kind {
	case signalRead:
		k.handleRead()
	case signalWritten:
		k.handleWritten()
	case signalEnded:
		k.c.loop.helpers--
	}
}

func (k *netLink) handleRead() {
	c, r := k.c, k.read
	c.in.lent = false
	k.dead = r.err != nil
	switch {
	case k.closed:
		c.in.drop()
		return
	case c.lingers && k.dead:
		c.loop.release(c)
		return
	case c.lingers:
		k.discardNext()
		return
	}
	if r.n > 0 && !c.gone {
		c.loop.load.bytesIn += int64(r.n)
		k.adapt(r.n)
		c.received(r.n)
		if !c.paused {
			c.deliver()
		}
		c.settle()
	}
	if r.err != nil && !c.gone {
		c.failed(r.err)
		return
	}
	k.rearm()
}

// adapt makes the next root fit what a read brings.
func (k *netLink) adapt(n int) {
	o := &k.c.loop.group.options
	switch {
	case n >= k.size:
		k.size = min(2*k.size, o.RootStart)
	case n < k.size/4:
		k.size = max(k.size/2, o.RootMin)
	}
}

// deserted asks the kernel, where there is one below the connection.
func (k *netLink) deserted() bool {
	return !k.c.in.lent && !k.dead && !k.c.draining && hungUp(k.conn)
}

// shut closes the sending half, which only some kinds of connections can. TLS may block on it.
func (k *netLink) shut() bool {
	half, ok := k.conn.(interface{ CloseWrite() error })
	if !ok || k.dead || k.reads == nil {
		return false
	}
	k.aside(func() { _ = half.CloseWrite() })
	if !k.c.in.lent {
		k.discardNext()
	}
	return true
}

// discardNext reads over what was read before.
func (k *netLink) discardNext() {
	in := &k.c.in
	in.unqueue()
	in.start, in.end, in.need = 0, 0, 0
	k.reads <- k.room()
	in.lent = true
}

// aside runs what may block on a goroutine that the loop waits for before it ends.
func (k *netLink) aside(f func()) {
	k.c.loop.helpers++
	k.c.loop.group.wg.Go(func() {
		f()
		k.c.loop.signal(signal{k, signalEnded})
	})
}

// maxBuffers is how many segments one write takes.
const maxBuffers = 128

func (k *netLink) write() {
	c := k.c
	if c.out.lent || k.reads == nil {
		return
	}
	if k.writes == nil {
		k.writes = make(chan struct{}, 1)
		c.loop.helpers++
		c.loop.group.wg.Go(k.writer)
	}
	k.backup = k.backup[:0]
	for _, s := range c.out.segments[c.out.head:] {
		if len(k.backup) == maxBuffers {
			break
		}
		k.backup = append(k.backup, s.data)
	}
	k.buffer = k.backup
	c.out.lent = true
	k.writes <- struct{}{}
}

func (k *netLink) writer() {
	_, gathers := k.conn.(*net.TCPConn)
	for range k.writes {
		if gathers {
			n, err := k.buffer.WriteTo(k.conn)
			k.wrote = result{int(n), err}
		} else {
			k.wrote = k.gather()
		}
		k.c.loop.signal(signal{k, signalWritten})
	}
	k.c.loop.signal(signal{k, signalEnded})
}

// gather writes short segments together, because each Write to TLS is a record.
func (k *netLink) gather() (total result) {
	const record = 16 << 10
	scratch := k.c.loop.group.pool.get(record)
	defer scratch.unhold()
	for len(k.buffer) > 0 {
		b := k.buffer[0]
		k.buffer = k.buffer[1:]
		if len(b) < record && len(k.buffer) > 0 {
			n := copy(scratch.buf, b)
			for len(k.buffer) > 0 && n+len(k.buffer[0]) <= record {
				n += copy(scratch.buf[n:], k.buffer[0])
				k.buffer = k.buffer[1:]
			}
			b = scratch.buf[:n]
		}
		n, err := k.conn.Write(b)
		total.n += n
		if err != nil {
			total.err = err
			return total
		}
	}
	return total
}

func (k *netLink) handleWritten() {
	c, w := k.c, k.wrote
	c.out.lent = false
	clear(k.backup)
	if k.closed {
		c.dropOutbound()
		return
	}
	c.loop.load.bytesOut += int64(w.n)
	c.written(w.n)
	if w.err != nil {
		c.Close(w.err)
		return
	}
	c.markDirty() // more to write, or water marks to look at
}

// close ends the goroutines. Closing a TLS connection may block, so the writer's place is taken by a helper for that.
func (k *netLink) close() {
	invariant.Assert(!k.closed, "connection closed twice")
	k.closed = true
	if k.reads != nil {
		close(k.reads)
	}
	if k.writes != nil {
		close(k.writes)
	}
	if _, plain := k.conn.(*net.TCPConn); plain {
		_ = k.conn.Close()
		return
	}
	k.aside(func() { _ = k.conn.Close() })
}
