package broker

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// kind of complaint about what clients send. One line per kind and interval is logged.
type kind uint8

const (
	kindForeign kind = iota
	kindTooLarge
	kindBadFrame
	kindBadCommand
	kindBadPayload
	kindChecksum
	kindOutOfOrder
	kindHandshake
	kindKeepAlive
	kindSlowReader
	kindRefused
	kinds
)

const complainEvery = 10 * time.Second

// complaints logs what is wrong with connections without letting them fill the log.
type complaints struct {
	log  *slog.Logger
	last [kinds]atomic.Int64 // unix nanoseconds of the last line
	held [kinds]atomic.Int64 // lines suppressed since
}

// say logs a line unless one of the kind was logged shortly before. Any goroutine.
func (l *complaints) say(k kind, now time.Time, text string, args ...any) {
	last := l.last[k].Load()
	if last != 0 && now.UnixNano()-last < int64(complainEvery) || !l.last[k].CompareAndSwap(last, now.UnixNano()) {
		l.held[k].Add(1)
		return
	}
	if n := l.held[k].Swap(0); n > 0 {
		args = append(args, "suppressed", n)
	}
	l.log.Warn(text, args...)
}
