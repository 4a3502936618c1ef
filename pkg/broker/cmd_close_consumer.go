package broker

import (
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// CLOSE_CONSUMER takes a consumer away; what it has not acknowledged is delivered again, to it or to others. SUCCESS
// comes when it is off the subscription, so that a client may subscribe again at once. One that is still being opened is
// given up. An id that is not there is ERROR MetadataError, as in Pulsar.
func handleCloseConsumer(c *conn, cmd *pulsarpb.BaseCommand) error {
	id, request := cmd.CloseConsumer.GetConsumerId(), cmd.CloseConsumer.GetRequestId()
	k := c.consumers[id]
	switch {
	case k == nil:
		c.fail(request, errNoConsumer)
	case k.state == opening:
		k.undone, k.state = errMoved, leaving
		c.succeed(request)
	case k.state == leaving:
		c.fail(request, errPresent)
	default:
		k.state = leaving
		k.leave(func(error) {
			c.post(func() {
				if c.consumers[id] == k {
					delete(c.consumers, id)
				}
				c.succeed(request)
			})
		})
	}
	return nil
}

// sendClose tells a client that a producer or consumer of its is closed and may be opened again where a lookup says.
func (c *conn) sendClose(what pulsarpb.BaseCommand_Type, id uint64) {
	c.state.buf = protocol.AppendClose(c.state.buf[:0], what, id, "", "")
	c.write(c.state.buf)
}
