// Command pgo merges CPU profiles of the daemons into the one that their builds are optimised with. Nothing of the machine
// on which they were taken is kept: no paths of binaries, no build ids, no times.
//
//	pgo OUT PROFILE...
package main

import (
	"fmt"
	"os"

	"github.com/google/pprof/profile"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pgo OUT PROFILE...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pgo:", err)
		os.Exit(1)
	}
}

func run(out string, names []string) error {
	var all []*profile.Profile
	for _, name := range names {
		p, err := read(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, m := range p.Mapping {
			m.File, m.BuildID, m.Start, m.Limit, m.Offset = "", "", 0, 1<<63-1, 0
		}
		all = append(all, p)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return err
	}
	merged.Comments, merged.TimeNanos, merged.DurationNanos = nil, 0, 0
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := merged.Write(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func read(name string) (*profile.Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return profile.Parse(f)
}
