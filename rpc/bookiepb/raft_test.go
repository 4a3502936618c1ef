package bookiepb

import (
	"math/rand"
	"testing"

	"google.golang.org/protobuf/proto"
)

// encoded is a call as it travels.
func encoded(t *testing.T, m *RaftRequest) []byte {
	t.Helper()
	b, cuts, err := appendRaftRequest(nil, nil, m)
	if err != nil {
		t.Fatal(err)
	}
	var whole []byte
	start := 0
	for _, c := range cuts {
		whole = append(append(whole, b[start:c.after]...), c.data...)
		start = c.after
	}
	return append(whole, b[start:]...)
}

// TestRaftRequestIsProtobuf: what is written by hand is what the generated code reads, and the reverse.
func TestRaftRequestIsProtobuf(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	some := func(n int) []byte {
		if n = rng.Intn(n); n == 0 {
			return nil
		}
		b := make([]byte, n)
		rng.Read(b)
		return b
	}
	number := func() uint64 { return rng.Uint64() >> rng.Intn(64) * uint64(rng.Intn(2)) }
	for range 500 {
		a := &AppendEntries{
			Header: &RaftHeader{ProtocolVersion: int32(rng.Intn(4)), Id: some(20), Addr: some(20)}, Term: number(), Leader: some(20),
			PrevLogEntry: number(), PrevLogTerm: number(), LeaderCommitIndex: number(),
		}
		for range rng.Intn(6) {
			a.Entries = append(a.Entries, &RaftLog{
				Index: number(), Term: number(), Type: rng.Uint32() >> rng.Intn(32), Data: some(1 << (1 + rng.Intn(16))),
				Extensions: some(3), AppendedAtNanos: int64(number()),
			})
		}
		want := &RaftRequest{Id: number(), Group: rng.Uint32(), ClusterId: "test", Body: &RaftRequest_AppendEntries{AppendEntries: a}}
		var plain, fast RaftRequest
		if err := proto.Unmarshal(encoded(t, want), &plain); err != nil || !proto.Equal(&plain, want) {
			t.Fatalf("the generated code reads another message, err %v", err)
		}
		generated, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := readRaftRequest(generated, &fast); err != nil || !proto.Equal(&fast, want) {
			t.Fatalf("another message is read, err %v", err)
		}
	}
	for _, want := range []*RaftRequest{
		{Id: 1, Body: &RaftRequest_RequestVote{RequestVote: &RequestVote{Term: 3}}},
		{Id: 2, Body: &RaftRequest_RequestPreVote{RequestPreVote: &RequestPreVote{Term: 4, LastLogIndex: 9}}},
		{Id: 3, Body: &RaftRequest_TimeoutNow{TimeoutNow: &TimeoutNow{Header: &RaftHeader{Id: []byte("a")}}}},
		{Id: 4},
	} {
		var got RaftRequest
		if err := readRaftRequest(encoded(t, want), &got); err != nil || !proto.Equal(&got, want) {
			t.Fatalf("%v, want %v, err %v", &got, want, err)
		}
	}
}
