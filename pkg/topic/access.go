package topic

import (
	"errors"
	"fmt"
	"slices"
)

// AccessMode of a producer, numbered as in the protocol.
type AccessMode uint8

// The access modes. All but the first are for a producer that is alone on the topic. If there are others it is refused,
// waits until they have gone, or has them closed.
const (
	ProducerShared AccessMode = iota
	ProducerExclusive
	ProducerWaitForExclusive
	ProducerExclusiveWithFencing
)

// String returns the name that stats show.
func (m AccessMode) String() string {
	switch m {
	case ProducerShared:
		return "Shared"
	case ProducerExclusive:
		return "Exclusive"
	case ProducerWaitForExclusive:
		return "WaitForExclusive"
	case ProducerExclusiveWithFencing:
		return "ExclusiveWithFencing"
	}
	return fmt.Sprintf("AccessMode(%d)", uint8(m))
}

// errWait is the outcome of a request that waits for the topic.
var errWait = errors.New("producer waits until it can be alone")

// access says who may publish.
//
// Each producer that gets the topic for itself is given an epoch, higher than any before. One that comes back shows its
// epoch: if another was alone meanwhile it is fenced for good. The epochs of a broker begin with the epoch of its
// ownership, so they grow from owner to owner without being stored. What a new owner does not know is the last epoch of
// the owner before: a producer that was fenced there may get in here first, until the rightful one shows a higher epoch.
type access struct {
	holder  *Producer // is alone; nil: producers share the topic
	epoch   uint64    // the highest seen here
	waiting []waitingProducer
}

type waitingProducer struct {
	request ProducerRequest
	done    func(*Producer, int64, error)
}

// epochs of one owner of a topic.
const ownerShift = 32

// admit decides about a producer; old is the registration that it replaces, or nil. It closes who has to give way.
func (t *Topic) admit(r *ProducerRequest, old *Producer) error {
	a, others := &t.access, len(t.producers)
	if old != nil {
		others--
	}
	switch {
	case r.AccessMode > ProducerExclusiveWithFencing:
		return fmt.Errorf("producer access mode %d: %w", r.AccessMode, ErrBadRequest)
	case r.AccessMode == ProducerShared:
		if a.holder != nil && a.holder != old {
			return fmt.Errorf("%s has an exclusive producer: %w", t.text, ErrProducerBusy)
		}
		return nil
	case r.TopicEpoch>>ownerShift > uint64(t.env.Ledger.Epoch):
		return fmt.Errorf("topic epoch %d was never given: %w", r.TopicEpoch, ErrBadRequest)
	case r.TopicEpoch != 0 && r.TopicEpoch < a.epoch:
		return fmt.Errorf("%q on %s has epoch %d, another got %d: %w", r.Name, t.text, r.TopicEpoch, a.epoch, ErrProducerFenced)
	case others == 0:
		return nil
	case r.AccessMode == ProducerExclusiveWithFencing, a.holder != nil && r.TopicEpoch > a.epoch:
		for _, p := range t.producers {
			if p != old {
				t.dropProducer(p)
				p.out.sink.CloseProducer(p.ID)
			}
		}
		return nil
	case r.AccessMode == ProducerWaitForExclusive:
		return errWait
	}
	return fmt.Errorf("%s has other producers: %w", t.text, ErrProducerFenced)
}

// grant makes a producer the only one, with an epoch of its own unless it has shown the latest.
func (t *Topic) grant(p *Producer, shown uint64) {
	a := &t.access
	a.holder = p
	if shown == 0 || shown < a.epoch {
		shown = max(a.epoch+1, uint64(t.env.Ledger.Epoch)<<ownerShift)
	}
	a.epoch, p.TopicEpoch = shown, shown
}

// wait queues a request.
func (t *Topic) wait(r ProducerRequest, done func(*Producer, int64, error)) {
	t.access.waiting = append(t.access.waiting, waitingProducer{r, done})
	if r.Waits != nil {
		r.Waits(r.Name)
	}
}

// freed lets the first that waits have the topic, when there is nobody else.
func (t *Topic) freed() {
	a := &t.access
	for t.state == running && len(t.producers) == 0 && len(a.waiting) > 0 {
		w := a.waiting[0]
		a.waiting = slices.Delete(a.waiting, 0, 1)
		t.AddProducer(w.request, w.done)
	}
}

// Withdraw takes back a request that waits; its done gets ErrNotReady. One that does not wait (any more) is left alone.
func (t *Topic) Withdraw(s Sink, id uint64) {
	t.exec.AssertCurrent()
	t.refuse(func(r *ProducerRequest) bool { return r.Sink == s && r.ID == id })
}

// refuse answers requests that wait.
func (t *Topic) refuse(which func(*ProducerRequest) bool) {
	var out []waitingProducer
	t.access.waiting = slices.DeleteFunc(t.access.waiting, func(w waitingProducer) bool {
		if !which(&w.request) {
			return false
		}
		out = append(out, w)
		return true
	})
	for _, w := range out {
		w.done(nil, -1, ErrNotReady)
	}
}

// ExclusiveProducer returns the name of the producer that is alone, or "".
func (t *Topic) ExclusiveProducer() string {
	if t.access.holder == nil {
		return ""
	}
	return t.access.holder.Name
}
