package broker

import (
	"context"
	"errors"
	"slices"
	"testing"

	"geminga/pkg/protocol"
)

// Topics that administrators make, with partitions and without, are seen by clients at once.
func TestCreateTopics(t *testing.T) {
	s, _ := start(t)
	d, ctx := s.Directory(), context.Background()
	parted, plain := parse(t, name(1)), parse(t, name(2))
	for i, step := range []struct {
		err, want error
	}{
		{d.CreatePartitions(ctx, parted, 2), nil},
		{d.CreatePartitions(ctx, parted, 2), ErrTopicExists},
		{d.CreateTopic(ctx, parted), ErrTopicExists},
		{d.UpdatePartitions(ctx, parted, 1), ErrFewerPartitions},
		{d.UpdatePartitions(ctx, parted, 3), nil},
		{d.CreateTopic(ctx, plain), nil},
		{d.CreateTopic(ctx, plain), ErrTopicExists},
		{d.CreatePartitions(ctx, plain, 2), ErrTopicExists},
		{d.UpdatePartitions(ctx, plain, 2), ErrNoSuchTopic},
		{d.CreatePartitions(ctx, parse(t, name(1)+"-partition-0"), 2), protocol.ErrBadTopicName},
		{d.CreatePartitions(ctx, parse(t, "non-persistent://public/default/x"), 2), errNotPersistent},
	} {
		if !errors.Is(step.err, step.want) {
			t.Errorf("step %d: %v instead of %v", i, step.err, step.want)
		}
	}
	p := connect(t, s)
	if got := p.partitions(name(1), false); got != 3 {
		t.Errorf("%d partitions", got)
	}
	p.producer(name(1)+"-partition-1", 1, "") // it exists now, and is named once nevertheless
	got, err := d.NamespaceTopics(ctx, parted.NamespaceName())
	want := []string{name(1) + "-partition-0", name(1) + "-partition-1", name(1) + "-partition-2", name(2)}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}
