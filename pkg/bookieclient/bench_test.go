package bookieclient

import (
	"context"
	"sync/atomic"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
)

func bufconnListen() *bufconn.Listener { return bufconn.Listen(1 << 20) }

func newServer(srv bookiepb.BookieServer) *grpc.Server {
	s := grpc.NewServer(bookiepb.ServerOptions()...)
	bookiepb.RegisterBookieServer(s, srv)
	return s
}

// countingBookie says OK to everything.
type countingBookie struct {
	bookiepb.UnimplementedBookieServer
}

func (countingBookie) Status(context.Context, *bookiepb.StatusRequest) (*bookiepb.StatusResponse, error) {
	return &bookiepb.StatusResponse{BookieId: "b0", Address: "bookie0:3181"}, nil
}

func (countingBookie) Append(s grpc.BidiStreamingServer[bookiepb.AppendRequest, bookiepb.AppendResponse]) error {
	resp := &bookiepb.AppendResponse{}
	var results []bookiepb.Result
	for {
		in, err := s.Recv()
		if err != nil {
			return nil
		}
		n := 0
		resp.Results = resp.Results[:0]
		for rest := in.Commands; len(rest) > 0; n++ {
			c, tail, err := ledger.NextCommand(rest)
			if err != nil {
				return err
			}
			if n == len(results) {
				results = append(results, bookiepb.Result{})
			}
			results[n].Ledger = uint64(c.Ledger)
			rest = tail
		}
		for i := range n {
			resp.Results = append(resp.Results, &results[i])
		}
		if err := s.Send(resp); err != nil {
			return err
		}
	}
}

// counter is a Waiter of ledgers whose entries it counts.
type counter struct {
	want int64
	told atomic.Int64
	last [100]ledger.EntryID
	done chan struct{}
}

func (c *counter) Appended(ref ledger.Ref, last ledger.EntryID, err error) {
	n := int64(last + 1 - c.last[ref.ID])
	c.last[ref.ID] = last + 1
	if c.told.Add(n) == c.want {
		close(c.done)
	}
}
