package broker

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// ended returns how long it takes until the connection ends; what comes before is given to heard.
func ended(p *peer, heard func(*pulsarpb.BaseCommand)) time.Duration {
	start := time.Now()
	for {
		cmd, _, err := p.frame()
		if err != nil {
			return time.Since(start)
		}
		heard(cmd)
	}
}

// between fails unless a deadline was kept to the precision of ticks.
func between(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want || got > want+3*time.Second {
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}

// The deadlines of a connection, by the clock: for CONNECT, for a sign of life, for the answer to PING; none for whoever
// answers, however long it has nothing else to say.
func TestKeepAliveByTheClock(t *testing.T) {
	const keepAlive, handshake = 4 * time.Second, 6 * time.Second // twice the one and the other are less than peers wait
	bubble(t, func(o *Options) { o.KeepAliveInterval, o.HandshakeTimeout = keepAlive, handshake }, func(g *stage) {
		_ = g.conn.Close()
		ignore := func(*pulsarpb.BaseCommand) {}

		silent := pipe(g.t, g.s)
		between(t, "closed without CONNECT", ended(silent, ignore), handshake)

		half := pipe(g.t, g.s) // a part of CONNECT is no CONNECT
		half.write([]byte{0, 0, 0, 20, 0, 0})
		between(t, "closed with a part of CONNECT", ended(half, ignore), handshake)

		gone := pipe(g.t, g.s) // reads, but its client is dead: a half-open connection whose kernel still takes bytes
		gone.handshake()
		pings := 0
		took := ended(gone, func(cmd *pulsarpb.BaseCommand) {
			if cmd.GetType() == pulsarpb.BaseCommand_PING {
				pings++
			}
		})
		between(t, "closed without PONG", took, 2*keepAlive)
		if pings != 1 {
			t.Errorf("%d pings", pings)
		}

		idle := pipe(g.t, g.s)
		idle.handshake()
		start, answered := time.Now(), 0
		for time.Since(start) < time.Hour {
			idle.expect(pulsarpb.BaseCommand_PING)
			idle.write(protocol.AppendPong(nil))
			answered++
		}
		if most := int(time.Hour / keepAlive); answered > most || answered < most*6/10 {
			t.Errorf("%d pings in an hour, at most %d", answered, most)
		}

		dead := pipe(g.t, g.s) // takes nothing, as behind a broken network
		dead.handshake()
		elapse(2*keepAlive + 5*time.Second)
		synctest.Wait()
		if _, err := dead.conn.Write([]byte{0}); err != io.ErrClosedPipe {
			t.Errorf("alive after two keep-alive intervals of nothing: %v", err)
		}
		_ = idle.conn.Close()
	})
}
