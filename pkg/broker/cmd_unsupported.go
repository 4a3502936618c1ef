package broker

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// Commands that are not there yet are answered with ERROR, NotAllowedError and the id of the request, which every client
// takes for a failed request. Transactions get the words that clients know: "Transactions are not enabled".
func handleUnsupported(c *conn, cmd *pulsarpb.BaseCommand) error {
	id, ok := requestID(cmd)
	if !ok {
		return c.violation("command without request id", "command", cmd.GetType().String())
	}
	text := cmd.GetType().String() + " is not supported yet"
	if t := cmd.GetType(); t >= pulsarpb.BaseCommand_NEW_TXN && t <= pulsarpb.BaseCommand_TC_CLIENT_CONNECT_RESPONSE {
		text = "Transactions are not enabled"
	}
	c.state.buf = protocol.AppendError(c.state.buf[:0], id, pulsarpb.ServerError_NotAllowedError, text)
	c.write(c.state.buf)
	return nil
}

// handleAuthResponse takes an answer to a challenge that we never sent.
func handleAuthResponse(c *conn, _ *pulsarpb.BaseCommand) error {
	return c.violation("AUTH_RESPONSE without challenge")
}

// requestID finds the field request_id of whatever command cmd holds.
func requestID(cmd *pulsarpb.BaseCommand) (uint64, bool) {
	m := cmd.ProtoReflect()
	f := m.Descriptor().Fields().ByNumber(protoreflect.FieldNumber(cmd.GetType()))
	if f == nil || f.Kind() != protoreflect.MessageKind || !m.Has(f) {
		return 0, false
	}
	inner := m.Get(f).Message()
	id := inner.Descriptor().Fields().ByName("request_id")
	if id == nil || !inner.Has(id) {
		return 0, false
	}
	return inner.Get(id).Uint(), true
}
