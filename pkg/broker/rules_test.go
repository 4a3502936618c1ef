package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/metadata"
	"geminga/rpc/pulsarpb"
)

func (g *stage) has(topic string) bool {
	synctest.Wait()
	got := make(chan bool, 1)
	key := metadata.TopicPrefix("public", "default", "persistent") + metadata.Escape(topic)
	g.cluster.Client().Get(key, func(item metadata.Item, _ error) { got <- item.Version != 0 })
	return <-got
}

// closeProducer closes producer 1.
func (p *peer) closeProducer() {
	p.t.Helper()
	id := uint64(1)
	p.send(&pulsarpb.BaseCommand{
		Type:          pulsarpb.BaseCommand_CLOSE_PRODUCER.Enum(),
		CloseProducer: &pulsarpb.CommandCloseProducer{ProducerId: &id, RequestId: p.id()},
	})
	p.expect(pulsarpb.BaseCommand_SUCCESS)
}

// A topic that nobody has used for long is deleted, with all that it was in the metadata; one that is used is not, and
// after its deletion the next producer makes a new one.
func TestInactiveTopics(t *testing.T) {
	rules := func(o *Options) {
		o.Rules = TopicRules{DeleteInactive: true, InactiveCheck: time.Minute, InactiveAfter: 3 * time.Minute}
	}
	bubble(t, rules, func(g *stage) {
		elapse(time.Hour)
		if !g.has("topic-1") {
			t.Fatal("deleted though a producer is connected")
		}
		_ = g.conn.SetDeadline(time.Time{})
		g.publish(1, 0, "gone")
		g.closeProducer()
		elapse(3 * time.Minute)
		if !g.has("topic-1") {
			t.Fatal("deleted before its time")
		}
		elapse(2 * time.Minute)
		if g.has("topic-1") {
			t.Fatal("still there")
		}
		if left := recordsLeft(t, g.cluster.Client()); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		g.producer(name(1), 1, "")
		g.subscribe(subscribing{topic: name(1), name: "s", id: 7})
		_ = g.conn.SetDeadline(time.Time{})
		elapse(time.Hour)
		g.publish(1, 0, "new")
		g.flow(7, 10)
		if _, body := g.receive(); body != "new" {
			t.Errorf("got %q", body)
		}
		_ = g.conn.Close()
		elapse(time.Hour)
		if !g.has("topic-1") {
			t.Fatal("deleted in spite of its subscription")
		}
	})
}

// Clients that come while a topic is being deleted get it, or a new one; nobody's message is lost that has a receipt and a
// subscription.
func TestInactiveTopicIsWantedAgain(t *testing.T) {
	rules := func(o *Options) {
		o.Rules = TopicRules{DeleteInactive: true, InactiveCheck: time.Second, InactiveAfter: time.Second}
	}
	for late := range 10 {
		bubble(t, rules, func(g *stage) {
			opened := g.s.opened
			g.closeProducer()
			// The second look finds nobody, too, and the deletion takes its time; the client comes around it.
			g.cluster.Delay(1, 4*time.Millisecond)
			elapse(2*time.Second - time.Since(opened) + time.Duration(late-3)*time.Millisecond)
			for {
				g.lookup(name(1))
				g.send(subscribing{topic: name(1), name: "s", id: 7}.command(g.id()))
				cmd, _, err := g.frame()
				if err != nil {
					t.Fatal(err)
				}
				if cmd.GetType() == pulsarpb.BaseCommand_SUCCESS {
					break
				}
				if code := cmd.GetError().GetError(); code != pulsarpb.ServerError_ServiceNotReady {
					t.Fatalf("told %v", cmd)
				}
				elapse(time.Millisecond)
			}
			g.producer(name(1), 2, "")
			g.publish(2, 0, "kept")
			elapse(time.Minute)
			_ = g.conn.SetDeadline(time.Time{})
			g.flow(7, 10)
			if _, body := g.receive(); body != "kept" {
				t.Errorf("got %q", body)
			}
		})
	}
}

// partitions asks for the number of partitions of a topic. It is -1 when the topic is TopicNotFound.
func (p *peer) partitions(topic string, create bool) int {
	p.t.Helper()
	p.send(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_PARTITIONED_METADATA.Enum(),
		PartitionMetadata: &pulsarpb.CommandPartitionedTopicMetadata{
			Topic: &topic, RequestId: p.id(), MetadataAutoCreationEnabled: &create,
		},
	})
	r := p.expect(pulsarpb.BaseCommand_PARTITIONED_METADATA_RESPONSE).PartitionMetadataResponse
	switch {
	case r.GetResponse() == pulsarpb.CommandPartitionedTopicMetadataResponse_Success:
		return int(r.GetPartitions())
	case r.GetError() == pulsarpb.ServerError_TopicNotFound:
		return -1
	}
	p.t.Fatalf("told %v", r)
	return 0
}

// Topics that clients make have partitions if the rules say so; topics that exist are what they are. A client may ask
// without making anything.
func TestAutoPartitions(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	s.rules.Store(&TopicRules{AutoPartitioned: true, DefaultPartitions: 3, InactiveCheck: time.Hour})
	for _, step := range []struct {
		topic  string
		create bool
		want   int
	}{
		{name(1), true, 0},
		{name(2), false, -1},
		{name(2), false, -1},
		{name(2), true, 3},
		{name(2), true, 3},
		{name(2), false, 3},
		{name(2) + "-partition-1", true, 0},
		{name(2) + "-partition-1", false, 0},
		{name(2) + "-partition-3", false, -1},
		{"non-persistent://public/default/x", true, 0},
		{"non-persistent://public/default/x", false, 0},
	} {
		if got := p.partitions(step.topic, step.create); got != step.want {
			t.Errorf("%+v: %d", step, got)
		}
	}
	n, err := s.Directory().Partitions(context.Background(), parse(t, name(2)))
	if err != nil || n != 3 {
		t.Errorf("%d partitions, %v", n, err)
	}
}

// With allowAutoTopicCreation=false clients make no topic, but they can use the partitions of those that exist, also for the
// first time.
func TestNoAutoTopics(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.Rules = TopicRules{DisableAutoTopicCreation: true, AutoPartitioned: true} })
	p := connect(t, s)
	if err := s.Directory().CreatePartitions(t.Context(), parse(t, name(1)), 2); err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]int{name(1): 2, name(1) + "-partition-1": 0, name(1) + "-partition-2": -1, name(2): -1} {
		if got := p.partitions(topic, true); got != want {
			t.Errorf("%s: %d partitions instead of %d", topic, got, want)
		}
	}
	p.producer(name(1)+"-partition-1", 1, "")
	p.subscribe(subscribing{topic: name(1) + "-partition-0", name: "s", id: 1})
	for i, topic := range []string{name(1) + "-partition-2", name(2)} {
		p.lookup(topic)
		refused := p.fails(subscribing{topic: topic, name: "s", id: uint64(2 + i)}.command(p.id()))
		if refused.GetError() != pulsarpb.ServerError_TopicNotFound {
			t.Errorf("%s: %v", topic, refused)
		}
	}
}

// With allowAutoSubscriptionCreation=false a durable subscription is not made; readers need none.
func TestNoAutoSubscription(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.Rules.DisableAutoSubscriptionCreation = true })
	p := connect(t, s)
	p.lookup(name(1))
	refused := p.fails(subscribing{topic: name(1), name: "s", id: 1}.command(p.id()))
	if refused.GetError() != pulsarpb.ServerError_SubscriptionNotFound {
		t.Errorf("%v", refused)
	}
	p.subscribe(subscribing{topic: name(1), name: "reader", id: 2, transient: true})
}
