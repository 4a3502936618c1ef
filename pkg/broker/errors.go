package broker

import (
	"errors"
	"strings"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// ErrTopicNotHere says that a topic is not open on this broker.
var ErrTopicNotHere = errors.New("topic is not open on this broker")

var (
	errNotOwner      = errors.New("topic is not served here, look it up again")
	errNoOwner       = errors.New("topic has no owner yet, look it up again")
	errMetadata      = errors.New("metadata is not reachable at the moment")
	errShuttingDown  = errors.New("broker is shutting down")
	errNoSuchTopic   = errors.New("topic does not exist")
	errNotPersistent = errors.New("not for non-persistent topics")
	errPresent       = errors.New("request for the same id is under way on this connection")
	errMoved         = errors.New("topic moved meanwhile, look it up again")
	errNoConsumer    = errors.New("consumer not found")
	errNoProducer    = errors.New("producer was not registered on the connection")
	errBadName       = errors.New("name is empty or too long")

	// Reasons to close a connection.
	errProtocol   = errors.New("protocol violation")
	errHandshake  = errors.New("no CONNECT in time")
	errKeepAlive  = errors.New("no answer to PING")
	errReplaced   = errors.New("connection found dead when its client came back")
	errSlowReader = errors.New("client does not read")
)

// Transient reports that nothing is wrong with a request: the topic is on its way to another broker, this one ends, or the
// metadata does not answer. The same request may succeed a moment later.
func Transient(err error) bool {
	for _, e := range []error{errNotOwner, errNoOwner, errMetadata, errShuttingDown, errMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// fault says what a client is told about an error.
type fault struct {
	sentinel error
	code     protocol.ServerError
}

// faults is the one table from errors to codes of the protocol; the first match counts.
//
// Clients decide by code, and by words in the text: a code's name in the text of another code is taken for that code.
// ServiceNotReady makes every client try again. Whatever may pass by itself is ServiceNotReady, and its text never holds
// a word that ends a producer or consumer for good (text below sees to it).
func faults() []fault {
	return []fault{
		{topic.ErrProducerBusy, pulsarpb.ServerError_ProducerBusy},
		{topic.ErrTooManyProducers, pulsarpb.ServerError_ProducerBusy},
		{topic.ErrProducerFenced, pulsarpb.ServerError_ProducerFenced},
		{topic.ErrConsumerBusy, pulsarpb.ServerError_ConsumerBusy},
		{topic.ErrTypeMismatch, pulsarpb.ServerError_ConsumerBusy},
		{topic.ErrTooManyConsumers, pulsarpb.ServerError_ConsumerBusy},
		{topic.ErrConsumerAssign, pulsarpb.ServerError_ConsumerAssignError},
		{topic.ErrNotAllowed, pulsarpb.ServerError_NotAllowedError},
		{topic.ErrNotSupported, pulsarpb.ServerError_NotAllowedError},
		{topic.ErrBadRequest, pulsarpb.ServerError_NotAllowedError},
		{topic.ErrNoSubscription, pulsarpb.ServerError_SubscriptionNotFound},
		{topic.ErrNotReady, pulsarpb.ServerError_ServiceNotReady},
		{topic.ErrConsumerClosed, pulsarpb.ServerError_ServiceNotReady},
		{topic.ErrBadSnapshot, pulsarpb.ServerError_PersistenceError},
		{errNotPersistent, pulsarpb.ServerError_NotAllowedError},
		{errBadName, pulsarpb.ServerError_NotAllowedError},
		{errNoSuchTopic, pulsarpb.ServerError_TopicNotFound},
		{errTooManyLookups, pulsarpb.ServerError_TooManyRequests},
		{errTooManyRequests, pulsarpb.ServerError_TooManyRequests},
		{errTooManyHandles, pulsarpb.ServerError_TooManyRequests},
		{errSubscribesTooFast, pulsarpb.ServerError_TooManyRequests},
		{errNoConsumer, pulsarpb.ServerError_MetadataError},
		{errNoProducer, pulsarpb.ServerError_UnknownError},
		{protocol.ErrBadTopicName, pulsarpb.ServerError_InvalidTopicName},
		{protocol.ErrBadNamespace, pulsarpb.ServerError_InvalidTopicName},
		{protocol.ErrChecksum, pulsarpb.ServerError_ChecksumError},
		{managedledger.ErrBadPosition, pulsarpb.ServerError_MetadataError},
		{managedledger.ErrCorrupt, pulsarpb.ServerError_PersistenceError},
		{metadata.ErrTooLarge, pulsarpb.ServerError_NotAllowedError},
		{ledger.ErrUnreadable, pulsarpb.ServerError_ServiceNotReady},
	}
}

// codeOf returns the code for an error. What is not in the table is some trouble of ours that may pass.
func (s *Server) codeOf(err error) protocol.ServerError {
	for i := range s.faults {
		if errors.Is(err, s.faults[i].sentinel) {
			return s.faults[i].code
		}
	}
	return pulsarpb.ServerError_ServiceNotReady
}

// fatalWords make clients give up, wherever in a text they find them.
func fatalWords() []string {
	return []string{
		"TopicNotFound", "TopicTerminatedError", "SubscriptionNotFound", "AuthorizationError", "ConsumerBusy",
		"InvalidTopicName", "IncompatibleSchema", "ConsumerAssignError", "NotAllowedError", "ProducerFenced",
		"ProducerBlockedQuotaExceeded",
	}
}

// text returns what a client is told. Names that users choose may hold any word: then a transient error loses its text.
func (s *Server) text(code protocol.ServerError, err error) string {
	const most = 1000
	t := err.Error()
	if len(t) > most {
		t = t[:most]
	}
	if code != pulsarpb.ServerError_ServiceNotReady && code != pulsarpb.ServerError_MetadataError {
		return t
	}
	for _, w := range s.fatal {
		if strings.Contains(t, w) {
			return "not ready, try again"
		}
	}
	return t
}
