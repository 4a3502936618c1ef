package broker

import (
	"geminga/pkg/eventloop"
	"geminga/pkg/executor"
)

// FLOW gives a consumer permits for more messages. There is no answer; for a consumer that is not there (yet, or any
// more) it is ignored.
func handleFlow(c *conn, _ *eventloop.Root) error {
	flow := &c.state.flow
	if err := flow.Decode(c.state.frame.Body); err != nil {
		return c.broken(err, nil)
	}
	if k := c.consumers[flow.ConsumerID]; k != nil && k.state == ready {
		t, n := k.topic, flow.Permits
		t.Executor().Post(executor.Func(func() { t.Flow(n) }))
	}
	return nil
}
