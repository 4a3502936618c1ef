// Package harness starts Geminga's daemons as real processes on loopback addresses, kills and restarts them, and
// checks what a client was promised against what it reads afterwards. It is used by the tests and by the benchmark.
package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Proc is one daemon: a command line that can be started again and again. Not safe for concurrent use.
type Proc struct {
	Name string
	Args []string // binary and arguments
	HTTP string   // address of its HTTP port, for readiness
	Log  string   // file that collects its output over all starts
	GRPC string   // of a bookie: address of its own port

	cmd  *exec.Cmd
	done chan error
}

// Start runs the process. Its output is appended to Log.
func (p *Proc) Start() error {
	f, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(f, "--- start %s\n", strings.Join(p.Args, " "))
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.done = cmd, make(chan error, 1)
	done := p.done
	go func() { done <- cmd.Wait() }()
	return nil
}

// PID of the running process.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Kill ends the process at once, as kill -9 does, and waits for its end.
func (p *Proc) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	p.cmd = nil
}

// Signal sends a signal without waiting.
func (p *Proc) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Term asks the process to end and waits for it at most the time given.
func (p *Proc) Term(limit time.Duration) error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-p.done:
		p.cmd = nil
		return err
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.Name, limit)
	}
}

// Exited waits for the process to end by itself and returns its exit code.
func (p *Proc) Exited(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		code := p.cmd.ProcessState.ExitCode()
		p.cmd = nil
		return code, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// WaitReady polls the readiness endpoint until it answers 200, the process ends, or ctx is done.
func (p *Proc) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready(ctx, p.HTTP) {
			return nil
		}
		select {
		case err := <-p.done:
			p.done <- err
			return fmt.Errorf("%s ended before it was ready: %w\n%s", p.Name, err, p.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.Name, ctx.Err(), p.Tail(20))
		case <-tick.C:
		}
	}
}

func ready(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Tail returns the last n lines of the log.
func (p *Proc) Tail(n int) string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// Fault returns the first sign in the log that the daemon is broken, however the clients fared: a report of the race
// detector, a panic, or the runtime giving up. It is empty when there is none.
func (p *Proc) Fault() string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	for _, sign := range []string{"WARNING: DATA RACE", "\npanic: ", "\nfatal error: "} {
		if at := bytes.Index(b, []byte(sign)); at >= 0 {
			return string(b[at:min(len(b), at+4000)])
		}
	}
	return ""
}

// ports hands out free loopback ports. A port is not given twice by one process.
type ports struct {
	mu    sync.Mutex
	given map[int]bool
}

//nolint:gochecknoglobals // the ports of the machine are one for the whole process
var freePorts = ports{given: map[int]bool{}}

// FreeAddr returns a 127.0.0.1 address whose TCP and UDP ports were free a moment ago.
func FreeAddr() (string, error) {
	freePorts.mu.Lock()
	defer freePorts.mu.Unlock()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		_ = l.Close()
		if err != nil {
			continue
		}
		_ = u.Close()
		if !freePorts.given[port] {
			freePorts.given[port] = true
			return fmt.Sprintf("127.0.0.1:%d", port), nil
		}
	}
	return "", errors.New("no free port in 100 tries")
}

// binary returns the path of a built daemon.
func binary(dir, name string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built (make build): %w", name, err)
	}
	return path, nil
}
