package topic

import (
	"time"

	"geminga/pkg/executor"
)

// takeover is the change of the active consumer of a failover subscription. Whoever connects may become active at once,
// but nothing is delivered to the new one, and nobody is told, before activeConsumerFailoverDelayTimeMillis have passed:
// when many consumers come one after the other only the last change counts, and the one that was active has time to
// acknowledge what it has got.
//
//	active A, serving A ──B comes──▶ active B, serving A: nothing is delivered ──delay──▶ active B, serving B: starts
//	         ▲───────────B leaves────────────┘                                            over, all are told
type takeover struct {
	serving *Consumer // is given messages while it is active
	due     time.Time // when the active one will be served, if it is not
	timer   *executor.Timer
	onTimer executor.Task
}

// notice is what a consumer was told about itself.
type notice uint8

const (
	toldNothing notice = iota
	toldActive
	toldInactive
)

func (s *subscription) setUpTakeover() {
	s.takeover.onTimer = executor.Func(func() {
		s.takeover.timer = nil
		if wait := time.Until(s.takeover.due); wait > 0 && s.taker() == nil {
			s.scheduleTakeover(wait) // it was for a notice only
			return
		}
		s.takeOver()
		s.pump()
	})
}

// taker is the consumer that is given messages of an exclusive or failover subscription; nil: none.
func (s *subscription) taker() *Consumer {
	if s.active == s.takeover.serving {
		return s.active
	}
	return nil
}

// elect chooses the active consumer of a failover subscription among those of the first priority level: topics and
// partitions spread over them (nextActive). A new one starts with what the last one has not acknowledged.
func (s *subscription) elect() {
	if !s.single() {
		return
	}
	settled := s.taker() != nil || s.active == nil
	s.active = nil
	if len(s.consumers) > 0 {
		first := 1
		for first < len(s.consumers) && s.consumers[first].PriorityLevel == s.consumers[0].PriorityLevel {
			first++
		}
		s.active = s.nextActive(s.consumers[:first])
	}
	if s.active == nil || s.noDelay() {
		s.takeOver()
		return
	}
	if settled {
		s.takeover.due = time.Now().Add(s.opts.ActiveConsumerFailoverDelay)
	}
	s.scheduleTakeover(s.opts.ActiveConsumerFailoverDelay)
}

func (s *subscription) noDelay() bool {
	return s.kind != Failover || s.opts.ActiveConsumerFailoverDelay <= 0
}

// scheduleTakeover starts a delay, if something is to happen after it. One that is running is not prolonged.
func (s *subscription) scheduleTakeover(d time.Duration) {
	due := s.active != s.takeover.serving
	for _, c := range s.consumers {
		due = due || c.told != s.noticeFor(c)
	}
	if due && s.takeover.timer == nil {
		s.takeover.timer = s.exec.After(d, s.takeover.onTimer)
	}
}

// takeOver lets the active consumer have what is not acknowledged.
func (s *subscription) takeOver() {
	if s.active != s.takeover.serving {
		s.takeover.serving = s.active
		s.startOver()
	}
	s.announce()
}

// announce tells consumers of a failover subscription whether they are active. A consumer that has just come is told a
// little later: it must not be before it knows that it is connected, and its client may not be ready for it at once.
func (s *subscription) announce() {
	if s.kind != Failover || s.active != s.takeover.serving {
		return
	}
	grace := s.opts.ActiveConsumerFailoverDelay / 10
	for _, c := range s.consumers {
		if n := s.noticeFor(c); c.told != n && c.answered && time.Since(c.ConnectedSince) >= grace {
			c.told = n
			c.Sink.ActiveChanged(c, n == toldActive)
		}
	}
	if !s.noDelay() {
		s.scheduleTakeover(grace)
	}
}

func (s *subscription) noticeFor(c *Consumer) notice {
	if c == s.active {
		return toldActive
	}
	return toldInactive
}

// stop is for the end of all consumers.
func (t *takeover) stop() {
	t.serving = nil
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}
