package cluster

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// event is a copy of what memberlist said.
type event struct {
	node memberlist.Node
	gone bool
}

// eventSink receives memberlist's callbacks, which come under its lock. It only sends; the reader never calls
// memberlist, so a full channel empties.
type eventSink struct {
	events chan<- event
	done   <-chan struct{}
}

func (s eventSink) send(ev event) {
	select {
	case s.events <- ev:
	case <-s.done:
	}
}

func (s eventSink) NotifyJoin(n *memberlist.Node)   { s.send(event{node: *n}) }
func (s eventSink) NotifyUpdate(n *memberlist.Node) { s.send(event{node: *n}) }
func (s eventSink) NotifyLeave(n *memberlist.Node)  { s.send(event{node: *n, gone: true}) }

// doorman keeps what is no member of ours out of memberlist, which would probe it and tell everybody of it. It is called
// under memberlist's lock.
type doorman struct{}

func (doorman) NotifyAlive(n *memberlist.Node) error {
	if _, ok := parseNode(n); !ok {
		return errStranger
	}
	return nil
}

var errStranger = errors.New("not a member of this kind")

// delegate gives memberlist our description. We gossip nothing else: tables belong into the metadata.
type delegate struct{ description []byte }

func (d delegate) NodeMeta(limit int) []byte {
	if len(d.description) > limit {
		return nil // cannot happen: checked against the same limit at Open
	}
	return d.description
}
func (delegate) NotifyMsg([]byte)                {}
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (delegate) LocalState(bool) []byte          { return nil }
func (delegate) MergeRemoteState([]byte, bool)   {}

// lostFor is how long the address of a member that is gone is tried again beside the configured ones. memberlist does
// not tell us whether it died or left; a try that nobody answers costs little.
const lostFor = time.Hour

// follow owns the set of live processes and publishes it after every change.
func (c *Cluster) follow() {
	alive := map[string]Member{} // by gossip name
	for {
		select {
		case ev := <-c.events:
			c.take(alive, &ev)
		case <-c.ctx.Done():
			return
		}
		c.publish(slices.Collect(maps.Values(alive)))
	}
}

func (c *Cluster) take(alive map[string]Member, ev *event) {
	m, ok := parseNode(&ev.node)
	switch {
	case !ok: // cannot be: doorman
	case ev.gone:
		delete(alive, ev.node.Name)
		c.log.Info("member gone", "member", m.Name, "incarnation", m.Incarnation)
		c.remember(m.Address, true)
	default:
		level := slog.LevelInfo
		if _, known := alive[ev.node.Name]; known {
			level = slog.LevelDebug // memberlist repeats itself when anything about a member changes
		}
		alive[ev.node.Name] = m
		c.log.Log(context.Background(), level, "member alive", "member", m.Name, "incarnation", m.Incarnation, "role", m.Role)
		c.remember(m.Address, false)
	}
}

// remember keeps the addresses of members that are gone for the join loop.
func (c *Cluster) remember(address string, gone bool) {
	next := maps.Clone(*c.lost.Load())
	delete(next, address)
	if gone {
		next[address] = time.Now()
	}
	maps.DeleteFunc(next, func(_ string, at time.Time) bool { return time.Since(at) > lostFor })
	c.lost.Store(&next)
}

func (c *Cluster) publish(alive []Member) {
	next := newest(alive)
	c.snapshot.Store(&next)
	c.subscribers.notify()
}

// newMemberlistLogger brings memberlist's lines to slog. Its level is a word in brackets.
func newMemberlistLogger(to *slog.Logger) *log.Logger { return log.New(&lineWriter{to: to}, "", 0) }

type lineWriter struct {
	to         *slog.Logger
	complaints limiter
}

func (w *lineWriter) Write(line []byte) (int, error) {
	level, text := slog.LevelDebug, bytes.TrimSpace(line)
	for prefix, l := range map[string]slog.Level{
		"[ERR] ": slog.LevelInfo, "[WARN] ": slog.LevelDebug, "[INFO] ": slog.LevelDebug, "[DEBUG] ": slog.LevelDebug - 4,
	} {
		if rest, ok := bytes.CutPrefix(text, []byte(prefix)); ok {
			level, text = l, rest
			break
		}
	}
	ctx := context.Background()
	if !w.to.Enabled(ctx, level) {
		return len(line), nil
	}
	var args []any
	if level >= slog.LevelInfo {
		ok, held := w.complaints.allow(time.Now())
		if !ok {
			return len(line), nil
		}
		if held > 0 {
			args = []any{"suppressed", held}
		}
	}
	w.to.Log(ctx, level, string(bytes.TrimPrefix(text, []byte("memberlist: "))), args...)
	return len(line), nil
}
