package broker

import (
	"errors"

	"geminga/pkg/eventloop"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// command is how one command of the protocol is handled. Exactly one of the two is set; neither: a client must not send
// it. A returned error closes the connection: it means that the client breaks the protocol, not that a request failed.
type command struct {
	handle func(*conn, *pulsarpb.BaseCommand) error
	hot    func(*conn, *eventloop.Root) error // decodes conn.state.frame itself
}

// commandTable maps the number of a command to its handler. Each has a file of its own, cmd_*.go.
func commandTable() []command {
	unsupported := command{handle: handleUnsupported}
	table := [...]command{
		pulsarpb.BaseCommand_CONNECT:                           {handle: handleConnect},
		pulsarpb.BaseCommand_PING:                              {hot: handlePing},
		pulsarpb.BaseCommand_PONG:                              {hot: handlePong},
		pulsarpb.BaseCommand_PARTITIONED_METADATA:              {handle: handlePartitionedMetadata},
		pulsarpb.BaseCommand_LOOKUP:                            {handle: handleLookup},
		pulsarpb.BaseCommand_GET_TOPICS_OF_NAMESPACE:           {handle: handleGetTopics},
		pulsarpb.BaseCommand_PRODUCER:                          {handle: handleProducer},
		pulsarpb.BaseCommand_SEND:                              {hot: handleSend},
		pulsarpb.BaseCommand_CLOSE_PRODUCER:                    {handle: handleCloseProducer},
		pulsarpb.BaseCommand_SUBSCRIBE:                         {handle: handleSubscribe},
		pulsarpb.BaseCommand_FLOW:                              {hot: handleFlow},
		pulsarpb.BaseCommand_ACK:                               {hot: handleAck},
		pulsarpb.BaseCommand_REDELIVER_UNACKNOWLEDGED_MESSAGES: {handle: handleRedeliver},
		pulsarpb.BaseCommand_GET_LAST_MESSAGE_ID:               {handle: handleGetLastMessageID},
		pulsarpb.BaseCommand_SEEK:                              {handle: handleSeek},
		pulsarpb.BaseCommand_UNSUBSCRIBE:                       {handle: handleUnsubscribe},
		pulsarpb.BaseCommand_CLOSE_CONSUMER:                    {handle: handleCloseConsumer},

		pulsarpb.BaseCommand_CONSUMER_STATS:            unsupported,
		pulsarpb.BaseCommand_GET_SCHEMA:                unsupported,
		pulsarpb.BaseCommand_GET_OR_CREATE_SCHEMA:      unsupported,
		pulsarpb.BaseCommand_AUTH_RESPONSE:             {handle: handleAuthResponse},
		pulsarpb.BaseCommand_NEW_TXN:                   unsupported,
		pulsarpb.BaseCommand_ADD_PARTITION_TO_TXN:      unsupported,
		pulsarpb.BaseCommand_ADD_SUBSCRIPTION_TO_TXN:   unsupported,
		pulsarpb.BaseCommand_END_TXN:                   unsupported,
		pulsarpb.BaseCommand_END_TXN_ON_PARTITION:      unsupported,
		pulsarpb.BaseCommand_END_TXN_ON_SUBSCRIPTION:   unsupported,
		pulsarpb.BaseCommand_TC_CLIENT_CONNECT_REQUEST: unsupported,
		pulsarpb.BaseCommand_WATCH_TOPIC_LIST:          unsupported,
		pulsarpb.BaseCommand_WATCH_TOPIC_LIST_CLOSE:    unsupported,
	}
	return table[:]
}

// kindOf sorts errors of the codec for the log.
func kindOf(err error) kind {
	switch {
	case errors.Is(err, protocol.ErrFrameTooLarge):
		return kindTooLarge
	case errors.Is(err, protocol.ErrBadCommand):
		return kindBadCommand
	case errors.Is(err, protocol.ErrBadPayload):
		return kindBadPayload
	case errors.Is(err, protocol.ErrChecksum):
		return kindChecksum
	}
	return kindBadFrame
}
