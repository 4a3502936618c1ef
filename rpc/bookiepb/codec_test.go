package bookiepb

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

type countingOwner struct{ refs atomic.Int64 }

func (o *countingOwner) Retain()  { o.refs.Add(1) }
func (o *countingOwner) Release() { o.refs.Add(-1) }

// buildBody makes a body of random small and large parts and returns the bytes that it stands for.
func buildBody(b *AppendBody, rng *rand.Rand, owner Owner) []byte {
	var want []byte
	parts := rng.Intn(8)
	b.Begin(parts * 300)
	for range parts {
		if rng.Intn(2) == 0 {
			small := make([]byte, rng.Intn(300))
			rng.Read(small)
			b.SetTail(append(b.Tail(), small...))
			want = append(want, small...)
			continue
		}
		large := make([]byte, rng.Intn(3*RefThreshold))
		rng.Read(large)
		b.Ref(large, owner)
		want = append(want, large...)
	}
	return want
}

// TestAppendBodyIsProtobuf: what AppendBody writes is what the generated message and the receiver read.
func TestAppendBodyIsProtobuf(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	owner := &countingOwner{}
	var body AppendBody
	c := Codec()
	for range 500 {
		want := buildBody(&body, rng, owner)
		if body.Len() != len(want) {
			t.Fatalf("Len = %d, want %d", body.Len(), len(want))
		}
		wire, err := c.Marshal(&body)
		if err != nil {
			t.Fatal(err)
		}
		var plain, fast AppendRequest
		if err := proto.Unmarshal(wire.Materialize(), &plain); err != nil || !bytes.Equal(plain.Commands, want) {
			t.Fatalf("generated message differs, err %v", err)
		}
		if err := c.Unmarshal(wire, &fast); err != nil || !bytes.Equal(fast.Commands, want) {
			t.Fatalf("AppendRequest differs, err %v", err)
		}
		wire.Free()
		if n := owner.refs.Load(); n != 0 {
			t.Fatalf("%d references left", n)
		}
	}
}

func TestAppendBodyMisuse(t *testing.T) {
	var body AppendBody
	if _, err := Codec().Marshal(&body); err == nil {
		t.Fatal("body without Begin was sent")
	}
	owner := &countingOwner{}
	body.Begin(10)
	body.Ref(make([]byte, RefThreshold), owner)
	body.Discard()
	if owner.refs.Load() != 0 || body.Len() != 0 {
		t.Fatal("Discard keeps references")
	}
}

// TestLeaseReleasedWhenForgotten: buffers that gRPC drops without freeing are released by the garbage collector.
func TestLeaseReleasedWhenForgotten(t *testing.T) {
	owner := &countingOwner{}
	func() {
		var body AppendBody
		body.Begin(10)
		body.Ref(make([]byte, RefThreshold), owner)
		if _, err := Codec().Marshal(&body); err != nil {
			t.Fatal(err)
		}
	}()
	if owner.refs.Load() != 1 {
		t.Fatal("reference not held")
	}
	for deadline := time.Now().Add(5 * time.Second); owner.refs.Load() != 0; runtime.Gosched() {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatal("reference never released")
		}
	}
}

func TestReadBodyIsProtobuf(t *testing.T) {
	owner := &countingOwner{}
	for _, size := range []int{0, 1, 100, 5000, 100000} {
		entries := bytes.Repeat([]byte{7}, size)
		body := &ReadBody{First: 9, Count: 3, Entries: entries, Owner: owner, Result: &Result{Code: Code_BEHIND, Last: 4}}
		want := &ReadResponse{First: 9, Count: 3, Entries: entries, Result: body.Result}
		if size == 0 {
			want.Entries = nil
		}
		wire, err := Codec().Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		var got ReadResponse
		if err := Codec().Unmarshal(wire, &got); err != nil || !proto.Equal(&got, want) {
			t.Fatalf("size %d: %v, err %v", size, &got, err)
		}
		wire.Free()
		if owner.refs.Load() != 0 {
			t.Fatalf("size %d: references left", size)
		}
	}
}

// TestPool: buffers come back in the size that they were taken in, and are long enough.
func TestPool(t *testing.T) {
	p := &pool{}
	for _, n := range []int{0, 1, 2047, 2048, 2049, 33 << 10, 1 << 20, 8 << 20, 8<<20 + 1} {
		for range 3 {
			b := p.Get(n)
			if len(*b) != n {
				t.Fatalf("%d bytes, want %d", len(*b), n)
			}
			if n <= 8<<20 && cap(*b) > max(2048, 2*n-1) {
				t.Fatalf("%d bytes for %d", cap(*b), n)
			}
			p.Put(b)
		}
	}
	odd := make([]byte, 5000)
	p.Put(&odd)
	if b := p.Get(4097); cap(*b) != 8192 {
		t.Fatalf("a buffer of %d bytes was kept", cap(*b))
	}
}

func TestAppendResultsAreTheGeneratedOnes(t *testing.T) {
	want := &AppendResponse{Results: []*Result{
		{Code: Code_OK, Ledger: 1 << 60, Last: -1, Epoch: 3},
		{Code: Code_NOT_LEADER, Ledger: 2, Last: 7, Leader: "b:1", Message: "no"},
		{},
	}}
	wire, err := Codec().Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got AppendResults
	for range 2 { // the second time into the used slice
		if err := Codec().Unmarshal(wire, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Results) != len(want.Results) {
			t.Fatalf("%d results", len(got.Results))
		}
		for i, r := range want.Results {
			if got.Results[i] != r.Plain() {
				t.Fatalf("result %d = %+v, want %v", i, got.Results[i], r)
			}
		}
	}
}

// FuzzUnmarshal: broken bytes are refused, never more.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1})
	f.Add([]byte{0x0a, 2, 8, 1, 0x1a, 1, 1, 0x22, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		wire := mem.BufferSlice{mem.SliceBuffer(b)}
		_ = readRaftRequest(b, &RaftRequest{})
		for _, m := range []any{&AppendRequest{}, &ReadResponse{}, &AppendResults{}, &Result{}} {
			_ = Codec().Unmarshal(wire, m)
		}
	})
}

// echoServer answers every append request with the length of its commands.
type echoServer struct{ UnimplementedBookieServer }

func (echoServer) Append(s grpc.BidiStreamingServer[AppendRequest, AppendResponse]) error {
	for {
		in, err := s.Recv()
		if err != nil {
			return nil
		}
		if err := s.Send(&AppendResponse{Results: []*Result{{Last: int64(len(in.Commands))}}}); err != nil {
			return err
		}
	}
}

func echoStream(t testing.TB) grpc.BidiStreamingClient[AppendRequest, AppendResponse] {
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer(ServerOptions()...)
	RegisterBookieServer(s, echoServer{})
	go s.Serve(l)
	options := append(ClientOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///echo", options...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); conn.Close(); s.Stop() })
	stream, err := NewBookieClient(conn).Append(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestOverTheWire sends bodies of all sizes through gRPC and sees every reference come back.
func TestOverTheWire(t *testing.T) {
	stream := echoStream(t)
	rng := rand.New(rand.NewSource(2))
	owner := &countingOwner{}
	var body AppendBody
	var results AppendResults
	for range 200 {
		want := buildBody(&body, rng, owner)
		if err := stream.SendMsg(&body); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&results); err != nil {
			t.Fatal(err)
		}
		if len(results.Results) != 1 || results.Results[0].Last != int64(len(want)) {
			t.Fatalf("%+v, want %d", results.Results, len(want))
		}
	}
	for deadline := time.Now().Add(5 * time.Second); owner.refs.Load() != 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d references left", owner.refs.Load())
		}
	}
}

// BenchmarkAppendBody compares copying payloads into the message with referring to them, from the sender's call to
// the receiver's answer.
func BenchmarkAppendBody(b *testing.B) {
	for _, size := range []int{128, 1024, 4096, 16384, 65536, 1 << 20} {
		count := max(1, 256<<10/size)
		payload := make([]byte, size)
		for _, ref := range []bool{false, true} {
			b.Run(fmt.Sprintf("payload=%d/ref=%v", size, ref), func(b *testing.B) {
				benchmarkBody(b, payload, count, ref)
			})
		}
	}
}

func benchmarkBody(b *testing.B, payload []byte, count int, ref bool) {
	c := Codec()
	owner := &countingOwner{}
	var body AppendBody
	b.SetBytes(int64(count * len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		inline := count * 8
		if !ref {
			inline += count * len(payload)
		}
		body.Begin(inline)
		for range count {
			body.SetTail(append(body.Tail(), "12345678"...))
			if ref {
				body.Ref(payload, owner)
			} else {
				body.SetTail(append(body.Tail(), payload...))
			}
		}
		wire, err := c.Marshal(&body)
		if err != nil {
			b.Fatal(err)
		}
		wire.Free()
	}
}
