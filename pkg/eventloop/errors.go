package eventloop

import "errors"

var (
	// ErrClosed is given to Closed for connections that Group.Close closes, and returned by a Group that is closed.
	ErrClosed = errors.New("event loops closed")
	// ErrTooManyConnections is returned by Serve at the connection limit.
	ErrTooManyConnections = errors.New("too many connections")
	// ErrNoBackend says that a backend does not exist on this system.
	ErrNoBackend = errors.New("backend not supported on this system")
)
