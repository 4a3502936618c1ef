package admin

import (
	"context"
	"net/http"
	"time"
)

// probe runs a check: one at a time, and never longer than its caller waits.
type probe struct {
	check Check
	free  chan struct{} // holds a token while the check does not run
}

func newProbe(c Check) *probe {
	p := &probe{check: c, free: make(chan struct{}, 1)}
	p.free <- struct{}{}
	return p
}

// start runs the check on a goroutine of its own, once it is free. The answer comes once; ctx bounds the wait for it.
func (p *probe) start(ctx context.Context) <-chan error {
	answer := make(chan error, 1)
	go func() { // ends with the check; the check is given ctx
		select {
		case <-p.free:
			answer <- p.check.Func(ctx)
			p.free <- struct{}{}
		case <-ctx.Done():
			answer <- errBusy
		}
	}()
	return answer
}

// wait waits for an answer of start.
func wait(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-answer:
		return err
	default:
		return errTooSlow
	}
}

// Reason is why a daemon is not ready.
type Reason struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons"`
}

// readiness runs all checks at the same time.
func (h *handler) readiness(ctx context.Context) Readiness {
	ctx, cancel := context.WithTimeout(ctx, h.opts.CheckTimeout)
	defer cancel()
	answers := make([]<-chan error, len(h.ready))
	for i, p := range h.ready {
		answers[i] = p.start(ctx)
	}
	res := Readiness{Ready: true, Reasons: []Reason{}}
	for i, answer := range answers {
		if err := wait(ctx, answer); err != nil {
			res.Ready = false
			res.Reasons = append(res.Reasons, Reason{h.ready[i].check.Name, err.Error()})
		}
	}
	return res
}

func (h *handler) serveReady(w http.ResponseWriter, r *http.Request) {
	res := h.readiness(r.Context())
	code := http.StatusOK
	if !res.Ready {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, res)
}

// serveStatusPage is readiness for load balancers, in one word.
func (h *handler) serveStatusPage(w http.ResponseWriter, r *http.Request) {
	res := h.readiness(r.Context())
	if !res.Ready {
		writeReason(w, http.StatusServiceUnavailable, res.Reasons[0].Check+": "+res.Reasons[0].Reason)
		return
	}
	writeText(w, http.StatusOK, "ok")
}

// serveHealth answers after the check's round trip. What it cost is in the log when it was slow.
func (h *handler) serveHealth(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.CheckTimeout)
	defer cancel()
	begin := time.Now()
	if err := wait(ctx, h.alive.start(ctx)); err != nil {
		h.opts.Logger.Warn("health check failed", "after", time.Since(begin), "error", err)
		writeReason(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	writeText(w, http.StatusOK, "ok")
}
