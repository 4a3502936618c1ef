package eventloop

import "sync/atomic"

// budget bounds what the connections of a loop have to write together: its share of Options.MaxOutbound. A peer that
// does not read keeps what it was given, so many of them take the memory of all; above the share nobody gets anything
// before everything that it got before is written.
//
//	          used > share: whoever has output left is full
//	ample ─────────────────────────────────────────────────▶ tight: high water is the first byte, low water is none
//	      ◀─────────────────────────────────────────────────
//	          used ≤ share/2: whoever is down to low water is told writable
//
// So a slow peer keeps what it has and gets no more, and one that reads goes on, a batch a turn. What is handed over in
// one go is for the handler to bound (Loop.OutboundRoom). Written on the loop only.
type budget struct {
	share int64 // 0: no limit
	used  atomic.Int64
	tight atomic.Bool
}

// noRoomLimit is the room of a loop without a limit.
const noRoomLimit = 1 << 40

// OutboundRoom returns how many bytes the connections of the loop may be given before it is short of room: 0 while it
// is. Any goroutine.
func (l *Loop) OutboundRoom() int64 {
	b := &l.budget
	switch {
	case b.share == 0:
		return noRoomLimit
	case b.tight.Load():
		return 0
	}
	return max(0, b.share-b.used.Load())
}

// OutboundTight reports whether the connections of the loop have more to write than its share, or had and are not down
// to half of it. Any goroutine.
func (l *Loop) OutboundTight() bool { return l.budget.tight.Load() }

// marks returns the high-water and the low-water mark.
func (l *Loop) marks() (high, low int) {
	if l.budget.tight.Load() {
		return 1, 0
	}
	return l.group.options.HighWater, l.group.options.LowWater
}

// queued counts output that was added to, or taken from, a connection.
func (l *Loop) queued(n int) {
	b := &l.budget
	used := b.used.Add(int64(n))
	if b.share == 0 || used <= b.share || b.tight.Load() {
		return
	}
	b.tight.Store(true)
	for _, c := range l.conns {
		if c != nil && c.out.bytes > 0 {
			c.full = true
		}
	}
}

// rebalance ends a turn: a loop that was tight may be so no more.
func (l *Loop) rebalance() {
	b := &l.budget
	if b.tight.Load() && b.used.Load() <= b.share/2 {
		b.tight.Store(false)
		for _, c := range l.conns {
			if c != nil {
				c.relieve()
			}
		}
	}
}

// relieve tells the handler that a full connection is down to the low-water mark, if it is.
func (c *Conn) relieve() {
	if _, low := c.loop.marks(); c.full && !c.gone && c.out.bytes <= low {
		c.full = false
		if w := c.loop.group.writable; w != nil {
			w.Writable(c)
		}
	}
}
