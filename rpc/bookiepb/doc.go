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
// Codec values are stateless and safe for concurrent use. AppendBody and AppendResults belong to one goroutine.
//
// Non-obvious:
//   - gRPC forgets some buffers when a connection breaks, without freeing them. References to payloads are therefore
//     released either by gRPC or, at the latest, by the garbage collector (see lease; TestLeaseReleasedWhenForgotten).
//   - What is given to gRPC by reference must not change until it is released, which is later than the return of
//     SendMsg.
package bookiepb
