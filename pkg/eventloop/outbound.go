package eventloop

const (
	// referFrom is the length from which on WriteRef refers instead of copying. A segment costs an iovec and two atomic
	// operations, about what copying 1 KiB costs.
	referFrom  = 1 << 10
	chunkStart = 1 << 10
	chunkMax   = 64 << 10
)

// segment is a piece of output. The owner is given back when it is written.
type segment struct {
	data  []byte
	owner Owner
}

// outbound is the output of a connection that is not written yet. Small writes are copied into chunks, one after another
// so that one segment covers many; large ones are referred to. A connection with nothing to write holds no chunk.
type outbound struct {
	segments []segment
	head     int // segments before it are written
	bytes    int // in segments[head:]
	chunk    *Root
	used     int  // of chunk
	next     int  // size of the next chunk
	lent     bool // a helper goroutine is writing from the segments
}

// Write copies b into the outbound buffer. It is written at the end of the turn.
func (c *Conn) Write(b []byte) {
	c.check()
	if c.gone || c.eof || c.draining || len(b) == 0 {
		return
	}
	for len(b) > 0 {
		room := c.Reserve(min(len(b), chunkMax))
		n := copy(room, b)
		c.out.commit(n)
		b = b[n:]
		c.wrote(n)
	}
}

// WriteRef writes data without copying it, unless it is short. The owner is retained until it is written or the
// connection is closed; nil means garbage-collected memory. data must not change meanwhile.
func (c *Conn) WriteRef(data []byte, owner Owner) {
	c.check()
	if len(data) < referFrom {
		c.Write(data)
		return
	}
	if c.gone || c.eof || c.draining {
		return
	}
	if owner != nil {
		owner.Retain()
	}
	c.out.segments = append(c.out.segments, segment{data, owner})
	c.out.bytes += len(data)
	c.wrote(len(data))
}

// Reserve returns n bytes of room (at most 64 KiB) in the outbound buffer, for encoders that write in place. They count
// after Commit, which follows before anything else is written.
func (c *Conn) Reserve(n int) []byte {
	c.check()
	if c.gone {
		return make([]byte, n) // goes nowhere
	}
	o := &c.out
	if o.chunk == nil || o.used+n > o.chunk.Cap() {
		o.open(&c.loop.group.pool, n)
	}
	return o.chunk.buf[o.used : o.used+n]
}

// Commit takes the first n bytes of the room that Reserve returned as written.
func (c *Conn) Commit(n int) {
	c.check()
	if c.gone || c.eof || c.draining || n == 0 {
		return
	}
	c.out.commit(n)
	c.wrote(n)
}

// Outbound returns the number of bytes that are not written yet.
func (c *Conn) Outbound() int { return c.out.bytes }

// Writable reports whether the outbound buffer is below the high-water mark. Once it is not, it stays so until the
// low-water mark. While the loop is short of room for output, the marks are one byte and none.
func (c *Conn) Writable() bool { return !c.full && !c.gone }

// wrote draws the consequences of n bytes more.
func (c *Conn) wrote(n int) {
	c.loop.queued(n)
	if high, _ := c.loop.marks(); c.out.bytes >= high {
		c.full = true
	}
	c.markDirty()
}

// written takes note that the first n bytes are written.
func (c *Conn) written(n int) {
	c.loop.queued(-n)
	c.out.written(n)
}

// dropOutbound gives everything back that is not written.
func (c *Conn) dropOutbound() {
	c.loop.queued(-c.out.bytes)
	c.out.drop()
}

// open begins a new chunk for n bytes or more.
func (o *outbound) open(p *pool, n int) {
	if o.chunk != nil {
		o.chunk.unhold()
	}
	size := max(o.next, chunkStart)
	o.chunk, o.used = p.get(max(n, size)), 0
	o.next = min(2*size, chunkMax)
}

// commit appends the next n bytes of the chunk to the last segment, or makes a new one.
func (o *outbound) commit(n int) {
	from, to := o.used, o.used+n
	o.used = to
	o.bytes += n
	if last := len(o.segments) - 1; last >= o.head {
		s := &o.segments[last]
		// A segment that ends where this one begins, in the same chunk, is made longer. from > 0: the first bytes of a
		// chunk never continue a segment, even one whose memory lies right before.
		if s.owner == Owner(o.chunk) && from > 0 {
			s.data = s.data[:len(s.data)+n]
			return
		}
	}
	o.chunk.Retain()
	o.segments = append(o.segments, segment{o.chunk.buf[from:to:o.chunk.Cap()], o.chunk})
}

// written drops the first n bytes.
func (o *outbound) written(n int) {
	o.bytes -= n
	for n > 0 {
		s := &o.segments[o.head]
		if n < len(s.data) {
			s.data = s.data[n:]
			return
		}
		n -= len(s.data)
		if s.owner != nil {
			s.owner.Release()
		}
		*s = segment{}
		o.head++
	}
	if o.bytes == 0 {
		o.reset()
		return
	}
	if o.head > 64 && o.head > len(o.segments)/2 {
		rest := copy(o.segments, o.segments[o.head:])
		clear(o.segments[rest:])
		o.segments, o.head = o.segments[:rest], 0
	}
}

// reset gives back the chunk of an empty buffer. The next one starts with half the size, so that it follows the need.
func (o *outbound) reset() {
	o.segments, o.head = o.segments[:0], 0
	if cap(o.segments) > 64 {
		o.segments = nil
	}
	if o.chunk != nil {
		o.next = max(o.next/2, chunkStart)
		if o.used <= o.chunk.Cap()/4 {
			o.next = max(o.next/2, chunkStart)
		}
		o.chunk.unhold()
		o.chunk, o.used = nil, 0
	}
}

// drop gives everything back.
func (o *outbound) drop() {
	for _, s := range o.segments[o.head:] {
		if s.owner != nil {
			s.owner.Release()
		}
	}
	o.segments, o.head, o.bytes = nil, 0, 0
	if o.chunk != nil {
		o.chunk.unhold()
		o.chunk = nil
	}
}
