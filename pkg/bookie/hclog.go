package bookie

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes raft's log lines to slog, two levels lower: what the library calls an error (a heartbeat that got
// no answer) is ordinary life of a cluster, and what matters to people is logged by this package itself.
type raftLogger struct {
	to   *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = (*raftLogger)(nil)

func newRaftLogger(to *slog.Logger) hclog.Logger { return &raftLogger{to: to} }

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Error:
		if !isRoutine(msg, args) {
			to = slog.LevelInfo
		}
	case hclog.Trace, hclog.Debug, hclog.Off:
		return
	}
	if l.to.Enabled(context.Background(), to) {
		l.to.Log(context.Background(), to, "raft: "+msg, args...)
	}
}

// isRoutine finds what raft complains of many times in a row and nobody has to look at: calls to a peer that is away, whose
// absence the others tell by who leads, and calls of a group that has been closed under it.
func isRoutine(msg string, args []any) bool {
	switch msg {
	case "failed to make requestVote RPC", "failed to heartbeat to", "failed to appendEntries to":
		return true
	}
	for _, a := range args {
		if err, ok := a.(error); ok && errors.Is(err, errStopped) {
			return true
		}
	}
	return false
}

func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) IsTrace() bool { return false }
func (l *raftLogger) IsDebug() bool { return false }
func (l *raftLogger) IsInfo() bool  { return l.to.Enabled(context.Background(), slog.LevelDebug) }
func (l *raftLogger) IsWarn() bool  { return l.IsInfo() }
func (l *raftLogger) IsError() bool { return l.to.Enabled(context.Background(), slog.LevelInfo) }

func (l *raftLogger) ImpliedArgs() []any { return l.args }

func (l *raftLogger) With(args ...any) hclog.Logger {
	all := append(append([]any(nil), l.args...), args...)
	return &raftLogger{to: l.to.With(args...), name: l.name, args: all}
}

func (l *raftLogger) Name() string                   { return l.name }
func (l *raftLogger) Named(name string) hclog.Logger { return l.ResetNamed(name) }
func (l *raftLogger) ResetNamed(n string) hclog.Logger {
	return &raftLogger{to: l.to, name: n, args: l.args}
}

func (l *raftLogger) SetLevel(hclog.Level)  {}
func (l *raftLogger) GetLevel() hclog.Level { return hclog.Info }
func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.to.Handler(), slog.LevelDebug)
}
func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }
