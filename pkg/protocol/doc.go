// Package protocol turns bytes into the frames and commands of the Pulsar binary protocol, and back. It is a codec and
// nothing else: no goroutine, no lock, no clock, no socket. The broker calls it from its I/O loops; every function may
// run concurrently with every other as long as the arguments are not shared.
//
//	socket ──▶ [ FrameSize → Frame.Parse → Send.Decode / Ack.Decode / Flow.Decode / Unmarshal ] ──▶ broker
//	socket ◀── [ AppendSendReceipt / AppendMessageHeader / … / AppendCommand                  ] ◀── broker
//
// # Frames
//
// All integers in frames are big-endian. A frame without payload:
//
//	┌───────────┬─────────────┬───────────────────────────┐
//	│ total u32 │ cmdSize u32 │ BaseCommand (protobuf)    │    total = 4 + cmdSize
//	└───────────┴─────────────┴───────────────────────────┘
//
// A frame with payload (SEND, MESSAGE), total counts everything after itself:
//
//	┌───────────┬─────────────┬─────────────┬─────────────────┐
//	│ total u32 │ cmdSize u32 │ BaseCommand │ payload section │
//	└───────────┴─────────────┴─────────────┴─────────────────┘
//
// The payload section is what the broker stores as an entry and later sends on, byte for byte:
//
//	┌──────────────────────────────────────────┬───────────────────────┬──────────────┬──────────┬──────┐
//	│ 0x0e02 │ size u32 │ BrokerEntryMetadata  │ 0x0e01 │ crc32c u32   │ metaSize u32 │ metadata │ body │
//	└──────────────────────────────────────────┴───────────────────────┴──────────────┴──────────┴──────┘
//	  optional, brokers only                     optional, all clients   └── the checksum covers this ──┘
//	                                             of this decade
//
// The body of a batch, after decompression (the broker never looks inside):
//
//	┌──────────┬───────────────────────┬─────────┬──────────┬─────
//	│ size u32 │ SingleMessageMetadata │ message │ size u32 │ …
//	└──────────┴───────────────────────┴─────────┴──────────┴─────
//
// # By hand and by machine
//
// SEND, ACK, FLOW, PING and PONG arrive per message or nearly so; they are decoded by hand into structs of the caller,
// without allocation. The same holds for what goes out per message: receipts, message headers, ack responses. All other
// commands go through the generated code of rpc/pulsarpb. The hand decoder accepts what the generated one accepts, with
// three exceptions that no client sends: a sub-message that occurs twice, which protobuf would merge, ids nested in ids
// more than a few levels deep, and an ack type that does not exist.
//
// # Promises
//
// No size from the wire is used before it is compared with what is there. Whatever is decoded aliases the input, except
// by Unmarshal, which copies. Errors wrap the sentinels in errors.go.
//
// # Non-obvious
//
//   - Ids are unsigned on the wire: an empty topic's last entry, -1, travels as 2^64-1 (TestMessageIDRoundTrip).
//   - Generated Go code takes any number for an enum, though proto2 says that an unknown one counts as absent. Whoever
//     switches over an enum from the wire needs a default (FuzzCommand).
//   - A frame that "announces" hundreds of megabytes is usually TLS or HTTP on the wrong port: Sniff (TestSniff).
//   - num_messages_in_batch absent means a single message whose body has no SingleMessageMetadata; 1 means a batch of
//     one. Metadata.Batch tells (TestMetadataPeek).
package protocol
