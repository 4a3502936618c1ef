package broker

import (
	"fmt"

	"geminga/pkg/ledger"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// SEEK moves a subscription to a message: that one comes next, or the first or behind the last one. All consumers of the
// subscription are closed before (CLOSE_CONSUMER) and subscribe again; then SUCCESS answers. An index in a batch is not
// looked at: the batch comes as a whole, and clients pass over what lies before. A time is ERROR NotAllowedError for now.
func handleSeek(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.Seek
	request := req.GetRequestId()
	k := c.consumers[req.GetConsumerId()]
	switch {
	case k == nil || k.state != ready:
		c.fail(request, errNoConsumer)
		return nil
	case req.MessageId == nil && req.MessagePublishTime != nil:
		c.fail(request, fmt.Errorf("seek to a time: %w", topic.ErrNotSupported))
		return nil
	case req.MessageId == nil:
		c.fail(request, fmt.Errorf("seek to nowhere: %w", topic.ErrBadRequest))
		return nil
	}
	to := positionOf(req.MessageId.GetLedgerId(), req.MessageId.GetEntryId())
	t := k.topic
	t.Executor().PostFunc(func() { c.seek(t, to, request) })
	return nil
}

// seek is on the subscription's executor.
func (c *conn) seek(t *topic.Consumer, to ledger.Position, request uint64) {
	t.Seek(to, func(err error) {
		c.post(func() { // behind the closing of the consumers
			if err != nil {
				c.fail(request, err)
				return
			}
			c.succeed(request)
		})
	})
}
