//go:build !invariants

package invariant

// Goroutine remembers who owns some state, in invariants builds only. Here it is empty and so are its methods.
type Goroutine struct{}

// Own makes the caller's goroutine the owner.
func (*Goroutine) Own() {}

// Owns reports whether the caller runs on the owner's goroutine. It is false in this build.
func (*Goroutine) Owns() bool { return false }

// Check panics, saying what, unless the caller runs on the owner's goroutine or there is no owner.
func (*Goroutine) Check(string) {}
