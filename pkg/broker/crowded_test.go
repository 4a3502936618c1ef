package broker

import (
	"testing"
	"time"

	"geminga/rpc/pulsarpb"
)

// One consumer too many is refused only when all the others live: a client that comes back after its network broke must
// not be refused because of what it has left behind, on whatever subscription.
func TestTooManyConsumers(t *testing.T) {
	s, _ := start(t, func(o *Options) {
		o.ConnectionLivenessCheckTimeout = 100 * time.Millisecond
		o.Topic.MaxConsumersPerTopic, o.Topic.MaxSubscriptionsPerTopic = 1, 2
	})
	old, next := connect(t, s), connect(t, s)
	old.subscribe(subscribing{topic: name(1), name: "a", id: 1})
	next.lookup(name(1))
	ask := subscribing{topic: name(1), name: "b", id: 1}.command(next.id())

	takePlace(t, old, next, ask)

	next.send(subscribing{topic: name(1), name: "c", id: 2}.command(next.id()))
	if got := next.expect(pulsarpb.BaseCommand_ERROR).Error.GetError(); got != pulsarpb.ServerError_NotAllowedError {
		t.Errorf("%v", got)
	}
}
