package eventloop

import "geminga/pkg/invariant"

const (
	minRead      = 1 << 10 // smallest room worth a read
	smallPartial = 4 << 10 // an unfinished frame up to this length is copied rather than read on in place
)

// inbound is what a connection has read and the handler has not consumed: root.buf[start:end].
//
// Memory follows the bytes received, not those announced:
//
//  1. A connection with nothing unconsumed holds no root between turns (a portable one holds the one its goroutine reads
//     into, of 1 KiB unless more arrives at a time).
//  2. One with n unconsumed bytes holds a root of at most max(2n, smallest root), rounded up to a class.
//
// On epoll, reads go into the root that all connections of the loop share, behind one another; so a root is full of
// frames whatever their size and however many connections they come from, and what one small frame keeps in memory is
// little more than itself. What remains of an unfinished frame is moved out of the shared root at once: one byte a
// connection would keep it alive. A short remainder is copied back in front of the next read; a long one stays in a root
// of its own, which doubles, until the frame is complete.
type inbound struct {
	root       *Root
	start, end int
	need       int  // total bytes from start on that the handler wants, 0 if unknown
	shared     bool // root is the loop's; the connection holds no reference
	lent       bool // a helper goroutine reads into root
	queued     bool // root is kept, because frames in it wait for reading to be resumed
}

func (in *inbound) len() int { return in.end - in.start }

// missing returns how many bytes the handler waits for, 0 if it is not known.
func (in *inbound) missing() int { return max(0, in.need-in.len()) }

// begun is missing for a frame of which something is there.
func (in *inbound) begun() int {
	if in.len() == 0 {
		return 0
	}
	return in.missing()
}

// advance takes note of what the handler consumed and needs.
func (in *inbound) advance(consumed, need int) {
	if consumed < 0 || consumed > in.len() {
		invariant.Broken("handler consumed %d of %d bytes", consumed, in.len())
	}
	in.start += consumed
	in.need = need
	if need <= in.len() {
		in.need = 0
	}
}

// drop gives the root back.
func (in *inbound) drop() {
	in.unqueue()
	if in.root != nil && !in.shared {
		in.root.unhold()
	}
	*in = inbound{}
}

// queue keeps the root for the frames in it that are not delivered yet.
func (in *inbound) queue(a *Account) {
	if !in.queued {
		in.root.chargeTo(a)
		in.root.Retain()
		in.queued = true
	}
}

func (in *inbound) unqueue() {
	if in.queued {
		in.queued = false
		in.root.Release()
	}
}

// move copies the unconsumed bytes into another root, of which it takes over the caller's reference unless shared.
func (in *inbound) move(to *Root, at int, shared bool) {
	n := copy(to.buf[at:], in.root.buf[in.start:in.end])
	in.unqueue()
	if !in.shared {
		in.root.unhold()
	}
	in.root, in.start, in.end, in.shared = to, at, at+n, shared
}

// settle ends the reading of a turn: what remains gets a root of its own that is not much larger.
func (c *Conn) settle() {
	in := &c.in
	if in.root == nil || in.lent {
		return
	}
	have := in.len()
	if have == 0 {
		in.drop()
		return
	}
	if in.shared || have < in.root.Cap()/4 && in.root.Cap() > c.loop.group.options.RootMin {
		size := have
		if have > smallPartial {
			size = min(max(in.need, have), 2*have)
		}
		in.move(c.loop.group.pool.get(max(size, c.loop.group.options.RootMin)), 0, false)
	}
	if c.paused && have >= in.need {
		in.queue(c.loop.group.account.Load())
	} else {
		in.unqueue()
	}
}

// grow gives an unfinished frame a root with more room, at most twice what was received.
func (c *Conn) grow() {
	in := &c.in
	have := in.len()
	size := max(in.need, have+minRead)
	size = min(size, max(2*have, c.loop.group.options.RootMin, have+minRead))
	in.move(c.loop.group.pool.get(size), 0, false)
}

// roomy reports whether the own root has room worth reading into.
func (c *Conn) roomy() bool {
	in := &c.in
	room := in.root.Cap() - in.end
	return room > 0 && (room >= in.missing() || room >= in.len()/8)
}

// room returns where the next bytes of the connection go on a loop that reads by itself.
func (c *Conn) room() []byte {
	in, s := &c.in, &c.loop.shared
	have := in.len()
	short := have <= smallPartial
	left := 0
	if in.shared {
		left = in.root.Cap() - in.end
	}
	switch {
	case left >= minRead && (short || left >= in.missing()):
		// The next read of this turn goes on right behind the last one.
	case short:
		s.ensure(c.loop, have+minRead, in)
		c.join()
	case in.shared || !c.roomy():
		c.grow()
	}
	return in.root.buf[in.end:]
}

// join makes the next read go into the shared root, behind a copy of what is not consumed.
func (c *Conn) join() {
	in, s := &c.in, &c.loop.shared
	if in.len() > 0 {
		in.move(s.root, s.used, true)
		s.used = in.end
		return
	}
	in.drop()
	in.root, in.start, in.end, in.shared = s.root, s.used, s.used, true
}

// received takes note of n bytes that were read into room.
func (c *Conn) received(n int) {
	c.in.end += n
	if c.in.shared {
		c.loop.shared.used = c.in.end
		c.loop.shared.turnBytes += n
	}
	c.lastRead = c.loop.now
}

// sharedRoot is the root that all connections of a loop read into. Its size adapts to what a turn brings.
type sharedRoot struct {
	root      *Root
	used      int
	size      int // of the next one
	turnBytes int
	quiet     int // turns that brought less than a quarter of size
}

// quietTurns is how many quiet turns make the root smaller.
const quietTurns = 64

// ensure sees to n bytes of room. The old root may still hold the unconsumed bytes of keep, which stays valid: a
// reference is taken over by it.
func (s *sharedRoot) ensure(l *Loop, n int, keep *inbound) {
	if s.root != nil && len(s.root.buf)-s.used >= n && !s.outdated(l) {
		return
	}
	if s.root != nil {
		if s.turnBytes >= s.root.Cap() {
			s.size = min(2*s.size, l.group.options.RootMax)
		}
		if keep.shared && keep.root == s.root {
			keep.shared = false // takes over our reference
		} else {
			s.root.unhold()
		}
	}
	if s.size == 0 {
		s.size = l.group.options.RootStart
	}
	s.root, s.used = l.group.pool.get(max(s.size, n)), 0
}

// outdated reports whether frames in the root are charged to another account than that of the group now.
func (s *sharedRoot) outdated(l *Loop) bool {
	return s.root.account != l.group.account.Load() && s.root.kept()
}

// turnEnd reuses the root when nobody has kept a part of it, and adapts the size.
func (s *sharedRoot) turnEnd(o *Options) {
	if s.root != nil && s.used > 0 && s.root.sole() {
		s.root.wipe(0, s.used)
		s.used = 0
	}
	if s.turnBytes == 0 {
		return
	}
	if s.turnBytes < s.size/4 {
		if s.quiet++; s.quiet >= quietTurns {
			s.size, s.quiet = max(s.size/2, o.RootMin), 0
		}
	} else {
		s.quiet = 0
	}
	s.turnBytes = 0
}

func (s *sharedRoot) drop() {
	if s.root != nil {
		s.root.unhold()
		s.root = nil
	}
}
