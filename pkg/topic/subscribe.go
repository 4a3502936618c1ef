package topic

import (
	"fmt"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// SubType is a subscription type, numbered as in the protocol.
type SubType uint8

// The subscription types.
const (
	Exclusive SubType = iota
	Shared
	Failover
	KeyShared
)

// String returns the name that stats show.
func (t SubType) String() string {
	switch t {
	case Exclusive:
		return "Exclusive"
	case Shared:
		return "Shared"
	case Failover:
		return "Failover"
	case KeyShared:
		return "Key_Shared"
	}
	return fmt.Sprintf("SubType(%d)", uint8(t))
}

// SubscribeRequest asks for a consumer.
type SubscribeRequest struct {
	Subscription  string
	Type          SubType
	Durable       bool
	Existing      bool            // a durable subscription that does not exist is ErrNoSubscription, and is not made
	Start         ledger.Position // of a new subscription: ledger.Earliest, ledger.Latest, or the first entry to deliver
	ConsumerID    uint64
	ConsumerName  string // "": a unique one is made
	PriorityLevel int32  // 0 is served first; not for Key_Shared
	Keys          KeyPolicy
	KeyRanges     []KeyRange // with Keys.Sticky: the consumer's own
	Metadata      map[string]string
	Address       string // of the client, for stats
	ClientVersion string
	Sink          Sink
}

type slotState uint8

const (
	slotOpening slotState = iota
	slotOpen
	slotDeleting // the subscription has ended; its cursor is being removed
)

// slot is the topic's side of a subscription; it belongs to the topic's executor, as the subscription in it belongs to
// its own. A subscription ends on its own executor first and the topic learns of it by a message, so a request may still
// be sent to a subscription that has ended; it is sent back and finds the slot deleting or gone:
//
//	subscription's executor            topic's executor
//	ends, posts "ended"
//	                                   Subscribe: slot open, posts "add consumer"
//	add consumer: ended, posts it back
//	                                   "ended": slot deleting
//	                                   Subscribe again: waits, then opens a new one
type slot struct {
	name    string
	durable bool
	state   slotState
	sub     *subscription
	waiting []func(error) // wait for the state to change; an error is the end of the wait
}

func (s *slot) wake(err error) {
	waiting := s.waiting
	s.waiting = nil
	for _, f := range waiting {
		f(err)
	}
}

// Subscribe connects a consumer, creating the subscription if there is none. done is called once, on the executor of the
// topic or of the subscription. Nothing is delivered before the consumer's first Flow.
func (t *Topic) Subscribe(r SubscribeRequest, done func(*Consumer, error)) {
	if err := t.checkSubscribe(&r); err != nil {
		done(nil, err)
		return
	}
	t.use.count++
	r.Durable = r.Durable && t.name.IsPersistent()
	s := t.slots[r.Subscription]
	if s == nil && r.Durable && r.Existing {
		done(nil, fmt.Errorf("%q: %w", r.Subscription, ErrNoSubscription))
		return
	}
	if s == nil {
		if err := t.mayOpenSlot(); err != nil {
			done(nil, err)
			return
		}
		s = t.openSlot(r.Subscription, r.Durable, r.Start, nil)
	}
	if s.durable != r.Durable {
		done(nil, fmt.Errorf("%q is a subscription with durable=%t: %w", s.name, s.durable, ErrNotAllowed))
		return
	}
	if s.state != slotOpen {
		s.waiting = append(s.waiting, func(err error) {
			if err != nil {
				done(nil, err)
				return
			}
			t.Subscribe(r, done)
		})
		return
	}
	s.sub.exec.PostFunc(func() { s.sub.connect(r, done) })
}

func (t *Topic) checkSubscribe(r *SubscribeRequest) error {
	switch {
	case r.Type > KeyShared:
		return fmt.Errorf("subscription type %d: %w", r.Type, ErrBadRequest)
	case r.Subscription == "":
		return fmt.Errorf("empty subscription name: %w", ErrBadRequest)
	}
	return t.ready()
}

// CreateSubscription makes a durable subscription without a consumer. One that exists is left as it is. done on the
// topic's executor.
func (t *Topic) CreateSubscription(name string, start ledger.Position, done func(error)) {
	if err := t.ready(); err != nil {
		done(err)
		return
	}
	if !t.name.IsPersistent() {
		done(nil) // there is nothing that it could keep
		return
	}
	t.use.count++
	s := t.slots[name]
	if s == nil {
		if err := t.mayOpenSlot(); err != nil {
			done(err)
			return
		}
		s = t.openSlot(name, true, start, nil)
	}
	switch {
	case !s.durable:
		done(fmt.Errorf("%q is a subscription with durable=false: %w", name, ErrNotAllowed))
	case s.state == slotOpen:
		done(nil)
	default:
		s.waiting = append(s.waiting, func(err error) {
			if err != nil {
				done(err)
				return
			}
			t.CreateSubscription(name, start, done)
		})
	}
}

// mayOpenSlot returns why there may not be one more subscription.
func (t *Topic) mayOpenSlot() error {
	if most := t.opts.MaxSubscriptionsPerTopic; most > 0 && len(t.slots) >= most {
		return fmt.Errorf("%s has %d subscriptions: %w", t.text, most, ErrNotAllowed)
	}
	return nil
}

// openSlot opens the cursor of a subscription, on an executor of the subscription's own. done may be nil.
func (t *Topic) openSlot(name string, durable bool, start ledger.Position, done func(error)) *slot {
	s := &slot{name: name, durable: durable, sub: newSubscription(t, name, durable)}
	if done != nil {
		s.waiting = append(s.waiting, done)
	}
	t.slots[name] = s
	if !t.name.IsPersistent() {
		s.sub.cursor, s.sub.transient = &nothing{last: s.sub.last}, true
		t.exec.PostFunc(func() { t.slotOpened(s, nil) })
		return s
	}
	t.log.OpenCursor(managedledger.CursorOptions{
		Name: name, Durable: durable, Initial: start, Inclusive: true, Executor: s.sub.exec,
	}, func(c *managedledger.Cursor, err error) {
		if err == nil {
			s.sub.cursor = c
		}
		t.exec.PostFunc(func() { t.slotOpened(s, err) })
	})
	return s
}

func (t *Topic) slotOpened(s *slot, err error) {
	if err != nil {
		delete(t.slots, s.name)
		s.wake(fmt.Errorf("subscription %q: %w", s.name, err))
	} else {
		s.state = slotOpen
		s.wake(nil)
	}
	t.advanceClose()
}

// UnsubscribeRequest asks for the removal of a subscription.
type UnsubscribeRequest struct {
	Subscription string
	Consumer     *Consumer // who asks; nil: an administrator
	Force        bool      // even if others are connected
}

// Unsubscribe removes a subscription with its position. Connected consumers other than the one that asks are an error,
// unless forced: then they are closed. done on the topic's executor.
func (t *Topic) Unsubscribe(r UnsubscribeRequest, done func(error)) {
	if err := t.ready(); err != nil {
		done(err)
		return
	}
	s := t.slots[r.Subscription]
	switch {
	case s == nil:
		done(fmt.Errorf("%q: %w", r.Subscription, ErrNoSubscription))
		return
	case s.state != slotOpen:
		s.waiting = append(s.waiting, func(err error) {
			if err != nil {
				done(err)
				return
			}
			t.Unsubscribe(r, done)
		})
		return
	}
	s.sub.exec.PostFunc(func() {
		err := s.sub.endFor(r.Consumer, r.Force)
		t.exec.PostFunc(func() {
			if err == nil && s.state != slotOpen {
				err = ErrNotReady // the topic is closing: the subscription stays
			}
			if err != nil {
				done(err)
				return
			}
			t.slotEnded(s, done)
		})
	})
}

// slotEnded removes a subscription that has ended on its executor, with its cursor.
func (t *Topic) slotEnded(s *slot, done func(error)) {
	t.exec.AssertCurrent()
	s.state = slotDeleting
	finish := func(err error) {
		delete(t.slots, s.name)
		s.wake(nil)
		done(err)
		t.advanceClose()
	}
	if s.durable {
		t.log.DeleteCursor(s.name, finish)
		return
	}
	s.sub.closeCursor(func(error) { t.exec.PostFunc(func() { finish(nil) }) })
}

// hasConsumers is a guess from the outside: the true number is known on the subscriptions' executors.
func (t *Topic) hasConsumers() bool {
	for _, s := range t.slots {
		if s.state != slotOpen || s.sub.connected.Load() > 0 {
			return true
		}
	}
	return false
}
