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

func (p *peer) partitions(topic string) uint32 {
	p.t.Helper()
	p.send(&pulsarpb.BaseCommand{
		Type:              pulsarpb.BaseCommand_PARTITIONED_METADATA.Enum(),
		PartitionMetadata: &pulsarpb.CommandPartitionedTopicMetadata{Topic: &topic, RequestId: p.id()},
	})
	return p.expect(pulsarpb.BaseCommand_PARTITIONED_METADATA_RESPONSE).PartitionMetadataResponse.GetPartitions()
}

// Topics that clients make have partitions if the rules say so; topics that exist are what they are.
func TestAutoPartitions(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	s.rules.Store(&TopicRules{AutoPartitioned: true, DefaultPartitions: 3, InactiveCheck: time.Hour})
	for topic, want := range map[string]uint32{
		name(1): 0, name(2): 3, name(2) + "-partition-1": 0, "non-persistent://public/default/x": 0,
	} {
		for range 2 {
			if got := p.partitions(topic); got != want {
				t.Errorf("%s: %d partitions instead of %d", topic, got, want)
			}
		}
	}
	n, err := s.Directory().Partitions(context.Background(), parse(t, name(2)))
	if err != nil || n != 3 {
		t.Errorf("%d partitions, %v", n, err)
	}
	s.rules.Store(&TopicRules{AutoPartitioned: true, DefaultPartitions: 3, DisableAutoTopicCreation: true, InactiveCheck: time.Hour})
	if got := p.partitions(name(3)); got != 0 {
		t.Errorf("%d partitions though topics are not made", got)
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
