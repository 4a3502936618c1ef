package topic

import (
	"geminga/pkg/ledger"
)

// NoPosition is in the receipt of a message that was stored before (a duplicate): all bits set, as clients expect.
var NoPosition = ledger.Position{Ledger: ^ledger.ID(0), Entry: ledger.NoEntry}

// Receipt is the outcome of one published message (or batch of messages that travels as one).
type Receipt struct {
	ProducerID        uint64
	SequenceID        uint64
	HighestSequenceID uint64
	Position          ledger.Position // NoPosition for a duplicate
	Err               error           // nil, or ErrDropped wrapped: then nothing is to be sent to the client
	Size              int             // payload bytes as given to Publish
}

// Delivery is an entry on its way to a consumer.
type Delivery struct {
	Entry      ledger.Entry
	AckSet     []int64 // set bits are messages of the batch that are not acknowledged yet; nil: all; immutable
	Redelivery uint32  // how often it was given back before
	Messages   int32   // messages in the entry that count against permits
}

// Sink is a connection, as a topic sees it. The broker implements it.
//
// Its methods are called on executors of topics and of subscriptions, several at once; they must not block, must not
// call back into the topic, and must be harmless after the connection is gone. Slices that are handed over are reused
// after the call. Two Sinks are the same connection exactly when they are equal (==).
type Sink interface {
	// Receipts are in order per producer. Each message that was given to Publish comes back here exactly once.
	Receipts(rs []Receipt)
	// Deliver hands over entries in the order in which the consumer has to see them. The Sink owns the payload
	// references from now on, whether or not it can send them.
	Deliver(c *Consumer, ds []Delivery)
	// CloseProducer and CloseConsumer tell the client to look the topic up again. The topic has let go of the producer
	// or consumer already; no other call is needed for it.
	CloseProducer(id uint64)
	CloseConsumer(id uint64)
	// ActiveChanged tells the client whether its consumer of a failover subscription is the active one. It comes after
	// the consumer was given to whoever subscribed.
	ActiveChanged(c *Consumer, active bool)
	// Room is how many payload bytes are worth a Deliver now; an entry that is larger may be delivered all the same. It
	// is 0 while much output is queued. When it is not any more the broker calls Consumer.Resume on the executor of each
	// consumer of the connection: the change is visible here before Resume is posted.
	Room() int
}
