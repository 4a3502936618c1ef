package broker

import (
	"sync"

	"geminga/pkg/eventloop"
	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// ACK acknowledges entries, single messages of batches (ack_set: a set bit is not acknowledged), or everything up to a
// position. It is answered with ACK_RESPONSE only if it has a request id, when the acknowledgement is durable. An ack that
// reports a broken message (validation_error) acknowledges it, as Pulsar does.
func handleAck(c *conn, _ *eventloop.Root) error {
	a := &c.state.ack
	if err := a.Decode(c.state.frame.Body); err != nil {
		return c.broken(err, nil)
	}
	k := c.consumers[a.ConsumerID]
	switch {
	case k == nil || k.state != ready:
		c.ackFailed(a, pulsarpb.ServerError_ConsumerNotFound, errNoConsumer.Error())
		return nil
	case a.InTxn && (a.TxnLeast != 0 || a.TxnMost != 0):
		c.ackFailed(a, pulsarpb.ServerError_NotAllowedError, "Transactions are not enabled")
		return nil
	}
	t := c.state.acks.get()
	t.consumer = k.topic
	t.load(a)
	if a.HasRequestID {
		consumer, request := a.ConsumerID, a.RequestID
		t.request.Done = func(err error) {
			c.post(func() { c.ackDone(consumer, request, err) })
		}
	}
	k.topic.Executor().Post(t)
	return nil
}

func (c *conn) ackFailed(a *protocol.Ack, code protocol.ServerError, text string) {
	if a.HasRequestID {
		c.state.buf = protocol.AppendAckResponse(c.state.buf[:0], &protocol.AckResponse{
			ConsumerID: a.ConsumerID, RequestID: a.RequestID, TxnLeast: a.TxnLeast, TxnMost: a.TxnMost,
			Failed: true, Error: code, Text: text,
		})
		c.write(c.state.buf)
	}
}

func (c *conn) ackDone(consumer, request uint64, err error) {
	r := protocol.AckResponse{ConsumerID: consumer, RequestID: request, Failed: err != nil}
	if err != nil {
		r.Error = c.server.codeOf(err)
		r.Text = c.server.text(r.Error, err)
	}
	c.state.buf = protocol.AppendAckResponse(c.state.buf[:0], &r)
	c.write(c.state.buf)
}

// ackTask is an acknowledgement on its way to the subscription's executor. It is reused.
type ackTask struct {
	pool      *ackPool
	consumer  *topic.Consumer
	request   topic.AckRequest
	positions []ledger.Position
	sets      [][]int64
	words     []int64
}

// load copies what the decoder will reuse.
func (t *ackTask) load(a *protocol.Ack) {
	for i := range a.MessageIDs {
		id := &a.MessageIDs[i]
		t.positions = append(t.positions, ledger.Position{Ledger: ledger.ID(id.Ledger), Entry: ledger.EntryID(id.Entry)})
		if len(id.AckSet) == 0 {
			if t.request.AckSets != nil {
				t.sets = append(t.sets, nil)
				t.request.AckSets = t.sets
			}
			continue
		}
		for len(t.sets) < i { // those before had none
			t.sets = append(t.sets, nil)
		}
		from := len(t.words)
		t.words = append(t.words, id.AckSet...)
		t.sets = append(t.sets, t.words[from:len(t.words):len(t.words)])
		t.request.AckSets = t.sets
	}
	t.request.Positions = t.positions
	t.request.Type = topic.AckIndividual
	if a.Type == pulsarpb.CommandAck_Cumulative {
		t.request.Type = topic.AckCumulative
	}
}

// Run acknowledges on the subscription's executor.
func (t *ackTask) Run() {
	t.consumer.Ack(t.request)
	clear(t.sets)
	if cap(t.positions) > maxKept {
		t.positions = nil
	}
	if cap(t.words) > maxKept {
		t.words = nil
	}
	*t = ackTask{pool: t.pool, positions: t.positions[:0], sets: t.sets[:0], words: t.words[:0]}
	t.pool.tasks.Put(t)
}

// ackPool keeps ackTasks for reuse: they are taken on a loop and given back on executors.
type ackPool struct{ tasks sync.Pool }

func (p *ackPool) get() *ackTask {
	if t, ok := p.tasks.Get().(*ackTask); ok {
		return t
	}
	return &ackTask{pool: p}
}
