package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"geminga/pkg/bookietest"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
)

func (s *Server) rateOf(topic string) Rate {
	h := s.topics.serving(topic)
	h.limit.mu.Lock()
	defer h.limit.mu.Unlock()
	return h.limit.mu.rate.Rate()
}

// A namespace's rate counts for its topics on every broker, open or to be opened, above the broker's, until it is removed.
func TestNamespaceRates(t *testing.T) {
	cluster := bookietest.New(bookietest.Options{})
	s := startOn(t, cluster, func(o *Options) { o.Admission.TopicRate.Messages = 7 })
	ctx, d := context.Background(), s.Directory()
	ns, err := protocol.ParseNamespaceName("public/default")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetPublishRate(ctx, ns, &Rate{Messages: 1}); !errors.Is(err, ErrNoNamespace) {
		t.Errorf("before its first use: %v", err)
	}
	p := connect(t, s)
	p.producer(name(1), 1, "")
	p.producer("persistent://public/other/x", 2, "")
	if r := s.rateOf(name(1)); r != (Rate{Messages: 7}) {
		t.Errorf("the broker's rate is %v", r)
	}
	want := Rate{Messages: 500, Bytes: 9}
	if err := d.SetPublishRate(ctx, ns, &want); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace's rate", func() bool { return s.rateOf(name(1)) == want })
	p.producer(name(2), 3, "")
	if r := s.rateOf(name(2)); r != want {
		t.Errorf("a topic that is opened later has %v", r)
	}
	s.SetTopicPublishRate(Rate{Messages: 8})
	if a, b := s.rateOf(name(1)), s.rateOf("persistent://public/other/x"); a != want || b != (Rate{Messages: 8}) {
		t.Errorf("after the broker's has changed: %v, %v", a, b)
	}
	if r, ok, err := d.PublishRate(ctx, ns); r != want || !ok || err != nil {
		t.Errorf("%v %t %v", r, ok, err)
	}
	two := startOn(t, cluster, func(o *Options) { o.ID = "broker-2" })
	eventually(t, "another broker to know it", func() bool {
		two.rates.mu.Lock()
		defer two.rates.mu.Unlock()
		return two.rates.rate(metadata.NamespaceKey("public", "default")) == want
	})
	if err := d.SetPublishRate(ctx, ns, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker's rate", func() bool { return s.rateOf(name(1)) == Rate{Messages: 8} })
	if _, ok, err := d.PublishRate(ctx, ns); ok || err != nil {
		t.Errorf("%t %v", ok, err)
	}
	p.lookup(name(1)) // its bundles are untouched
}

// Policies that leave the rate open, as clients write them, can be given one.
func TestNamespaceRateOfNull(t *testing.T) {
	s, _ := start(t)
	d, want := s.Directory(), Rate{Messages: 3}
	for i, policies := range []string{``, `null`, `{}`, `{"publishMaxMessageRate":null}`, `{"publishMaxMessageRate":{}}`} {
		ns := parse(t, fmt.Sprintf("persistent://public/n%d/x", i)).NamespaceName()
		if err := d.CreateNamespace(t.Context(), ns, []byte(policies)); err != nil {
			t.Fatal(err)
		}
		if err := d.SetPublishRate(t.Context(), ns, &want); err != nil {
			t.Errorf("%s: %v", policies, err)
		}
		if r, ok, err := d.PublishRate(t.Context(), ns); r != want || !ok || err != nil {
			t.Errorf("%s: %v %t %v", policies, r, ok, err)
		}
	}
}
