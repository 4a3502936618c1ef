package topic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// sendAt publishes messages with publish times of their own; 0: one that does not parse.
func (w *world) sendAt(p *Producer, times ...uint64) {
	var batch []Message
	for i, at := range times {
		b, err := protocol.AppendSection(nil, &pulsarpb.MessageMetadata{
			ProducerName: proto.String(p.Name), SequenceId: proto.Uint64(uint64(i)), PublishTime: proto.Uint64(at),
		}, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		if at == 0 {
			b = []byte("?")
		}
		batch = append(batch, Message{Producer: p, SequenceID: uint64(i), Messages: 1, Payload: ledger.Payload{Data: b}})
	}
	w.on(func() { p.topic.Publish(batch) })
}

func (w *world) seekTime(c *Consumer, at uint64, scan int64) error {
	got := make(chan error, 1)
	c.Executor().PostFunc(func() { c.seekTime(at, scan, func(err error) { got <- err }) })
	err := <-got
	synctest.Wait()
	return err
}

// Whatever the order of the times is, as long as none is older than one before it by more than seekDisorder: the first
// message at the time or after it comes next, and all behind it.
func TestSeekTime(t *testing.T) {
	for seed := range uint64(12) {
		inWorld(t, func(w *world) {
			r := rand.New(rand.NewPCG(seed, 1))
			w.mustOpen()
			p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
			in := w.sink()
			times := make([]uint64, r.IntN(60))
			clock := uint64(100 * seekDisorder)
			for i := range times {
				clock += r.Uint64N(seekDisorder / 4)
				times[i] = clock - r.Uint64N(seekDisorder+1)
			}
			w.sendAt(p, times...)
			c := w.mustSubscribe(durable("s", in))
			for range 8 {
				at := r.Uint64N(clock + 10)
				if r.IntN(3) > 0 && len(times) > 0 {
					at = times[r.IntN(len(times))] + r.Uint64N(2)
				}
				if err := w.seekTime(c, at, r.Int64N(8)); err != nil {
					t.Fatal(err)
				}
				equal(t, "told", in.told(), []string{in.name + ": close consumer 1"})
				c = w.mustSubscribe(durable("s", in))
				w.flow(c, 100)
				var want []uint64
				for i := range times {
					if times[i] >= at || len(want) > 0 {
						want = append(want, uint64(i))
					}
				}
				equal(t, fmt.Sprintf("seed %d: %d of %v", seed, at, times), in.taken(), want)
			}
		})
	}
}

// Up to seekScan entries any order will do; what comes while the last one is behind the time is not passed over.
func TestSeekTimeWithoutOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		for _, x := range []struct {
			at   uint64
			want []uint64
		}{{5, nil}, {5, []uint64{0, 1, 2, 3, 4, 5}}, {1 << 63, nil}, {1e12, []uint64{1, 2, 3, 4, 5}}} {
			if err := w.seekTime(c, x.at, seekScan); err != nil {
				t.Fatal(err)
			}
			c = w.mustSubscribe(durable("s", in))
			w.flow(c, 100)
			equal(t, fmt.Sprint(x.at), in.taken(), x.want)
			if x.at == 5 && x.want == nil {
				w.sendAt(p, 9, 3e12, 1, 7, 4, 2)
				equal(t, "new ones", in.taken(), []uint64{0, 1, 2, 3, 4, 5})
			}
		}
		w.closeConsumer(c)
		if err := w.seekTime(c, 5, seekScan); !errors.Is(err, ErrConsumerClosed) {
			t.Errorf("closed consumer: %v", err)
		}
	})
}

// A consumer that leaves during the search, and bookies that do not answer, end it with an error and change nothing.
func TestSeekTimeInterrupted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.sendAt(p, 1, 2, 3)
		w.close()
		w.mustOpen() // nothing is cached
		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		w.hold()
		got := make(chan error, 1)
		c.Executor().PostFunc(func() { c.SeekTime(2, func(err error) { got <- err }) })
		synctest.Wait()
		w.closeConsumer(c)
		w.release()
		if err := <-got; err != nil && !errors.Is(err, ErrConsumerClosed) {
			t.Error(err)
		}
	})
}
