// Package daemon is what brokerd and bookied share as processes: subcommands, logs, signals, the small HTTP port, and
// errors said in one line with what to do about them.
package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"
)

// Command is one subcommand.
type Command struct {
	Name string
	Doc  string
	Run  func(ctx context.Context, args []string) error
}

// ExitError is an error with an exit code of its own, for commands whose result is more than yes or no.
type ExitError struct {
	Code int
	Err  error // nil: the command has said everything itself
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Program is a daemon's command line.
type Program struct {
	Name     string
	Doc      string
	Commands []Command
}

// Main runs the subcommand that the arguments name and returns the exit code: 0, 1 for an error, 2 for wrong usage, or
// what an ExitError says.
// The context ends with SIGINT or SIGTERM; a second signal ends the process at once.
func (p Program) Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		p.usage(os.Stdout)
		return 0
	}
	for _, c := range p.Commands {
		if c.Name != args[0] {
			continue
		}
		return p.finish(c.Run(ctx, args[1:]))
	}
	fmt.Fprintf(os.Stderr, "%s: no command %q\n", p.Name, args[0])
	p.usage(os.Stderr)
	return 2
}

// finish says what went wrong and returns the exit code.
func (p Program) finish(err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	code := 1
	var exit *ExitError
	if errors.As(err, &exit) {
		code = exit.Code
	}
	if exit == nil || exit.Err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, explain(err))
	}
	return code
}

func (p Program) usage(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\ncommands:\n", p.Name, p.Doc)
	sort.SliceStable(p.Commands, func(i, j int) bool { return p.Commands[i].Name < p.Commands[j].Name })
	for _, c := range p.Commands {
		fmt.Fprintf(w, "  %-12s %s\n", c.Name, c.Doc)
	}
	fmt.Fprintf(w, "\n%s COMMAND -h prints the flags of a command\n", p.Name)
}

// Finish closes a daemon that ran until failed (nil: it was asked to stop) and says how that went, so that the log of a
// clean stop ends with a line that says so.
func Finish(log *slog.Logger, name string, failed error, closeAll func() error) error {
	start := time.Now()
	err := closeAll()
	if err == nil && failed == nil {
		log.Info(name+" has stopped", "took", time.Since(start))
	}
	return errors.Join(failed, err)
}

// explain adds what to do to the errors that an operator meets most.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: another process has this port; stop it or choose another port", err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: the disk is full; free space and start again", err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: check the owner and the mode of the path", err)
	case strings.Contains(err.Error(), "no private IP address found"):
		return fmt.Errorf("%w: bindAddress is all addresses and none of this machine can be given to others; set advertisedAddress, or bindAddress", err)
	}
	return err
}

// Sets is a repeatable --set flag.
type Sets []string

func (s *Sets) String() string { return strings.Join(*s, " ") }

// Set appends one name=value.
func (s *Sets) Set(v string) error { *s = append(*s, v); return nil }

// LogOptions are the settings of the log.
type LogOptions struct {
	Level  string // debug, info, warn, error
	Format string // text or json
}

// NewLogger writes to standard error.
func NewLogger(o LogOptions) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return nil, fmt.Errorf("logLevel: %q is none of debug, info, warn, error", o.Level)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), nil
	}
	return nil, fmt.Errorf("logFormat: %q is none of text, json", o.Format)
}
