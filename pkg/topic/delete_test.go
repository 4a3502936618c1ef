package topic

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
)

func (w *world) delete(force bool) error {
	got := make(chan error, 1)
	w.topic.exec.PostFunc(func() { w.topic.Delete(force, func(err error) { got <- err }) })
	err := <-got
	synctest.Wait()
	return err
}

// entry reads a stored entry and returns its size.
func (w *world) entry(p ledger.Position) (int, error) {
	type result struct {
		size int
		err  error
	}
	got := make(chan result, 1)
	w.topic.exec.PostFunc(func() {
		w.topic.ReadEntry(p, func(b []byte, err error) { got <- result{len(b), err} })
	})
	r := <-got
	synctest.Wait()
	return r.size, r.err
}

// A topic that is deleted leaves nothing in the metadata, and its name begins anew: messages that look like duplicates
// of earlier ones are stored.
func TestDelete(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.BrokerDeduplicationEnabled = true
		w.options.BrokerDeduplicationEntriesInterval = 1
		w.mustOpen()
		out, in := w.sink(), w.sink()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: out})
		c := w.mustSubscribe(durable("s", in))
		w.flow(c, 10)
		w.send(p, 0, 1, 2)
		if err := w.ack(c, AckRequest{Positions: []ledger.Position{w.topic.LastConfirmed()}}); err != nil {
			t.Error(err)
		}
		if err := w.delete(false); !errors.Is(err, ErrInUse) {
			t.Errorf("in use: %v", err)
		}
		w.send(p, 3)
		if got := out.answers(); got != "0→0 1→1 2→2 3→3" {
			t.Errorf("still there: %s", got)
		}
		equal(t, "subscriptions", w.subscriptions(), []string{"s"})
		if err := w.delete(true); err != nil {
			t.Error(err)
		}
		equal(t, "producer told", out.told(), []string{out.name + ": close producer 0"})
		equal(t, "consumer told", in.told(), []string{in.name + ": close consumer 1"})
		for _, prefix := range []string{metadata.TopicsPrefix, metadata.CursorsPrefix, metadata.DedupPrefix} {
			w.client.List(prefix, func(items []metadata.Item, err error) {
				if err != nil || len(items) != 0 {
					t.Errorf("left: %v, %v", items, err)
				}
			})
		}
		synctest.Wait()
		if err := w.delete(true); !errors.Is(err, ErrNotReady) {
			t.Errorf("deleted twice: %v", err)
		}
		w.mustOpen()
		p = w.mustProducer(ProducerRequest{Name: "p", Sink: out})
		c = w.mustSubscribe(durable("s", in))
		in.taken()
		w.flow(c, 10)
		w.send(p, 0)
		if got := out.answers(); got != "0→0" {
			t.Errorf("anew: %s", got)
		}
		equal(t, "anew", in.taken(), []uint64{0})
		w.closeConsumer(c)
		w.on(func() { w.topic.RemoveProducer(p, nil) })
		if err := w.delete(false); err != nil {
			t.Errorf("not in use: %v", err)
		}
		w.mustOpen()
	})
}

// lateStore keeps the first commit of a deduplication snapshot back, with an answer that leaves its outcome open.
type lateStore struct {
	managedledger.Store
	held *metadata.Txn
}

func (s *lateStore) Commit(txn metadata.Txn, done func(metadata.Outcome, error)) {
	if s.held == nil && strings.HasPrefix(txn.Ops[0].Key, metadata.DedupPrefix) {
		s.held = &txn
		done(metadata.Outcome{}, ledger.ErrUnknown)
		return
	}
	s.Store.Commit(txn, done)
}

// The first deduplication snapshot arrives when the topic is gone, or is another one of the same name: it changes nothing.
func TestSnapshotAfterDelete(t *testing.T) {
	for _, again := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.options.BrokerDeduplicationEnabled = true
			w.options.BrokerDeduplicationEntriesInterval = 2
			w.mustOpen()
			late := &lateStore{Store: w.client}
			w.on(func() { w.topic.env.Ledger.Store = late })
			out := w.sink()
			p := w.mustProducer(ProducerRequest{Name: "p", Sink: out})
			w.send(p, 0, 1)
			if late.held == nil {
				t.Fatal("no snapshot was written")
			}
			if err := w.delete(true); err != nil {
				t.Fatal(err)
			}
			if again {
				w.mustOpen()
			}
			w.client.Commit(*late.held, func(metadata.Outcome, error) {})
			synctest.Wait()
			w.client.List(metadata.DedupPrefix, func(items []metadata.Item, err error) {
				if err != nil || len(items) != 0 {
					t.Errorf("again=%t: left %v, %v", again, items, err)
				}
			})
			synctest.Wait()
			w.mustOpen()
			out = w.sink()
			p = w.mustProducer(ProducerRequest{Name: "p", Sink: out})
			w.send(p, 0)
			if got := out.answers(); got != "0→0" {
				t.Errorf("again=%t: %s", again, got)
			}
		})
	}
}

// subscriptions are those of the topic.
func (w *world) subscriptions() (names []string) {
	w.on(func() { names = w.topic.Subscriptions() })
	return names
}

// An owner that has been replaced deletes nothing.
func TestDeleteByOldOwner(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.send(p, 0, 1)
		old := w.topic
		w.mustOpen()
		now := w.topic
		w.topic = old
		if err := w.delete(true); err == nil {
			t.Error("deleted by an old owner")
		}
		w.topic = now
		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		w.flow(c, 10)
		equal(t, "kept", in.taken(), []uint64{0, 1})
	})
}

func TestReadEntry(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		at := w.topic.LastConfirmed()
		if _, err := w.entry(at); !errors.Is(err, ErrNoEntry) {
			t.Errorf("empty topic: %v", err)
		}
		w.send(p, 0, 1)
		at = w.topic.LastConfirmed()
		if n, err := w.entry(at); err != nil || n != len(payloadOf(t, "p", 1, 0)) {
			t.Errorf("%d bytes, %v", n, err)
		}
		at.Entry++
		if _, err := w.entry(at); !errors.Is(err, ErrNoEntry) {
			t.Errorf("behind the end: %v", err)
		}
	})
}
