package harness

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has used since its start.
type Usage struct {
	CPU     time.Duration // user and system
	Written int64         // bytes sent to the block layer
}

// Plus adds two usages.
func (u Usage) Plus(v Usage) Usage { return Usage{u.CPU + v.CPU, u.Written + v.Written} }

// Minus is what was used between v and u.
func (u Usage) Minus(v Usage) Usage { return Usage{u.CPU - v.CPU, u.Written - v.Written} }

// UsageOf reads /proc, so it works on Linux only. CPU time has the kernel's tick as its unit, 10 ms.
func UsageOf(pid int) (Usage, error) {
	var u Usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The second field is the name in brackets, which may hold blanks; utime and stime are fields 14 and 15.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, err
		}
		u.CPU += time.Duration(ticks) * 10 * time.Millisecond
	}
	io, err := os.Open(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return u, err
	}
	defer io.Close()
	sc := bufio.NewScanner(io)
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "write_bytes: "); ok {
			u.Written, err = strconv.ParseInt(v, 10, 64)
		}
	}
	return u, err
}

// Sets is a repeatable name=value flag.
type Sets []string

func (s *Sets) String() string { return strings.Join(*s, " ") }

// Set appends one.
func (s *Sets) Set(v string) error { *s = append(*s, v); return nil }
