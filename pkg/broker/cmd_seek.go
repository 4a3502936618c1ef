package broker

import (
	"fmt"

	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// SEEK moves a subscription to a message: that one comes next, or the first or behind the last one. All consumers of the
// subscription are closed before (CLOSE_CONSUMER) and subscribe again; then SUCCESS answers. An index in a batch is not
// looked at: the batch comes as a whole, and clients pass over what lies before. With a time it is the first message that
// was published then or later.
func handleSeek(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.Seek
	request := req.GetRequestId()
	k := c.consumers[req.GetConsumerId()]
	switch {
	case k == nil || k.state != ready:
		c.fail(request, errNoConsumer)
		return nil
	case req.MessageId == nil && req.MessagePublishTime == nil:
		c.fail(request, fmt.Errorf("seek to nowhere: %w", topic.ErrBadRequest))
		return nil
	}
	t := k.topic
	t.Executor().PostFunc(func() {
		if id := req.MessageId; id != nil {
			t.Seek(positionOf(id.GetLedgerId(), id.GetEntryId()), c.sought(request))
		} else {
			t.SeekTime(req.GetMessagePublishTime(), c.sought(request))
		}
	})
	return nil
}

// sought answers a SEEK, behind the closing of the consumers.
func (c *conn) sought(request uint64) func(error) {
	return func(err error) {
		c.post(func() {
			if err != nil {
				c.fail(request, err)
				return
			}
			c.succeed(request)
		})
	}
}
