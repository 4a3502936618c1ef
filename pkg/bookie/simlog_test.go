package bookie

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// simLog keeps the last lines that the bookies of a simulation logged: a failure is printed with them.
type simLog struct {
	mu    sync.Mutex
	lines []string
}

const simLogLines = 400

// Write implements io.Writer; slog calls it once for a line.
func (l *simLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) >= 2*simLogLines {
		l.lines = append(l.lines[:0], l.lines[simLogLines:]...)
	}
	l.lines = append(l.lines, fmt.Sprintf("%v %s", time.Since(simEpoch).Round(time.Millisecond), bytes.TrimSpace(p)))
	return len(p), nil
}

func (l *simLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// last returns the lines.
func (l *simLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-simLogLines):], "\n")
}
