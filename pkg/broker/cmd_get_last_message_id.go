package broker

import (
	"google.golang.org/protobuf/proto"

	"geminga/pkg/ledger"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// GET_LAST_MESSAGE_ID tells where the consumer's topic ends (entry -1 when it is empty; batch_index of the last message
// in a batch, else -1) and how far the subscription has acknowledged, which readers need and break without.
func handleGetLastMessageID(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.GetLastMessageId
	k := c.consumers[req.GetConsumerId()]
	if k == nil || k.state != ready {
		c.fail(req.GetRequestId(), errNoConsumer)
		return nil
	}
	t, request, partition := k.topic, req.GetRequestId(), int32(k.hosted.name.Partition)
	t.Executor().PostFunc(func() {
		t.LastMessage(func(m topic.LastMessage, err error) {
			c.post(func() {
				if err != nil {
					c.fail(request, err)
					return
				}
				c.reply(&pulsarpb.BaseCommand{
					Type: pulsarpb.BaseCommand_GET_LAST_MESSAGE_ID_RESPONSE.Enum(),
					GetLastMessageIdResponse: &pulsarpb.CommandGetLastMessageIdResponse{
						RequestId:                  proto.Uint64(request),
						LastMessageId:              messageID(m.Position, partition, m.BatchIndex),
						ConsumerMarkDeletePosition: messageID(m.MarkDeleted, partition, -1),
					},
				})
			})
		})
	})
	return nil
}

func messageID(p ledger.Position, partition, batchIndex int32) *pulsarpb.MessageIdData {
	return &pulsarpb.MessageIdData{
		LedgerId: proto.Uint64(uint64(p.Ledger)), EntryId: proto.Uint64(uint64(p.Entry)),
		Partition: proto.Int32(partition), BatchIndex: proto.Int32(batchIndex),
	}
}
