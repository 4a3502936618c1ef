package eventloop

import "time"

// A connection that is closed after its flush lingers: the kernel answers bytes that come to a closed socket with a
// reset, and a reset makes the peer's kernel throw away what the peer has not read yet, such as the answer that says why.
// So our sending half is closed, and what still comes is discarded until the peer closes its own.
//
//	CloseAfterFlush ──▶ draining ──all written: Closed──▶ lingering ──the peer closes, or Options.Linger──▶ freed
//	                        └──────────────────────── Options.Linger: Closed ─────────────────────────────────▲
//
// For the handler a lingering connection is gone.

// departure is a connection that leaves, and when it has to be gone.
type departure struct {
	c  *Conn
	by time.Time
}

// depart notes that a connection leaves.
func (l *Loop) depart(c *Conn) {
	l.departures = append(l.departures, departure{c, l.now.Add(l.group.options.Linger)})
}

// overdue ends what leaves too slowly. Once a tick.
func (l *Loop) overdue() {
	kept := l.departures[:0]
	for _, d := range l.departures {
		switch {
		case d.c.freed:
		case l.now.Before(d.by):
			kept = append(kept, d)
		case d.c.lingers:
			l.release(d.c)
		default:
			d.c.Close(d.c.err)
		}
	}
	clear(l.departures[len(kept):])
	l.departures = kept
}

// release frees the slot and the socket of a connection.
func (l *Loop) release(c *Conn) {
	c.lingers, c.freed = false, true
	c.link.close()
	c.release()
	l.conns[c.slot] = nil
	l.free = append(l.free, c.slot)
	l.live--
	l.group.left(l)
}
