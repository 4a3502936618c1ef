package topic

import (
	"bytes"
	"testing"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
)

// stored reads the topic from its start: what the broker wrote in front of each entry, and the entries without it.
func (w *world) stored() (front []protocol.BrokerEntry, entries [][]byte) {
	w.t.Helper()
	in := w.sink()
	c := w.mustSubscribe(SubscribeRequest{Subscription: "reader" + in.name, Start: ledger.Earliest, Sink: in})
	w.flow(c, 1000)
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, d := range in.order {
		var s protocol.Section
		var e protocol.BrokerEntry
		if err := s.Parse(d.Entry.Payload.Data); err != nil {
			w.t.Error(err)
		}
		if err := s.Verify(); err != nil {
			w.t.Error(err)
		}
		if err := e.Parse(s.BrokerEntry); err != nil {
			w.t.Error(err)
		}
		front, entries = append(front, e), append(entries, protocol.CutBrokerEntry(d.Entry.Payload.Data))
	}
	return front, entries
}

// Entries are stored as they came, with the index of their last message in front: each index once, in the order of the
// log, whether the topic was closed, or its broker has crashed, meanwhile. A duplicate takes none.
func TestIndexesOfMessages(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = Options{AppendIndex: true, AppendBrokerTimestamp: true, BrokerDeduplicationEnabled: true}
		var sent [][]byte
		var want []uint64
		next, sequence := uint64(0), uint64(0)
		send := func(p *Producer, messages ...int32) {
			var batch []Message
			for _, n := range messages {
				payload := payloadOf(t, "p", sequence, n)
				sent = append(sent, payload)
				n = max(1, n)
				batch = append(batch, Message{
					Producer: p, SequenceID: sequence, HighestSequenceID: sequence + uint64(n) - 1, Messages: n, Payload: ledger.Payload{Data: payload},
				})
				sequence += uint64(n)
				next += uint64(n)
				want = append(want, next-1)
			}
			w.on(func() { w.topic.Publish(batch) })
			w.on(func() { w.topic.Publish(batch[:1]) }) // again
		}
		for round := range 3 {
			w.mustOpen()
			<-time.After(time.Second)
			sink := w.sink()
			p := w.mustProducer(ProducerRequest{Name: "p", Epoch: uint64(round), Sink: sink})
			send(p, 0, 5, 1)
			send(p, 3)
			switch round {
			case 0:
				w.close()
			case 1:
				w.crash()
			}
		}
		front, entries := w.stored()
		var got []uint64
		for i, e := range front {
			got = append(got, e.Index)
			if age := time.Now().UnixMilli() - int64(e.Timestamp); age < 0 || age > 3000 || !e.HasTimestamp {
				t.Errorf("entry %d is %d ms old", i, age)
			}
		}
		equal(t, "indexes", got, want)
		if len(entries) != len(sent) {
			t.Fatalf("%d entries, %d were sent", len(entries), len(sent))
		}
		for i := range entries {
			if !bytes.Equal(entries[i], sent[i]) {
				t.Errorf("entry %d was changed", i)
			}
		}
	})
}

// A topic that was not numbered begins with 0 when it is; without the setting nothing is put in front.
func TestIndexesFromNowOn(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, on := range []bool{false, true} {
			w.options = Options{AppendIndex: on}
			w.mustOpen()
			w.send(w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()}), 0, 1)
			front, _ := w.stored()
			var got []bool
			for _, e := range front {
				got = append(got, e.HasIndex)
			}
			if on {
				equal(t, "numbered", got, []bool{false, false, true, true})
				same(t, "last", front[3].Index, 1)
				continue
			}
			equal(t, "numbered", got, []bool{false, false})
			w.close()
		}
	})
}

// A seek by time goes by the broker's clock, if entries have its time, whatever the producers' clocks say.
func TestSeekByTheBrokersTime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = Options{AppendBrokerTimestamp: true}
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		var at []uint64
		for i := range 4 {
			at = append(at, uint64(time.Now().UnixMilli()))
			w.send(p, uint64(i)) // published at 1
			<-time.After(time.Hour)
		}
		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		if err := w.seekTime(c, at[2], 1); err != nil {
			t.Fatal(err)
		}
		c = w.mustSubscribe(durable("s", in))
		w.flow(c, 10)
		equal(t, "from the third on", in.taken(), []uint64{2, 3})
	})
}
