package topic

import (
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// sendBatch sends a batch of n messages.
func (w *world) sendBatch(p *Producer, seq uint64, n int32) {
	w.on(func() {
		w.topic.Publish([]Message{{
			Producer: p, SequenceID: seq, Messages: n, Payload: ledger.Payload{Data: payloadOf(w.t, p.Name, seq, n)},
		}})
	})
}

// deliveries returns what was delivered since the last call, sets the ack sets of it.
func (s *lockedSink) deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	ds := s.order
	s.order = nil
	return ds
}

func (s *lockedSink) sets() (out []string) {
	for _, d := range s.deliveries() {
		out = append(out, bitsOf(d.AckSet))
	}
	return out
}

// TestPartsOfBatchesSurviveACrash: what has a receipt, individual or cumulative, does not come again from the next
// owner; the rest does, with the set that says which messages it is. Without a receipt that is so after a clean close.
func TestPartsOfBatchesSurviveACrash(t *testing.T) {
	for _, kind := range []SubType{Exclusive, Shared, Failover, KeyShared} {
		inWorld(t, func(w *world) {
			w.mustOpen()
			p := w.mustProducer(ProducerRequest{ID: 7, Sink: w.sink()})
			for seq := range uint64(4) {
				w.sendBatch(p, 10*seq, 10)
			}
			in := w.sink()
			r := durable("s", in)
			r.Type = kind
			c := w.mustSubscribe(r)
			w.flow(c, 100)
			<-time.After(2 * time.Second) // a failover consumer waits for its turn
			ds := in.deliveries()
			same(t, "delivered", len(ds), 4)
			fails(t, "parts", w.ack(c, AckRequest{
				Positions: []ledger.Position{ds[1].Entry.Position, ds[2].Entry.Position}, AckSets: [][]int64{{0b0011}, nil},
			}), nil)
			fails(t, "less of it", w.ack(c, AckRequest{Positions: []ledger.Position{ds[1].Entry.Position}, AckSets: [][]int64{{0b1001}}}), nil)
			w.crash()

			w.mustOpen()
			in = w.sink()
			r.Sink = in
			c = w.mustSubscribe(r)
			w.flow(c, 100)
			<-time.After(2 * time.Second) // a failover consumer waits for its turn
			equal(t, kind.String(), in.sets(), []string{"", "1", ""})
			w.exec(c.Executor(), func() {
				c.Ack(AckRequest{Positions: []ledger.Position{ds[3].Entry.Position}, AckSets: [][]int64{{0b1100}}})
			})
			if c.sub.single() {
				fails(t, "cumulative", w.ack(c, AckRequest{
					Type: AckCumulative, Positions: []ledger.Position{ds[0].Entry.Position}, AckSets: [][]int64{{0b1000}},
				}), nil)
			}
			w.closeConsumer(c)
			w.close()

			w.mustOpen()
			in = w.sink()
			r.Sink = in
			c = w.mustSubscribe(r)
			w.flow(c, 100)
			<-time.After(2 * time.Second) // a failover consumer waits for its turn
			first := ""
			if c.sub.single() {
				first = "0001"
			}
			equal(t, kind.String()+" again", in.sets(), []string{first, "1", "0011"})
			synctest.Wait()
		})
	}
}

// TestWholeBatchesOnly: with acknowledgmentAtBatchIndexLevelEnabled=false parts are not acknowledged; all of a batch is.
func TestWholeBatchesOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.WholeBatchesOnly = true
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{ID: 7, Sink: w.sink()})
		w.sendBatch(p, 0, 4)
		w.sendBatch(p, 4, 4)
		w.sendBatch(p, 8, 4)
		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		w.flow(c, 100)
		<-time.After(2 * time.Second) // a failover consumer waits for its turn
		ds := in.deliveries()
		ack := func(kind AckType, i int, set int64) {
			fails(t, "ack", w.ack(c, AckRequest{Type: kind, Positions: []ledger.Position{ds[i].Entry.Position}, AckSets: [][]int64{{set}}}), nil)
		}
		ack(AckIndividual, 0, 0b0011)
		ack(AckIndividual, 0, 0b1100)
		ack(AckIndividual, 2, 0)
		w.exec(c.Executor(), func() { c.Redeliver(nil) })
		equal(t, "after parts", in.sets(), []string{"", ""})
		ack(AckCumulative, 1, 0b0011)
		w.exec(c.Executor(), func() { c.Redeliver(nil) })
		equal(t, "after a cumulative part", in.sets(), []string{""})
	})
}

// TestTooLargeASetIsRefused: the client is told; the rest of its request is done.
func TestTooLargeASetIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{ID: 7, Sink: w.sink()})
		w.sendBatch(p, 0, 4)
		w.sendBatch(p, 4, 4)
		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		w.flow(c, 100)
		<-time.After(2 * time.Second) // a failover consumer waits for its turn
		ds := in.deliveries()
		large := make([]int64, 1<<16)
		large[len(large)-1] = 1
		fails(t, "ack", w.ack(c, AckRequest{
			Positions: []ledger.Position{ds[0].Entry.Position, ds[1].Entry.Position}, AckSets: [][]int64{large, nil},
		}), managedledger.ErrTooManyParts)
		w.exec(c.Executor(), func() { c.Redeliver(nil) })
		equal(t, "again", in.sets(), []string{""})
	})
}
