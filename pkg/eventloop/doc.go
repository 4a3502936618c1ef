// Package eventloop serves connections on a fixed number of I/O loops.
//
//	socket ──read──▶ root buffer ──Data──▶ handler ──Write, WriteRef──▶ outbound ──one writev a turn──▶ socket
//	                      ▲                    │
//	                      └──── references ────┘        executors ──Post──▶ loop, which then runs the task
//
// Promises:
//
//   - A connection stays on one loop. All calls of the Handler for it, and all tasks posted to the loop, run there, one
//     at a time; so the handler's state of a connection or a loop needs no lock.
//   - Bytes are read into counted, pooled roots and never copied on the way to the handler, but for the remains of
//     unfinished frames. Memory follows the bytes received, not those announced.
//   - Reading can be paused for one connection, at any time; or held for a whole loop, which stops sockets only.
//   - What frames keep in memory is charged to an Account, if there is one: whole roots, each once.
//   - Output is gathered during a turn and written at its end, one system call per connection.
//   - Nothing allocates per message or turn once warm (epoll backend).
//
// There are two kinds of links. On Linux, sockets from Listen are on the loop's epoll. Everything else (TLS, in-memory
// connections, other systems) has a goroutine that reads and one that writes, and these hand what they did to the loop.
// One Group serves both kinds on the same loops, and a handler cannot tell them apart.
//
// Callers: the broker is the Handler; whoever completes work posts to the loop. Post, Group's methods, Root's Retain and
// Release, and Conn's ID, Loop and addresses may be used from any goroutine; the rest belongs to the loop.
//
// Non-obvious:
//
//   - A loop is woken only when it sleeps, once for any number of posts; the interleaving is at Loop.
//   - Closed comes at the end of the turn, never inside Close; the handler is not re-entered (TestCloseInEveryCallback).
//   - A peer that closes its sending half is treated as gone: what the handler wrote until the end of that turn is
//     written as far as the kernel takes it, later answers are dropped (TestPeerClosesHalf).
//   - What a call of Data leaves is moved out of the shared root at the end of the read: a byte per connection would
//     keep whole roots alive (TestAnnouncedFramesCostNothing).
//   - A peer that goes while its connection is paused or held is noticed too, and what it sent before is not read any more
//     (TestPeerGoesWhilePaused): by EPOLLRDHUP, elsewhere once a tick, for in-memory connections not at all.
//   - A connection that is closed after its flush lingers, or the peer's kernel would throw the last answer away
//     (TestLastAnswerArrives).
package eventloop
