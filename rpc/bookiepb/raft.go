package bookiepb

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Calls that carry log entries are most of what bookies send to one another, so they are encoded and decoded by hand.
// The bytes are those of the generated code. What it saves is copies: large payloads are referred to when they are
// sent, and all payloads alias the one buffer that a received message was read into.

// appendRaftRequest encodes m behind b, and notes in cuts where payloads belong that are not in b:
//
//	b     │ call, head │ entry 1, small │ entry 2 without data │          │ entry 3 without … │
//	cuts                                                       │ its data │                   │ …
func appendRaftRequest(b []byte, cuts []bodyRef, m *RaftRequest) ([]byte, []bodyRef, error) {
	a := m.GetAppendEntries()
	if len(a.GetEntries()) == 0 {
		b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
		return b, cuts, err
	}
	head, err := proto.Marshal(&AppendEntries{
		Header: a.Header, Term: a.Term, Leader: a.Leader, PrevLogEntry: a.PrevLogEntry, PrevLogTerm: a.PrevLogTerm,
		LeaderCommitIndex: a.LeaderCommitIndex,
	})
	if err != nil {
		return b, cuts, err
	}
	body := len(head)
	for _, e := range a.Entries {
		body += protowire.SizeTag(6) + protowire.SizeBytes(e.wireSize())
	}
	b = appendVarintField(b, 1, m.Id)
	b = appendVarintField(b, 2, uint64(m.Group))
	b = appendBytesField(b, 3, []byte(m.ClusterId))
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(body))
	b = append(b, head...)
	for _, e := range a.Entries {
		b = protowire.AppendTag(b, 6, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(e.wireSize()))
		if b = e.appendTo(b); len(e.Data) >= RefThreshold {
			cuts = append(cuts, bodyRef{after: len(b), data: e.Data})
		}
	}
	return b, cuts, nil
}

// wireSize is the length of what appendTo appends, and of the data that it leaves away.
func (x *RaftLog) wireSize() int {
	n := varintFieldSize(1, x.Index) + varintFieldSize(2, x.Term) + varintFieldSize(3, uint64(x.Type)) +
		varintFieldSize(6, uint64(x.AppendedAtNanos))
	for i, b := range [][]byte{x.Data, x.Extensions} {
		if len(b) > 0 {
			n += protowire.SizeTag(protowire.Number(4+i)) + protowire.SizeBytes(len(b))
		}
	}
	return n
}

// appendTo encodes x, the data last. Data of RefThreshold and more is left away: it belongs behind what is returned.
func (x *RaftLog) appendTo(b []byte) []byte {
	b = appendVarintField(b, 1, x.Index)
	b = appendVarintField(b, 2, x.Term)
	b = appendVarintField(b, 3, uint64(x.Type))
	b = appendVarintField(b, 6, uint64(x.AppendedAtNanos))
	b = appendBytesField(b, 5, x.Extensions)
	if len(x.Data) < RefThreshold {
		return appendBytesField(b, 4, x.Data)
	}
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(len(x.Data)))
}

// Fields that are zero or empty are left away, as proto3 does.

func appendVarintField(b []byte, n protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func varintFieldSize(n protowire.Number, v uint64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeTag(n) + protowire.SizeVarint(v)
}

func appendBytesField(b []byte, n protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// readRaftRequest lets everything alias b, which then belongs to the receiver.
func readRaftRequest(b []byte, m *RaftRequest) error {
	m.Reset()
	return eachField(b, func(f field) error {
		switch f.number {
		case 1:
			m.Id = f.varint
		case 2:
			m.Group = uint32(f.varint)
		case 3:
			m.ClusterId = string(f.bytes)
		case 4:
			a := &AppendEntries{}
			m.Body = &RaftRequest_AppendEntries{AppendEntries: a}
			return a.unmarshal(f.bytes)
		case 5:
			v := &RequestVote{}
			m.Body = &RaftRequest_RequestVote{RequestVote: v}
			return proto.Unmarshal(f.bytes, v)
		case 6:
			v := &RequestPreVote{}
			m.Body = &RaftRequest_RequestPreVote{RequestPreVote: v}
			return proto.Unmarshal(f.bytes, v)
		case 7:
			v := &TimeoutNow{}
			m.Body = &RaftRequest_TimeoutNow{TimeoutNow: v}
			return proto.Unmarshal(f.bytes, v)
		}
		return nil
	})
}

func (x *AppendEntries) unmarshal(b []byte) error {
	entries := 0
	err := eachField(b, func(f field) error {
		if f.number == 6 {
			entries++
		}
		return nil
	})
	if err != nil {
		return err
	}
	logs := make([]RaftLog, entries)
	x.Entries = make([]*RaftLog, 0, entries)
	return eachField(b, func(f field) error {
		switch f.number {
		case 1:
			x.Header = &RaftHeader{}
			return x.Header.unmarshal(f.bytes)
		case 2:
			x.Term = f.varint
		case 3:
			x.Leader = f.bytes
		case 4:
			x.PrevLogEntry = f.varint
		case 5:
			x.PrevLogTerm = f.varint
		case 6:
			l := &logs[len(x.Entries)]
			x.Entries = append(x.Entries, l)
			return l.unmarshal(f.bytes)
		case 7:
			x.LeaderCommitIndex = f.varint
		}
		return nil
	})
}

func (x *RaftHeader) unmarshal(b []byte) error {
	return eachField(b, func(f field) error {
		switch f.number {
		case 1:
			x.ProtocolVersion = int32(f.varint)
		case 2:
			x.Id = f.bytes
		case 3:
			x.Addr = f.bytes
		}
		return nil
	})
}

func (x *RaftLog) unmarshal(b []byte) error {
	return eachField(b, func(f field) error {
		switch f.number {
		case 1:
			x.Index = f.varint
		case 2:
			x.Term = f.varint
		case 3:
			x.Type = uint32(f.varint)
		case 4:
			x.Data = f.bytes
		case 5:
			x.Extensions = f.bytes
		case 6:
			x.AppendedAtNanos = int64(f.varint)
		}
		return nil
	})
}
