package protocol

import "errors"

// What can be wrong with bytes from the wire. Compare with errors.Is; the details are wrapped around them.
var (
	ErrFrameTooLarge = errors.New("frame larger than allowed")
	ErrBadFrame      = errors.New("malformed frame")
	ErrBadCommand    = errors.New("malformed command")
	ErrBadPayload    = errors.New("malformed payload")
	ErrChecksum      = errors.New("payload checksum mismatch")
	ErrBadTopicName  = errors.New("invalid topic name")
	ErrBadNamespace  = errors.New("invalid namespace name")
)
