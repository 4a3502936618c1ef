//go:build !invariants

package executor

// goroutine is nothing outside invariants builds.
type goroutine struct{}

func (*goroutine) set() {}

func (*goroutine) isCurrent() bool { return false }
