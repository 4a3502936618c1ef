//go:build invariants

package invariant

// Enabled tells whether assertions are compiled in.
const Enabled = true

// Assert panics when cond is false.
func Assert(cond bool, format string, args ...any) {
	if !cond {
		Broken(format, args...)
	}
}
