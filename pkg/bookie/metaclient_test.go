package bookie

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"geminga/pkg/metadata"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// scriptedMetadata answers commits with one code after the other, then with OK.
type scriptedMetadata struct {
	bookiepb.UnimplementedMetadataServer
	codes []bookiepb.Code
	asked atomic.Int32
}

func (s *scriptedMetadata) Commit(context.Context, *bookiepb.CommitRequest) (*bookiepb.CommitResponse, error) {
	n := int(s.asked.Add(1)) - 1
	if n < len(s.codes) {
		return &bookiepb.CommitResponse{Result: &bookiepb.Result{Code: s.codes[n]}}, nil
	}
	return &bookiepb.CommitResponse{Result: okResult()}, nil
}

// A bookie that registers while the metadata group is busy, or changes its leader, waits; only an answer that stays is
// taken for one. It would not start otherwise.
func TestMetaClientAsksAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		codes []bookiepb.Code
		asked int32
		want  error
	}{
		{"busy", []bookiepb.Code{bookiepb.Code_OVERLOADED, bookiepb.Code_OVERLOADED}, 3, nil},
		{"no leader, unknown outcome", []bookiepb.Code{bookiepb.Code_NOT_LEADER, bookiepb.Code_UNKNOWN}, 3, nil},
		{"refused", []bookiepb.Code{bookiepb.Code_BAD_VERSION}, 1, metadata.ErrBadVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := listen(t, "127.0.0.1:0")
			service := &scriptedMetadata{codes: c.codes}
			server := grpc.NewServer(bookiepb.ServerOptions()...)
			bookiepb.RegisterMetadataServer(server, service)
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			defer func() { server.Stop(); <-served }()

			conns := newConns(dialTCP)
			defer conns.close()
			client := &metaClient{
				members: []string{"a"}, conns: conns,
				book: openAddressBook(vfs.NewMem(), "/data", []Member{{"a", l.Addr().String()}}, testLogger(t)),
			}
			err := client.commit(t.Context(), metadata.Txn{}.Then(metadata.Put("/k", nil)))
			if !errors.Is(err, c.want) || service.asked.Load() != c.asked {
				t.Errorf("%v after %d calls, want %v after %d", err, service.asked.Load(), c.want, c.asked)
			}
		})
	}
}
