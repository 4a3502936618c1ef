package vfs

import "errors"

// Sentinels of this package; compare with errors.Is. Missing files are fs.ErrNotExist, name clashes fs.ErrExist.
var (
	// ErrNoSpace means that the device or the quota is full.
	ErrNoSpace = errors.New("no space left on device")
	// ErrLocked means that another process, or another opener in this one, holds the lock file.
	ErrLocked = errors.New("locked by another process")
	// ErrReadOnly is what a ReadOnly answers to everything that would change something.
	ErrReadOnly = errors.New("opened for reading only")
	// ErrPowerOff is the answer of a Mem whose power was cut.
	ErrPowerOff = errors.New("power is off")
	// ErrInjected is what Inject answers when no other error was asked for.
	ErrInjected = errors.New("injected fault")
)
