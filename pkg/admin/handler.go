package admin

import (
	"context"
	"net/http"
	"net/http/pprof"

	"geminga/pkg/protocol"
)

const maxBody = 64 << 10

// handler serves one daemon.
type handler struct {
	opts  Options
	mux   *http.ServeMux
	ready []*probe
	alive *probe // Options.Health
	codes []struct {
		err  error
		code int
	}
}

// New makes the handler, for servers of the caller's own; Open serves it.
func New(o Options) (http.Handler, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	h := &handler{opts: o, mux: http.NewServeMux(), codes: codes()}
	for _, c := range o.Ready {
		h.ready = append(h.ready, newProbe(c))
	}
	h.routeOperations()
	if o.Broker != nil {
		h.routeBroker()
	}
	return h, nil
}

// routeOperations are the paths that every daemon has.
func (h *handler) routeOperations() {
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	h.mux.HandleFunc("GET /readyz", h.serveReady)
	h.mux.HandleFunc("GET /status.html", h.serveStatusPage)
	if h.opts.Metrics != nil {
		h.mux.Handle("GET /metrics", h.opts.Metrics)
		h.mux.Handle("GET /metrics/", h.opts.Metrics) // where Pulsar's redirect leads
	}
	if h.opts.Status != nil {
		h.mux.HandleFunc("GET /status", h.serveStatus)
	}
	if h.opts.Pprof {
		h.mux.HandleFunc("/debug/pprof/", pprof.Index)
		h.mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		h.mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		h.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		h.mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
}

// routeBroker are Pulsar's paths.
func (h *handler) routeBroker() {
	if h.opts.Health != nil {
		h.alive = newProbe(Check{Name: "health", Func: h.opts.Health})
		h.mux.HandleFunc("GET /admin/v2/brokers/health", h.serveHealth)
	}
	h.mux.HandleFunc("GET /admin/v2/brokers/ready", h.serveStatusPage)
	h.mux.HandleFunc("GET /admin/v2/clusters", h.serveClusters)
	h.mux.HandleFunc("GET /admin/v2/namespaces/{tenant}/{namespace}/topics", h.serveTopics)
	h.mux.HandleFunc("GET /admin/v2/persistent/{tenant}/{namespace}", h.serveTopics)
	h.routeTopics(protocol.Persistent)
	h.routeTopics(protocol.NonPersistent)
	h.routeNamespaces()
	h.routeConfiguration()
	h.routePublishRates()
}

// ServeHTTP bounds the request, and answers what has no route in JSON.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	route, pattern := h.mux.Handler(r)
	if pattern != "" {
		h.mux.ServeHTTP(w, r) // not route: the mux sets the path's values
		return
	}
	// The mux knows whether the path or only the method is wrong.
	verdict := &capture{header: http.Header{}}
	route.ServeHTTP(verdict, r)
	if verdict.code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", verdict.header.Get("Allow"))
		writeReason(w, verdict.code, "method "+r.Method+" is not supported here")
		return
	}
	writeReason(w, http.StatusNotFound, errNoPath.Error()+": "+r.URL.Path)
}

// capture takes an answer's head and drops the rest.
type capture struct {
	header http.Header
	code   int
}

func (c *capture) Header() http.Header         { return c.header }
func (c *capture) Write(b []byte) (int, error) { return len(b), nil }
func (c *capture) WriteHeader(code int)        { c.code = code }

func (h *handler) serveStatus(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.RequestTimeout)
	defer cancel()
	status, err := h.opts.Status(ctx)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, status)
}
