package broker

import (
	"geminga/pkg/eventloop"
	"geminga/pkg/protocol"
)

// PING is answered with PONG. Every frame, PONG among them, shows that the client is alive; so PONG itself does nothing.
func handlePing(c *conn, _ *eventloop.Root) error {
	c.state.buf = protocol.AppendPong(c.state.buf[:0])
	c.write(c.state.buf)
	return nil
}

func handlePong(*conn, *eventloop.Root) error { return nil }
