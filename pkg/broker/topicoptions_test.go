package broker

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// topicSettings is a Settings with one dynamic number: the most unacknowledged messages of a consumer.
type topicSettings struct{}

func (topicSettings) Dynamic() []string { return []string{"unacked"} }

func (topicSettings) With(stored map[string]string) (o Options, values map[string]string, err error) {
	values = map[string]string{"unacked": "2"}
	maps.Copy(values, stored)
	o.Topic.MaxUnackedMessagesPerConsumer, err = strconv.Atoi(values["unacked"])
	return o, values, err
}

// A stored setting of topics comes into force in topics that are open, whose consumers wait, in those that are opening and
// in those that are opened later; and one that topics do not take is refused.
func TestTopicSettingsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := startHeld(t, func(o *Options) {
			o.Settings = topicSettings{}
			own, _, _ := o.Settings.With(nil)
			o.Topic = own.Topic
		})
		p := pipe(t, s)
		p.handshake()
		open := func(i int) {
			p.producer(name(i), uint64(i), "")
			p.subscribe(subscribing{topic: name(i), name: "s", kind: pulsarpb.CommandSubscribe_Shared, id: uint64(i)})
			p.flow(uint64(i), 100)
		}
		// takes publishes eight messages and reads those that are delivered.
		takes := func(i, want int) {
			t.Helper()
			for n := range uint64(8) {
				p.write(sendFrame(t, uint64(i), n, "x"))
			}
			got := 0
			for answered := 0; got < want || answered < 8; {
				cmd, _, err := p.frame()
				if err != nil {
					t.Fatalf("topic %d: %d of %d messages: %v", i, got, want, err)
				}
				switch cmd.GetType() {
				case pulsarpb.BaseCommand_MESSAGE:
					got++
				case pulsarpb.BaseCommand_SEND_RECEIPT:
					answered++
				default:
					t.Fatalf("%v", cmd)
				}
			}
			synctest.Wait()
			if n := s.unackedOf(i); n != want {
				t.Errorf("topic %d: %d are unacknowledged, want %d", i, n, want)
			}
		}
		open(1)
		takes(1, 2)
		ctx, d := context.Background(), s.Directory()
		p.lookup(name(2))
		store.hold()
		p.send(producerCommand(name(2), 2, *p.id(), ""))
		synctest.Wait()
		if err := d.StoreSetting(ctx, "unacked", "5"); err != nil {
			t.Fatal(err)
		}
		for range 3 { // those that the first topic waited with
			p.receive()
		}
		store.release()
		p.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS)
		p.subscribe(subscribing{topic: name(2), name: "s", kind: pulsarpb.CommandSubscribe_Shared, id: 2})
		p.flow(2, 100)
		takes(2, 5)
		open(3)
		takes(3, 5)
		if err := d.StoreSetting(ctx, "unacked", "-2"); !errors.Is(err, ErrBadSetting) {
			t.Errorf("-2: %v", err)
		}
		if err := d.RemoveSetting(ctx, "unacked"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		open(4)
		takes(4, 2)
	})
}

// unackedOf is how many messages the consumers of a topic have not acknowledged.
func (s *Server) unackedOf(i int) int {
	got := make(chan topic.Stats, 1)
	h := s.topics.serving(name(i))
	h.exec.PostFunc(func() { h.t.Stats(func(st topic.Stats) { got <- st }) })
	st := <-got
	n := int64(0)
	for _, sub := range st.Subscriptions {
		n += sub.UnackedMessages
	}
	return int(n)
}

// While options change, topics open: each has the last ones in the end.
func TestTopicSettingsRaceWithOpening(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	const topics = 40
	var wg sync.WaitGroup
	last := s.opts.Topic
	wg.Go(func() {
		for i := range 200 {
			last.MaxProducersPerTopic = 1 + i%2
			s.SetTopicOptions(last)
		}
		last.MaxProducersPerTopic = 1
		s.SetTopicOptions(last)
	})
	for i := range topics {
		p.producer(name(i), uint64(i), "")
	}
	wg.Wait()
	for i := range topics {
		if e := p.fails(producerCommand(name(i), uint64(100+i), *p.id(), "")); e.GetError() != pulsarpb.ServerError_ProducerBusy {
			t.Errorf("topic %d: %v", i, e)
		}
	}
}
