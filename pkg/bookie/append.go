package bookie

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

const (
	// maxPiecesPerStream bounds what a stream may have outstanding; beyond it the stream is not read.
	maxPiecesPerStream = 1024
	// maxResultsPerResponse bounds one answer.
	maxResultsPerResponse = 8192
)

// appendStream carries the commands of one broker to one group and their results back. Two goroutines share it: the
// receiver checks and submits, the sender, which is the handler itself, sends results in the order of the commands.
//
//	Recv ─▶ check ─▶ pieces ≤ MaxProposalBytes ─▶ submit ─▶ (group) ─▶ done ─┐
//	                    └──────────▶ fifo ◀── finished ──────────────────────┘
//	Send ◀── everything finished at the head of the fifo, in one response
type appendStream struct {
	group  *group
	stream grpc.BidiStreamingServer[bookiepb.AppendRequest, bookiepb.AppendResponse]
	room   chan struct{} // one for each piece in fifo

	mu    sync.Mutex
	fifo  []*piece
	ended bool // nothing is added any more
	wake  chan struct{}
}

// piece is a submission of a stream and its outcome.
type piece struct {
	sub      submission
	finished bool
	results  []ledger.Result
	err      error
}

// Append implements bookiepb.BookieServer.
func (s *bookieService) Append(stream grpc.BidiStreamingServer[bookiepb.AppendRequest, bookiepb.AppendResponse]) error {
	id, err := groupOf(stream.Context())
	if err != nil {
		return err
	}
	g := s.b.groups.get(id)
	if g == nil {
		return stream.Send(&bookiepb.AppendResponse{Results: []*bookiepb.Result{noGroup(id)}})
	}
	a := &appendStream{group: g, stream: stream, room: make(chan struct{}, maxPiecesPerStream), wake: make(chan struct{}, 1)}
	s.b.metrics.streams(1)
	defer s.b.metrics.streams(-1)
	// The receiver ends when this handler returns, because gRPC then ends the stream.
	if !s.b.handlers.start(a.receive) {
		return status.Error(codes.Unavailable, errClosed.Error())
	}
	return a.send()
}

func groupOf(ctx context.Context) (ledger.GroupID, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	v := md.Get(bookiepb.GroupHeader)
	if len(v) != 1 {
		return 0, status.Errorf(codes.InvalidArgument, "request metadata %q is missing", bookiepb.GroupHeader)
	}
	n, err := strconv.ParseUint(v[0], 10, 32)
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "request metadata %q: %q is no group", bookiepb.GroupHeader, v[0])
	}
	return ledger.GroupID(n), nil
}

func noGroup(id ledger.GroupID) *bookiepb.Result {
	return failure(fmt.Errorf("%w: group %d", ledger.ErrNoGroup, id), "")
}

// receive reads requests until the client is done, the stream breaks, or a request makes no sense.
func (a *appendStream) receive() {
	defer a.end()
	for {
		req, err := a.stream.Recv()
		if err != nil {
			return // io.EOF: the client is done; else the stream is broken and Send says so
		}
		pieces, err := split(req.GetCommands(), a.group.opts)
		if err != nil {
			a.refused(&piece{err: err})
			return
		}
		for _, p := range pieces {
			if !a.add(p) {
				return
			}
		}
	}
}

// split checks the commands of a request, checksums included, and cuts them into pieces that are proposed whole.
func split(b []byte, o *Options) ([]*piece, error) {
	var pieces []*piece
	start, count := b, 0
	size := 0 // of the piece under way
	flush := func() {
		if count > 0 {
			pieces = append(pieces, &piece{sub: submission{data: start[:size:size], count: count}})
			start, count, size = start[size:], 0, 0
		}
	}
	for rest := b; len(rest) > 0; {
		c, tail, err := ledger.NextCommand(rest)
		if err != nil {
			return nil, err
		}
		n := len(rest) - len(tail)
		if n > o.MaxCommandBytes {
			return nil, fmt.Errorf("%w: %s: %d bytes, at most %d", ledger.ErrBadCommand, &c, n, o.MaxCommandBytes)
		}
		if err := c.CheckBody(); err != nil {
			return nil, err
		}
		if size+n > o.MaxProposalBytes {
			flush()
		}
		count++
		size += n
		rest = tail
	}
	flush()
	return pieces, nil
}

// add submits a piece, after the ones before it. It returns false when the stream cannot go on.
func (a *appendStream) add(p *piece) bool {
	ctx := a.stream.Context()
	select {
	case a.room <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	a.push(p)
	p.sub.done = func(results []ledger.Result, err error) { a.finish(p, results, err) }
	if err := a.group.submit(ctx, &p.sub); err != nil {
		a.finish(p, nil, err)
		return !terminal(codeOf(err))
	}
	return true
}

// refused queues a piece that failed before it was submitted.
func (a *appendStream) refused(p *piece) {
	select {
	case a.room <- struct{}{}:
	case <-a.stream.Context().Done():
		return
	}
	a.push(p)
	a.finish(p, nil, p.err)
}

func (a *appendStream) push(p *piece) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fifo = append(a.fifo, p)
}

func (a *appendStream) finish(p *piece, results []ledger.Result, err error) {
	a.mu.Lock()
	p.finished, p.results, p.err = true, results, err
	head := a.fifo[0].finished
	a.mu.Unlock()
	if head {
		a.signal()
	}
}

func (a *appendStream) end() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.signal()
}

func (a *appendStream) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// send sends results until the stream ends.
func (a *appendStream) send() error {
	for {
		select {
		case <-a.wake:
		case <-a.stream.Context().Done():
			return status.FromContextError(a.stream.Context().Err()).Err()
		case <-a.group.stopped:
			return a.stream.Send(&bookiepb.AppendResponse{Results: []*bookiepb.Result{noGroup(a.group.id)}})
		}
		for {
			resp, last, done := a.gather()
			if len(resp.Results) > 0 {
				if err := a.stream.Send(resp); err != nil {
					return err
				}
			}
			if last {
				return nil
			}
			if done {
				break
			}
		}
	}
}

// gather takes what is finished at the head of the fifo. last: the stream ends with it. done: nothing is left.
func (a *appendStream) gather() (resp *bookiepb.AppendResponse, last, done bool) {
	resp = &bookiepb.AppendResponse{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.fifo) > 0 && a.fifo[0].finished {
		if len(resp.Results) >= maxResultsPerResponse {
			return resp, false, false
		}
		p := a.fifo[0]
		a.fifo[0] = nil
		a.fifo = a.fifo[1:]
		<-a.room
		var ends bool
		if resp.Results, ends = p.appendTo(resp.Results, a.group); ends {
			return resp, true, true
		}
	}
	return resp, a.ended && len(a.fifo) == 0, true
}

// appendTo adds the results of a piece. A refusal that ends the stream is one result, whatever number of commands the
// piece has: none of them and none after them is answered.
func (p *piece) appendTo(out []*bookiepb.Result, g *group) ([]*bookiepb.Result, bool) {
	if p.err == nil {
		values := make([]bookiepb.Result, len(p.results))
		for i := range p.results {
			fill(&values[i], &p.results[i])
			out = append(out, &values[i])
		}
		return out, false
	}
	code := codeOf(p.err)
	if terminal(code) {
		return append(out, failure(p.err, g.hint())), true
	}
	for rest := p.sub.data; len(rest) > 0; {
		c, tail, err := ledger.NextCommand(rest)
		if err != nil {
			break // cannot be: split has seen it
		}
		out = append(out, &bookiepb.Result{Code: code, Ledger: uint64(c.Ledger), Last: int64(ledger.NoEntry), Message: p.err.Error()})
		rest = tail
	}
	return out, false
}

func fill(r *bookiepb.Result, from *ledger.Result) {
	r.Code, r.Ledger, r.Last, r.Epoch = codeOf(from.Err), uint64(from.Ledger), int64(from.Last), uint64(from.Epoch)
	if from.Err != nil {
		r.Message = from.Err.Error()
	}
}

// Execute implements bookiepb.BookieServer.
func (s *bookieService) Execute(ctx context.Context, req *bookiepb.ExecuteRequest) (*bookiepb.ExecuteResponse, error) {
	return &bookiepb.ExecuteResponse{Result: s.execute(ctx, req)}, nil
}

func (s *bookieService) execute(ctx context.Context, req *bookiepb.ExecuteRequest) *bookiepb.Result {
	id := ledger.GroupID(req.GetGroup())
	g := s.b.groups.get(id)
	if g == nil {
		return noGroup(id)
	}
	pieces, err := split(req.GetCommand(), g.opts)
	if err == nil && (len(pieces) != 1 || pieces[0].sub.count != 1) {
		err = fmt.Errorf("%w: not one command", ledger.ErrBadCommand)
	}
	if err != nil {
		return failure(err, "")
	}
	type answer struct {
		results []ledger.Result
		err     error
	}
	got := make(chan answer, 1)
	sub := &pieces[0].sub
	sub.done = func(results []ledger.Result, err error) { got <- answer{results, err} }
	if err := g.submit(ctx, sub); err != nil {
		return failure(err, g.hint())
	}
	select {
	case a := <-got:
		if a.err != nil {
			return failure(a.err, g.hint())
		}
		r := &bookiepb.Result{}
		fill(r, &a.results[0])
		return r
	case <-ctx.Done():
		return failure(ledger.ErrUnknown, "")
	}
}
