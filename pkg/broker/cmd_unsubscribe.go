package broker

import "geminga/rpc/pulsarpb"

// UNSUBSCRIBE removes the consumer's subscription with its position; SUCCESS comes when it is gone for good. With other
// consumers connected it is an ERROR, unless forced: then those are closed.
func handleUnsubscribe(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.Unsubscribe
	id, request := req.GetConsumerId(), req.GetRequestId()
	k := c.consumers[id]
	if k == nil || k.state != ready {
		c.fail(request, errNoConsumer)
		return nil
	}
	k.topic.Unsubscribe(req.GetForce(), func(err error) {
		c.post(func() {
			if err != nil {
				c.fail(request, err)
				return
			}
			if c.consumers[id] == k {
				delete(c.consumers, id)
				k.hosted.leaveConsumer(k)
			}
			c.succeed(request)
		})
	})
	return nil
}
