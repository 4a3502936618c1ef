package eventloop

import "time"

// park is the poller of a loop that has no sockets of its own: it waits for wake only. A channel, so that an idle loop
// counts as blocked in testing/synctest bubbles.
type park struct{ woken chan struct{} }

func newPark() *park { return &park{woken: make(chan struct{}, 1)} }

func (p *park) poll(l *Loop, block bool) {
	if block {
		<-p.woken
		l.now = time.Now()
	}
}

func (p *park) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func (p *park) sockets() *epoll { return nil }

func (p *park) close() {}
