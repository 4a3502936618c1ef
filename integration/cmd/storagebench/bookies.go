package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"geminga/pkg/bookie"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

const replicas = 3

// bookies are three of them in this process.
type bookies struct {
	all    []*bookie.Bookie // nil: stopped
	opts   []bookie.Options
	conns  []*grpc.ClientConn
	fs     countingFS
	groups []place // in the order of their numbers
}

// place is a group and the connection to its leader.
type place struct {
	group  uint32
	leader int
}

// startBookies returns when at least n groups have ready leaders.
func startBookies(ctx context.Context, dir string, n int, recycled bool) (b *bookies, err error) {
	b = &bookies{fs: newCountingFS()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	var listeners []net.Listener
	var members []bookie.Member
	for i := range replicas {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return b, err
		}
		listeners = append(listeners, l)
		members = append(members, bookie.Member{ID: "b" + strconv.Itoa(i), Address: l.Addr().String()})
	}
	for i, m := range members {
		data := filepath.Join(dir, m.ID)
		if _, err := bookie.Init(bookie.InitOptions{DataDir: data, BookieID: m.ID, ClusterID: "bench", Metadata: members}); err != nil {
			return b, err
		}
		if recycled {
			if err := writeSpares(filepath.Join(data, "journal")); err != nil {
				return b, err
			}
		}
		b.opts = append(b.opts, bookie.Options{
			DataDir: data, FS: b.fs, Listener: listeners[i], ListenAddress: m.Address, LedgerGroupsPerBookie: (n + replicas - 1) / replicas,
		})
		b.all = append(b.all, nil)
		if err := b.restart(ctx, i); err != nil {
			return b, err
		}
		conn, err := grpc.NewClient("passthrough:///"+m.Address,
			append(bookiepb.ClientOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return b, err
		}
		b.conns = append(b.conns, conn)
	}
	return b, b.await(ctx, n)
}

// writeSpares puts files beside a journal's that were written in full, as those of segments that have been given up.
func writeSpares(dir string) error {
	const spares, size = 4, 128 << 20 // what a journal keeps, of its default length
	if err := (vfs.Disk{}).MkdirAll(dir); err != nil {
		return err
	}
	zeros := vfs.Aligned(4 << 20)
	for i := range spares {
		f, err := vfs.Disk{}.Create(filepath.Join(dir, fmt.Sprintf("%012d.spare", i+1)))
		if err != nil {
			return err
		}
		if err := errors.Join(fill(f.WriteDirect, zeros, size), f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// restart opens a bookie that does not run.
func (b *bookies) restart(ctx context.Context, i int) (err error) {
	b.all[i], err = bookie.Open(ctx, b.opts[i])
	b.opts[i].Listener = nil // it was the bookie's to close
	return err
}

func (b *bookies) stop(i int) error {
	one := b.all[i]
	b.all[i] = nil
	if one == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return one.Close(ctx)
}

// applied is up to where node i has applied the log of the first group.
func (b *bookies) applied(i int) uint64 {
	for _, g := range b.all[i].Status().GetGroups() {
		if g.GetGroup() == b.groups[0].group {
			return g.GetApplied()
		}
	}
	return 0
}

func (b *bookies) await(ctx context.Context, n int) error {
	for {
		if b.find(); len(b.groups) >= n {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d groups have leaders: %w", len(b.groups), n, ctx.Err())
		}
	}
}

// find looks which groups have leaders.
func (b *bookies) find() {
	b.groups = nil
	for i, one := range b.all {
		for _, g := range one.Status().GetGroups() {
			if g.GetReady() {
				b.groups = append(b.groups, place{g.GetGroup(), i})
			}
		}
	}
	slices.SortFunc(b.groups, func(x, y place) int { return int(x.group) - int(y.group) })
}

func (b *bookies) look() written { return b.fs.look() }

func (b *bookies) close() error {
	var errs []error
	for _, c := range b.conns {
		errs = append(errs, c.Close())
	}
	for i := range b.all {
		errs = append(errs, b.stop(i))
	}
	return errors.Join(errs...)
}

// appending is an append stream.
type appending struct {
	stream grpc.BidiStreamingClient[bookiepb.AppendRequest, bookiepb.AppendResponse]
	cancel context.CancelFunc
	ended  chan struct{}
}

func (b *bookies) attach(ctx context.Context, i int, answered func(int, error)) (client, error) {
	at := b.groups[i]
	ctx, cancel := context.WithCancel(ctx)
	md := metadata.Pairs(bookiepb.GroupHeader, strconv.Itoa(int(at.group)), bookiepb.ClusterHeader, "bench")
	s, err := bookiepb.NewBookieClient(b.conns[at.leader]).Append(metadata.NewOutgoingContext(ctx, md))
	if err != nil {
		cancel()
		return nil, err
	}
	a := &appending{stream: s, cancel: cancel, ended: make(chan struct{})}
	go a.receive(answered)
	return a, nil
}

func (a *appending) receive(answered func(int, error)) {
	defer close(a.ended)
	var results bookiepb.AppendResults
	for {
		if err := a.stream.RecvMsg(&results); err != nil {
			answered(0, err)
			return
		}
		for _, r := range results.Results {
			if r.Code != bookiepb.Code_OK {
				answered(0, fmt.Errorf("%s: %s", r.Code, r.Message))
				return
			}
		}
		answered(len(results.Results), nil)
	}
}

func (a *appending) send(command []byte) error {
	return a.stream.Send(&bookiepb.AppendRequest{Commands: command})
}

func (a *appending) close() {
	a.cancel()
	<-a.ended
}
