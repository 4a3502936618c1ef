// Package bookiepb is the protocol between brokers and bookies: the messages and services generated from
// rpc/bookie.proto, and the codec that both sides use for them.
//
// The codec (Codec) speaks plain protobuf. It differs from gRPC's own in what it copies:
//
//	generated message      ──► one pooled buffer                          ──► wire
//	AppendBody             ──► one pooled buffer + references to payloads ──► wire   (large payloads are not copied)
//	ReadBody               ──► a small head + a reference to the entries  ──► wire
//	wire ──► AppendRequest, ReadResponse: one fresh buffer that the bytes field aliases (one copy, not two)
//	wire ──► AppendResults: decoded into a slice that is used again
//
// The calls of Raft between bookies do not travel by gRPC but on lanes (Lane), which refer to large payloads too:
//
//	RaftRequest ──► one buffer for many messages + references to payloads ──► one system call
//	wire        ──► RaftRequest: one fresh buffer for a message, which all payloads alias (no copy)
//
// Codec values are stateless and safe for concurrent use. AppendBody and AppendResults belong to one goroutine, a Lane to
// one that writes and one that reads.
//
// Non-obvious:
//   - gRPC forgets some buffers when a connection breaks, without freeing them. References to payloads are therefore
//     released either by gRPC or, at the latest, by the garbage collector (see lease; TestLeaseReleasedWhenForgotten).
//   - What is given to gRPC by reference must not change until it is released, which is later than the return of
//     SendMsg.
package bookiepb
