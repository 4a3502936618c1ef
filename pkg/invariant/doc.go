// Package invariant holds the assertions of all other packages.
//
// Two strengths, chosen by what would happen if the program went on:
//
//   - Assert checks what the code relies on and tests can afford to verify. It exists in builds with the tag
//     "invariants" and is an empty inlined function otherwise.
//   - Broken reports a state that must not exist and in which going on could lose or mix up data. It panics in every
//     build; it is the only place from which code of this module panics on purpose.
//
// Guard expensive checks with Enabled, a constant, so that the compiler removes them:
//
//	if invariant.Enabled {
//		m.check()
//	}
//
// Everybody may call it, from any goroutine; it keeps no state.
//
// Non-obvious:
//
//   - The arguments of Assert are evaluated in every build. Keep them free of effects, and wrap costly ones in
//     if invariant.Enabled.
package invariant

import "fmt"

// Violation is the value that a failed assertion panics with. Tests may recover and look at it.
type Violation string

// Error returns the message.
func (v Violation) Error() string { return string(v) }

// Broken panics: the program has reached a state that must not exist.
func Broken(format string, args ...any) {
	panic(Violation("broken invariant: " + fmt.Sprintf(format, args...)))
}
