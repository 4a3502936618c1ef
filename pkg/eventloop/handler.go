package eventloop

import "time"

// Task is work posted to a Loop. Reusable structs that implement it are posted without allocation.
type Task interface{ Run() }

// TaskFunc is a function as a Task.
type TaskFunc func()

// Run calls the function.
func (f TaskFunc) Run() { f() }

// Owner counts the references to memory that is written by reference. *Root is one.
type Owner interface {
	Retain()
	Release()
}

// Handler is what a Group serves. All methods are called on the loop of the connection, never two at a time for one
// loop; different loops call concurrently. None may block: every connection of the loop waits meanwhile.
type Handler interface {
	// Opened is the first call for a connection.
	Opened(c *Conn)

	// Data hands over all bytes that are not consumed yet; data lies in root. It returns how many bytes it consumed and
	// how many it needs in total, counted from the first one not consumed, before another call makes sense (0: not
	// known, or that the handler has stopped by itself and paused reading). The need is a hint: it is checked against what
	// really arrives before memory is spent on it. data is valid during the call; to keep a subslice longer, retain root and release it when done. What was not consumed may be
	// moved to another root before the next call. An error closes the connection, after what was written before
	// (CloseAfterFlush).
	Data(c *Conn, root *Root, data []byte) (consumed, need int, err error)

	// TurnEnd comes once a turn: after every ready connection was read, before posted tasks run and output is written.
	TurnEnd(l *Loop)

	// Closed is the last call for a connection, exactly one for each Opened. err is why: what was given to Close, io.EOF
	// when the peer closed, or the error of the socket.
	Closed(c *Conn, err error)

	// Tick comes about once a second. l.Conns iterates over the connections.
	Tick(l *Loop, now time.Time)
}

// WritableHandler is an optional part of a Handler.
type WritableHandler interface {
	// Writable is called when the outbound buffer of a connection, having reached the high-water mark, is down to the
	// low-water mark.
	Writable(c *Conn)
}
