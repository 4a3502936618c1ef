package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"geminga/pkg/bookietest"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

func parse(t *testing.T, text string) protocol.TopicName {
	t.Helper()
	n, err := protocol.ParseTopicName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// steps compares outcomes, in order.
func steps(t *testing.T, pairs ...error) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !errors.Is(pairs[i], pairs[i+1]) {
			t.Errorf("step %d: %v instead of %v", i/2, pairs[i], pairs[i+1])
		}
	}
}

func recordsLeft(t *testing.T, c *bookietest.Client) (left []string) {
	t.Helper()
	for _, prefix := range []string{metadata.TopicsPrefix, metadata.CursorsPrefix, metadata.PartitionedPrefix} {
		got := make(chan []metadata.Item, 1)
		c.List(prefix, func(items []metadata.Item, _ error) { got <- items })
		for _, item := range <-got {
			left = append(left, item.Key)
		}
	}
	return left
}

// A topic that is in use is deleted by force only; its producers and consumers are closed, and those that come back find
// an empty one.
func TestDeleteTopic(t *testing.T) {
	s, cluster := start(t)
	d, ctx := s.Directory(), context.Background()
	p := connect(t, s)
	p.producer(name(1), 1, "")
	p.publish(1, 0, "gone")
	p.subscribe(subscribing{topic: name(1), name: "s", id: 7})
	n := parse(t, name(1))
	steps(t, d.DeleteTopic(ctx, n, false), topic.ErrInUse, d.DeleteTopic(ctx, n, true), nil)
	told := []pulsarpb.BaseCommand_Type{}
	for range 2 {
		cmd, _, err := p.frame()
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, cmd.GetType())
	}
	slices.Sort(told)
	if !slices.Equal(told, []pulsarpb.BaseCommand_Type{pulsarpb.BaseCommand_CLOSE_PRODUCER, pulsarpb.BaseCommand_CLOSE_CONSUMER}) {
		t.Errorf("told %v", told)
	}
	if left := recordsLeft(t, cluster.Client()); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	steps(t, d.DeleteTopic(ctx, n, true), ErrNoSuchTopic)
	p.producer(name(1), 2, "")
	p.subscribe(subscribing{topic: name(1), name: "s", id: 8})
	p.publish(2, 0, "new")
	p.flow(8, 10)
	if _, body := p.receive(); body != "new" {
		t.Errorf("got %q", body)
	}
}

func TestDeletePartitions(t *testing.T) {
	s, cluster := start(t)
	d, ctx := s.Directory(), context.Background()
	n := parse(t, name(1))
	remove := func(force bool) error {
		return d.DeletePartitions(ctx, n, func(p protocol.TopicName) error { return d.DeleteTopic(ctx, p, force) })
	}
	steps(t, remove(false), ErrNoSuchTopic, d.CreatePartitions(ctx, n, 3), nil)
	p := connect(t, s)
	p.producer(n.WithPartition(1).String(), 1, "")
	steps(t,
		d.DeleteTopic(ctx, n, true), ErrPartitioned,
		remove(false), topic.ErrInUse,
		remove(true), nil,
		remove(true), ErrNoSuchTopic,
	)
	if left := recordsLeft(t, cluster.Client()); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestSubscriptionsOfAdministrators(t *testing.T) {
	s, _ := start(t)
	d, ctx := s.Directory(), context.Background()
	n := parse(t, name(1))
	p := connect(t, s)
	p.subscribe(subscribing{topic: name(1), name: "b", id: 1})
	p.subscribe(subscribing{topic: name(1), name: "a", id: 2})
	p.subscribe(subscribing{topic: name(1), name: "reader", id: 3, transient: true})
	if got, err := d.Subscriptions(ctx, n); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q, %v", got, err)
	}
	steps(t,
		d.DeleteSubscription(ctx, n, "a", false), topic.ErrConsumerBusy,
		d.DeleteSubscription(ctx, n, "a", true), nil,
		d.DeleteSubscription(ctx, n, "a", true), topic.ErrNoSubscription,
		d.DeleteSubscription(ctx, parse(t, name(2)), "a", true), ErrNoSuchTopic,
	)
	p.expect(pulsarpb.BaseCommand_CLOSE_CONSUMER)
}

// Topics that are deleted while clients make them anew are either gone or whole: nobody hangs, and every message that
// has its receipt after the last deletion is there.
func TestDeleteWhileTopicsAreMade(t *testing.T) {
	s, _ := start(t)
	d, ctx := s.Directory(), context.Background()
	n := parse(t, name(1))
	connect(t, s).lookup(name(1))
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 100 {
			_ = d.DeleteTopic(ctx, n, true)
		}
	})
	for i := range 2 {
		c := connect(t, s)
		wg.Go(func() {
			for j := range 50 {
				c.send(producerCommand(name(1), uint64(j), *c.id(), fmt.Sprint("p", i)))
				for answered := false; !answered; {
					cmd, _, err := c.frame()
					if err != nil {
						t.Error(err)
						return
					}
					answered = cmd.GetType() == pulsarpb.BaseCommand_PRODUCER_SUCCESS || cmd.GetType() == pulsarpb.BaseCommand_ERROR
				}
			}
		})
	}
	wg.Wait()
	_ = d.DeleteTopic(ctx, n, true)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	id := p.publish(1, 0, "here")
	e, err := d.ReadEntry(ctx, n, int64(id.GetLedgerId()), int64(id.GetEntryId()))
	if err != nil || string(e.Body) != "here" || e.ProducerName != "p" || e.PublishTime != 1 || e.Batch != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	_, err = d.ReadEntry(ctx, n, int64(id.GetLedgerId()), 1)
	steps(t, err, topic.ErrNoEntry)
	_, err = d.ReadEntry(ctx, parse(t, name(2)), 0, 0)
	steps(t, err, ErrNoSuchTopic)
}

func TestNamespaces(t *testing.T) {
	s, _ := start(t)
	d, ctx := s.Directory(), context.Background()
	ns := func(text string) protocol.NamespaceName {
		n, err := protocol.ParseNamespaceName(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	steps(t,
		d.CreateNamespace(ctx, ns("acme/one"), nil), ErrNoTenant,
		d.CreateTenant(ctx, "acme", []byte("null")), nil,
		d.CreateTenant(ctx, "acme", nil), ErrTenantExists,
		d.CreateTenant(ctx, "public", nil), ErrTenantExists,
		d.CreateTenant(ctx, "a b/c", nil), protocol.ErrBadNamespace,
		d.CreateNamespace(ctx, ns("acme/one"), []byte(`{"bundles":{"numBundles":3},"x":1}`)), ErrPolicyNotSupported,
		d.CreateNamespace(ctx, ns("acme/one"), []byte(`{"bundles":{"numBundles":3},"deleted":false}`)), nil,
		d.CreateNamespace(ctx, ns("acme/one"), nil), ErrNamespaceExists,
		d.CreateNamespace(ctx, ns("acme/two"), []byte(`[]`)), ErrBadPolicies,
		d.CreateNamespace(ctx, ns("acme/two"), []byte("null")), nil,
		d.DeleteNamespace(ctx, ns("acme/three")), ErrNoNamespace,
	)
	topicName := "persistent://acme/one/t"
	p := connect(t, s)
	p.producer(topicName, 1, "")
	s.owners.mu.Lock()
	if n := s.owners.mu.counts["acme/one"]; n != 3 {
		t.Errorf("%d bundles", n)
	}
	s.owners.mu.Unlock()
	if got, err := d.Namespaces(ctx, "acme"); err != nil || !slices.Equal(got, []string{"acme/one", "acme/two"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := d.NamespacePolicies(ctx, ns("acme/one")); err != nil || string(got) != `{"bundles":{"numBundles":3}}` {
		t.Errorf("%s, %v", got, err)
	}
	_, noTopics := d.NamespaceTopics(ctx, ns("acme/three"))
	steps(t,
		noTopics, ErrNoNamespace,
		d.DeleteNamespace(ctx, ns("acme/one")), ErrNamespaceNotEmpty,
		d.DeleteTopic(ctx, parse(t, topicName), true), nil,
		d.DeleteNamespace(ctx, ns("acme/one")), nil,
		d.DeleteNamespace(ctx, ns("acme/one")), ErrNoNamespace,
	)
	if got, err := d.Namespaces(ctx, "acme"); err != nil || !slices.Equal(got, []string{"acme/two"}) {
		t.Errorf("%q, %v", got, err)
	}
	steps(t, d.CreateNamespace(ctx, ns("acme/one"), nil), nil)
	if got, err := d.Tenants(ctx); err != nil || !slices.Equal(got, []string{"acme", "public"}) {
		t.Errorf("%q, %v", got, err)
	}
}
