//go:build invariants

package invariant

import (
	"bytes"
	"runtime"
	"strconv"
	"sync/atomic"
)

// Goroutine remembers who owns some state, in invariants builds only: the id of a goroutine is known from a stack trace
// alone, which is slow. The zero value has no owner and accepts everybody.
type Goroutine struct{ id atomic.Uint64 }

// Own makes the caller's goroutine the owner.
func (g *Goroutine) Own() { g.id.Store(goroutineID()) }

// Owns reports whether the caller runs on the owner's goroutine.
func (g *Goroutine) Owns() bool { return g.id.Load() == goroutineID() }

// Check panics, saying what, unless the caller runs on the owner's goroutine or there is no owner.
func (g *Goroutine) Check(what string) {
	if id := g.id.Load(); id != 0 && id != goroutineID() {
		Broken("%s: not on the goroutine that owns it", what)
	}
}

func goroutineID() uint64 {
	var buf [64]byte
	b := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(b, []byte(" "))
	id, _ := strconv.ParseUint(string(digits), 10, 64)
	return id
}
