//go:build linux || darwin

package main

import "syscall"

// openFiles is how many files the process may have open. Go has raised that to the hard limit.
func openFiles() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return l.Cur
}
