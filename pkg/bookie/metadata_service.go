package bookie

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

const (
	// listPage is the most items of one List answer.
	listPage = 10_000
	// watchPage is the most bytes of items in one message of a watch, give or take one item.
	watchPage = 1 << 20
)

// metadataService serves the versioned keys. Only the leader answers, and a read only after a quorum has confirmed,
// since the read began, that it leads: so a read sees everything that was committed before it began. What was
// answered as committed is applied here, because the answer to a commit is made from its application.
type metadataService struct {
	bookiepb.UnimplementedMetadataServer
	b *Bookie
}

// leader returns the group when it may answer.
func (s *metadataService) leader(ctx context.Context) (*metaGroup, *bookiepb.Result) {
	g := s.b.meta()
	if g == nil {
		return nil, failure(fmt.Errorf("%w: not a member of the metadata group", ledger.ErrNotLeader), s.b.metaHint())
	}
	if err := g.verifier.verify(ctx); err != nil {
		if !errors.Is(err, ledger.ErrUnknown) {
			err = ledger.ErrNotLeader // nothing was read: another member may answer
		}
		return nil, failure(err, g.hint())
	}
	return g, nil
}

// Get implements bookiepb.MetadataServer.
func (s *metadataService) Get(ctx context.Context, req *bookiepb.GetRequest) (*bookiepb.GetResponse, error) {
	g, refusal := s.leader(ctx)
	if refusal != nil {
		return &bookiepb.GetResponse{Result: refusal}, nil
	}
	it, _ := g.fsm.get(req.GetKey())
	return &bookiepb.GetResponse{Result: okResult(), Item: itemToPB(it, false)}, nil
}

// List implements bookiepb.MetadataServer.
func (s *metadataService) List(ctx context.Context, req *bookiepb.ListRequest) (*bookiepb.ListResponse, error) {
	g, refusal := s.leader(ctx)
	if refusal != nil {
		return &bookiepb.ListResponse{Result: refusal}, nil
	}
	limit := listPage
	if n := int(req.GetLimit()); n > 0 {
		limit = min(limit, n)
	}
	items, more := g.fsm.list(req.GetPrefix(), req.GetAfter(), limit)
	out := &bookiepb.ListResponse{Result: okResult(), Items: make([]*bookiepb.Item, len(items)), More: more}
	for i, it := range items {
		out.Items[i] = itemToPB(it, req.GetKeysOnly())
	}
	return out, nil
}

// Commit implements bookiepb.MetadataServer.
func (s *metadataService) Commit(ctx context.Context, req *bookiepb.CommitRequest) (*bookiepb.CommitResponse, error) {
	g := s.b.meta()
	if g == nil {
		err := fmt.Errorf("%w: not a member of the metadata group", ledger.ErrNotLeader)
		return &bookiepb.CommitResponse{Result: failure(err, s.b.metaHint()), Failed: -1}, nil
	}
	txn, err := metadata.DecodeTxn(req.GetTxn())
	if err != nil {
		return &bookiepb.CommitResponse{Result: failure(err, ""), Failed: -1}, nil
	}
	out, err := g.commit(ctx, &txn)
	if err != nil {
		return &bookiepb.CommitResponse{Result: failure(err, g.hint()), Failed: -1}, nil
	}
	resp := &bookiepb.CommitResponse{Result: okResult(), Versions: out.Versions, Revision: out.Revision, Failed: int32(out.Failed)}
	if out.Err != nil {
		resp.Result = failure(out.Err, "")
	}
	return resp, nil
}

// Watch implements bookiepb.MetadataServer. A watch ends when this member stops leading, when the watcher is too slow,
// or with the client; the client starts again and gets the items anew.
func (s *metadataService) Watch(req *bookiepb.WatchRequest, stream grpc.ServerStreamingServer[bookiepb.WatchResponse]) error {
	ctx := stream.Context()
	g, refusal := s.leader(ctx)
	if refusal != nil {
		return stream.Send(&bookiepb.WatchResponse{Result: refusal})
	}
	s.b.metrics.watching(1)
	defer s.b.metrics.watching(-1)
	state, w := g.fsm.watch(req.GetPrefix())
	defer g.fsm.unwatch(w)
	// Only now is it certain that losing the lead ends the watcher: the loss may have come between the two calls.
	if !g.isReady() {
		return stream.Send(&bookiepb.WatchResponse{Result: failure(ledger.ErrNotLeader, g.hint())})
	}
	if err := sendState(stream, state, req.GetPrefix()); err != nil {
		return err
	}
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		events, revision, ended := w.take()
		if ended {
			return stream.Send(&bookiepb.WatchResponse{Result: s.watchEnd(g)})
		}
		if err := sendEvents(stream, events, revision, true); err != nil {
			return err
		}
	}
}

// watchEnd says why a watch is over.
func (s *metadataService) watchEnd(g *metaGroup) *bookiepb.Result {
	if g.isReady() {
		return failure(fmt.Errorf("%w: the watch fell behind", ledger.ErrOverloaded), "")
	}
	return failure(ledger.ErrNotLeader, g.hint())
}

// sendState sends the items below the prefix, then "synced".
func sendState(stream grpc.ServerStreamingServer[bookiepb.WatchResponse], state *metadata.Machine, prefix string) error {
	after := ""
	for {
		items, more := state.List(prefix, after, listPage)
		if err := sendEvents(stream, items, state.Revision(), false); err != nil {
			return err
		}
		if !more {
			return stream.Send(&bookiepb.WatchResponse{Synced: true, Revision: state.Revision()})
		}
		after = items[len(items)-1].Key
	}
}

// sendEvents sends items in messages of bounded size.
func sendEvents(stream grpc.ServerStreamingServer[bookiepb.WatchResponse], items []metadata.Item, revision uint64, synced bool) error {
	for len(items) > 0 {
		out := &bookiepb.WatchResponse{Revision: revision, Synced: synced}
		for size := 0; len(items) > 0 && size < watchPage; items = items[1:] {
			size += len(items[0].Key) + len(items[0].Value) + 32
			out.Events = append(out.Events, &bookiepb.Event{Item: itemToPB(items[0], false)})
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
	return nil
}

func okResult() *bookiepb.Result { return &bookiepb.Result{Last: int64(ledger.NoEntry)} }

func itemToPB(it metadata.Item, keyOnly bool) *bookiepb.Item {
	out := &bookiepb.Item{Key: it.Key, Version: it.Version}
	if !keyOnly {
		out.Value = it.Value
	}
	return out
}
