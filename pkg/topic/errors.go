package topic

import "errors"

// Outcomes of requests to a topic. The broker maps each to a code of the protocol; compare with errors.Is. Texts must
// not contain the name of a code that makes clients give up (TopicNotFound, ConsumerBusy …) unless that is meant.
var (
	ErrProducerBusy     = errors.New("producer with this name is connected")
	ErrProducerFenced   = errors.New("producer was fenced")
	ErrConsumerBusy     = errors.New("subscription has a connected consumer already")
	ErrConsumerAssign   = errors.New("hashes of keys cannot be assigned")
	ErrTypeMismatch     = errors.New("subscription has consumers of another type")
	ErrNotAllowed       = errors.New("not allowed")
	ErrNotSupported     = errors.New("not supported yet")
	ErrNoSubscription   = errors.New("no such subscription")
	ErrNoEntry          = errors.New("no such message")
	ErrInUse            = errors.New("topic has connected producers or consumers")
	ErrNotReady         = errors.New("topic is closing or was taken over, look it up again")
	ErrConsumerClosed   = errors.New("consumer is closed")
	ErrBadSnapshot      = errors.New("damaged deduplication snapshot")
	ErrBadRequest       = errors.New("malformed request")
	ErrTooManyProducers = errors.New("too many producers")
	ErrTooManyConsumers = errors.New("too many consumers")
)

// ErrDropped is the outcome of a message that was not stored and whose producer has been closed. Nothing goes to the
// client for it (the client sends it again after it has reconnected); it is there so that whoever counts messages in
// flight sees each come back exactly once.
var ErrDropped = errors.New("message dropped, its producer was closed")
