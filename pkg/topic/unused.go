package topic

import "time"

// use is what a topic knows about being used, for UnusedFor.
type use struct {
	count uint64    // of those who came
	since time.Time // of the first look that found nobody; zero: the last one found somebody
	seen  uint64    // count at that look
}

// UnusedFor tells for how long nobody has used the topic, as far as calls of this method have seen: the time since the
// first of them that found it unused, with nobody since then; 0 when it is in use. A topic is unused when it has no
// producers, no consumers and no subscriptions; with caughtUp, subscriptions that have no backlog do not count. done comes on
// the topic's executor: what it does at once is done before anybody can come.
func (t *Topic) UnusedFor(caughtUp bool, done func(time.Duration)) {
	t.exec.AssertCurrent()
	u := &t.use
	if !t.Idle() || len(t.slots) > 0 && !caughtUp {
		u.since = time.Time{}
		done(0)
		return
	}
	came, waiting, backlog := u.count, 1, int64(0)
	finish := func() {
		if waiting--; waiting > 0 {
			return
		}
		now := time.Now()
		if backlog > 0 || u.count != came || !t.Idle() || t.state != running {
			u.since = time.Time{}
			done(0)
			return
		}
		if u.since.IsZero() || u.count != u.seen {
			u.since, u.seen = now, u.count
		}
		done(now.Sub(u.since))
	}
	for _, s := range t.slots {
		waiting++
		s.sub.exec.PostFunc(func() {
			n := s.sub.cursor.Backlog()
			t.exec.PostFunc(func() {
				backlog += n
				finish()
			})
		})
	}
	finish()
}
