package broker

import "geminga/rpc/pulsarpb"

// CLOSE_PRODUCER takes a producer away. SUCCESS comes when everything sent before has its receipt. One that is still
// being opened is given up. An id that is not registered is ERROR UnknownError, as in Pulsar.
func handleCloseProducer(c *conn, cmd *pulsarpb.BaseCommand) error {
	id, request := cmd.CloseProducer.GetProducerId(), cmd.CloseProducer.GetRequestId()
	p := c.producers[id]
	switch {
	case p == nil:
		if _, closed := c.dropped[id]; closed { // both sides closed it at once
			c.succeed(request)
			return nil
		}
		c.fail(request, errNoProducer)
	case p.state == opening:
		p.undone, p.state = errMoved, leaving
		p.leave(nil)
		c.succeed(request)
	case p.state == leaving:
		c.fail(request, errPresent)
	default:
		p.state = leaving
		p.leave(func() {
			c.post(func() {
				if c.producers[id] == p {
					delete(c.producers, id)
				}
				c.succeed(request)
			})
		})
	}
	return nil
}

// topicClosed handles that a topic has let go of one of our producers or consumers: the client is told to look the topic
// up again. On the loop.
func (c *conn) topicClosed(what pulsarpb.BaseCommand_Type, id uint64) {
	if c.closed {
		return
	}
	if what == pulsarpb.BaseCommand_CLOSE_PRODUCER {
		c.producerClosed(id)
	} else {
		c.consumerClosed(id)
	}
}

func (c *conn) producerClosed(id uint64) {
	p := c.producers[id]
	if p == nil {
		return
	}
	switch p.state {
	case opening:
		p.undone = errMoved
	case leaving: // SUCCESS is on its way
	case ready:
		delete(c.producers, id)
		if c.dropped == nil {
			c.dropped = make(map[uint64]struct{})
		}
		c.dropped[id] = struct{}{}
		p.leave(nil)
		c.sendClose(pulsarpb.BaseCommand_CLOSE_PRODUCER, id)
	}
}

func (c *conn) consumerClosed(id uint64) {
	k := c.consumers[id]
	if k == nil {
		return
	}
	switch k.state {
	case opening:
		k.undone = errMoved
	case leaving:
	case ready:
		delete(c.consumers, id)
		k.leave(nil)
		c.sendClose(pulsarpb.BaseCommand_CLOSE_CONSUMER, id)
	}
}
