package broker

import (
	"strings"
	"testing"

	"geminga/pkg/eventloop"
)

// unread returns the output that the broker holds for its clients.
func unread(s *Server) (n int) {
	for i, l := range s.group.Loops() {
		done := make(chan struct{})
		l.Post(eventloop.TaskFunc(func() {
			s.states[i].eachConn(func(c *conn) { n += c.ec.Outbound() })
			close(done)
		}))
		<-done
	}
	return n
}

// Consumers that do not read take no more than the budget of all and one read each, and one that reads beside them gets
// everything; when the others read they get everything too.
func TestSlowConsumersShareABudget(t *testing.T) {
	const deaf, n, size, limit = 50, 60, 10_000, 1 << 20
	s, _ := start(t, func(o *Options) { o.Loops, o.Admission.MaxOutbound = 2, limit })
	in := connect(t, s)
	in.producer(name(1), 1, "")
	body := strings.Repeat("x", size)
	for i := range n {
		in.publish(1, uint64(i), body)
	}
	subscribe := func(sub string) *peer {
		p := pipe(t, s)
		p.handshake()
		p.subscribe(subscribing{topic: name(1), name: sub, id: 1})
		p.flow(1, n)
		return p
	}
	everything := func(p *peer) {
		t.Helper()
		for i := range n {
			if m, _ := p.receive(); m.MessageId.GetEntryId() != uint64(i) {
				t.Fatalf("entry %d instead of %d", m.MessageId.GetEntryId(), i)
			}
		}
	}
	var slow []*peer
	for i := range deaf {
		slow = append(slow, subscribe("slow-"+string(rune('a'+i))))
	}
	eventually(t, "the budget is used up", func() bool { return unread(s) > limit })
	everything(subscribe("fast"))
	// What two loops may have, one read of what is left by then, and the least for each.
	if got, most := unread(s), 2*limit+deaf*(scantRoom+size); got > most {
		t.Errorf("%d bytes for clients that do not read, at most %d are allowed", got, most)
	}
	for _, p := range slow {
		everything(p)
	}
	eventually(t, "all is read", func() bool { return unread(s) == 0 })
}
