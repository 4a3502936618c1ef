package harness

import "syscall"

// dieWithParent makes the kernel kill the daemon when the test process dies, so that nothing is left behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
