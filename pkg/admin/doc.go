// Package admin is the HTTP port of a daemon: its health, its figures, and the part of Pulsar's admin and lookup REST
// that exists so far.
//
//	operators, probes ─▶ /healthz /readyz /status /status.html /metrics /debug/pprof
//	pulsar-admin      ─▶ /admin/v2/…   ─┐
//	HTTP lookups      ─▶ /lookup/v2/…  ─┴─▶ Broker (pkg/broker), on its executors; checks of cmd
//
// A broker gives a Broker through Options and has all of it; a bookie gives none and has the first line only. Unknown
// paths, methods and failures answer in Pulsar's shape, {"reason": "…"}, which its clients print.
//
// A request about one topic is served by the topic's broker; any other redirects there (owner.go).
//
// Handlers run on net/http's goroutines and hold no state; everything in Options must be safe for concurrent use. Every
// request has a deadline, and everything that a client sends is bounded.
//
// Non-obvious:
//   - /healthz says only that the process answers. It never depends on other processes: restarting a broker because the
//     bookies are down makes matters worse. /readyz and /admin/v2/brokers/health do depend on them.
//   - A check that ignores its context cannot hang a probe: it is reported as too slow, and is not started again before
//     it has come back.
//   - Topic names may hold an escaped slash (%2F): paths are matched in their escaped form.
package admin
