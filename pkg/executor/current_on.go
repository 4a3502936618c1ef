//go:build invariants

package executor

import (
	"bytes"
	"runtime"
	"strconv"
	"sync/atomic"
)

// goroutine remembers a goroutine by its id, which only a stack trace tells: slow, hence in invariants builds only.
type goroutine struct{ id atomic.Uint64 }

func (g *goroutine) set() { g.id.Store(currentID()) }

func (g *goroutine) isCurrent() bool { return g.id.Load() == currentID() }

func currentID() uint64 {
	var buf [64]byte
	b := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(b, []byte(" "))
	id, _ := strconv.ParseUint(string(digits), 10, 64)
	return id
}
