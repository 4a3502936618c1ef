package broker

import (
	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// CONNECT opens the conversation; nothing may come before it, and it comes once. Exactly one frame answers it:
// CONNECTED, with the older of the two protocol versions and the largest message we take; or ERROR NotAllowedError with
// request id -1, when there are too many connections, and then the connection is closed. A client that announces that it
// reads broker entry metadata gets it with its messages, if the setting allows it. Authentication data is not looked at
// yet.
func handleConnect(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.Connect
	if c.connected {
		return c.violation("second CONNECT")
	}
	if c.refusal != nil {
		c.refuse(c.refusal)
		return nil //nolint:nilerr // the client is told
	}
	c.connected = true
	c.version = min(req.GetProtocolVersion(), protocol.Version)
	c.brokerEntries = c.server.opts.ExposeBrokerEntryMetadata && req.GetFeatureFlags().GetSupportsBrokerEntryMetadata()
	c.clientVersion = clip(req.GetClientVersion(), 200)
	c.reply(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_CONNECTED.Enum(),
		Connected: &pulsarpb.CommandConnected{
			ServerVersion:   proto.String("Geminga " + c.server.opts.Version),
			ProtocolVersion: proto.Int32(c.version),
			MaxMessageSize:  proto.Int32(int32(c.server.opts.MaxMessageSize)),
			FeatureFlags: &pulsarpb.FeatureFlags{
				SupportsTopicWatchers: proto.Bool(false), SupportsGetPartitionedMetadataWithoutAutoCreation: proto.Bool(true),
			},
		},
	})
	return nil
}

func clip(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}
