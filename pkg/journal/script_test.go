package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"geminga/pkg/vfs"
)

// script is the state of a datadriven test: one directory and the journal in it.
type script struct {
	t      *testing.T
	mem    *vfs.Mem
	inject *vfs.Inject
	j      *Journal
	hang   *vfs.Fault
	async  []chan error
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t, mem: vfs.NewMem()}
		defer func() {
			if s.j != nil {
				_ = s.j.Close()
			}
		}()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			return s.command(d)
		})
	})
}

func (s *script) command(d *datadriven.TestData) string {
	switch d.Cmd {
	case "open":
		s.inject = vfs.NewInject(s.mem)
		o := testOptions(s.inject)
		o.SyncData = !d.HasArg("nosync")
		j, err := Open(o)
		if err != nil {
			return brief(err)
		}
		s.j = j
		return s.groups()
	case "close":
		err := s.j.Close()
		s.j = nil
		return brief(err)
	case "kill": // the process dies: what was written stays in the page cache
		mem := s.mem
		s.mem = mem.Crash(0)
		_ = s.j.Close()
		s.j = nil
		return "ok"
	case "do":
		return s.lines(d, s.call)
	case "groups":
		return s.groups()
	case "segments":
		return s.segments()
	case "damage":
		return s.damage(d)
	case "hold": // the next sync waits
		s.hang = s.inject.HangIf(vfs.Kinds(vfs.OpSync))
		return "ok"
	case "queue":
		return s.lines(d, s.queue)
	case "release":
		before := s.inject.Count(vfs.OpWrite)
		s.inject.Heal()
		s.hang.Release()
		var out []string
		for _, c := range s.async {
			out = append(out, brief(<-c))
		}
		s.async = nil
		return fmt.Sprintf("%s\nwrites since: %d", strings.Join(out, " "), s.inject.Count(vfs.OpWrite)-before)
	}
	s.t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

func (s *script) lines(d *datadriven.TestData, do func(line string) string) string {
	var out []string
	for line := range strings.Lines(d.Input) {
		out = append(out, do(strings.TrimSpace(line)))
	}
	return strings.Join(out, "\n")
}

// call runs one line: "<group> append <first> <last> [size]", "<group> get <index>", and so on.
func (s *script) call(line string) string {
	var id uint32
	var verb, rest string
	if _, err := fmt.Sscan(line, &id, &verb); err != nil {
		s.t.Fatalf("%q: %v", line, err)
	}
	if f := strings.SplitN(line, " ", 3); len(f) == 3 {
		rest = f[2]
	}
	g := s.j.Group(id)
	var a, b uint64
	size := 100
	_, _ = fmt.Sscan(rest, &a, &b, &size)
	switch verb {
	case "append":
		var recs []Record
		for i := a; i <= b; i++ {
			recs = append(recs, record(id, i, size))
		}
		return brief(g.Append(recs))
	case "truncate":
		return brief(g.TruncateSuffix(a))
	case "compact":
		return brief(g.CompactPrefix(a))
	case "reset":
		return brief(g.Reset(0))
	case "set":
		f := strings.Fields(rest)
		return brief(g.SetStable([]byte(f[0]), []byte(f[1])))
	case "value":
		v, err := g.GetStable([]byte(rest))
		if err != nil {
			return brief(err)
		}
		return string(v)
	case "get":
		var r Record
		if err := g.Get(a, &r); err != nil {
			return brief(err)
		}
		return fmt.Sprintf("index %d term %d, %d bytes", r.Index, r.Term, len(r.Data))
	}
	s.t.Fatalf("unknown verb %q", verb)
	return ""
}

// queue starts a line of "do" without waiting for its answer, but until it is queued.
func (s *script) queue(line string) string {
	s.j.mu.Lock()
	before := len(s.j.queue) + len(s.j.inflight)
	s.j.mu.Unlock()
	answer := make(chan error, 1)
	go func() {
		if got := s.call(line); got != "ok" {
			answer <- errors.New(got)
			return
		}
		answer <- nil
	}()
	s.async = append(s.async, answer)
	waitFor(s.t, func() bool {
		s.j.mu.Lock()
		defer s.j.mu.Unlock()
		return len(s.j.queue)+len(s.j.inflight) > before
	})
	if len(s.async) == 1 {
		<-s.hang.Reached()
	}
	return "queued"
}

// groups draws all groups.
func (s *script) groups() string {
	var out []string
	for _, id := range s.j.Groups() {
		g := s.j.Group(id)
		line := fmt.Sprintf("group %d: [%d, %d]", id, g.FirstIndex(), g.LastIndex())
		g.mu.RLock()
		for _, k := range sortedKeys(g.stable) {
			line += fmt.Sprintf(" %s=%s", k, g.stable[k])
		}
		g.mu.RUnlock()
		if err := g.Damaged(); err != nil {
			line += " " + brief(err)
		}
		out = append(out, line)
	}
	if len(out) == 0 {
		return "no groups"
	}
	return strings.Join(out, "\n")
}

// segments draws what is in the directory.
func (s *script) segments() string {
	names, err := s.mem.List(testDir)
	must(s.t, err)
	var out []string
	for _, name := range names {
		number, ok := parseName(name, segmentSuffix)
		if !ok {
			continue
		}
		f, err := s.mem.Open(filepath.Join(testDir, name))
		must(s.t, err)
		size, _ := f.Size()
		var sc scanner
		sc.reset(f, number, size)
		line := fmt.Sprintf("segment %d:", number)
		for off, last := int64(segmentHeaderLen), uint64(0); ; {
			h, at, ok, err := sc.next(off, last+1)
			must(s.t, err)
			if !ok {
				break
			}
			name := map[uint32]string{0: "batch", flagHead: "head", flagEnd: "end"}[h.flags&3]
			line += fmt.Sprintf(" %s %d@%d(%d)", name, h.number, at, h.count)
			off, last = at+padded(batchHeaderLen+int64(h.length)), h.number
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// damage overwrites bytes: "segment=1 at=512 len=4", or everything from at on with zeros: "cut".
func (s *script) damage(d *datadriven.TestData) string {
	var segment uint64
	var at, n int64
	d.ScanArgs(s.t, "segment", &segment)
	d.ScanArgs(s.t, "at", &at)
	d.MaybeScanArgs(s.t, "len", &n)
	f, err := s.mem.Open(filepath.Join(testDir, segmentName(segment)))
	must(s.t, err)
	size, _ := f.Size()
	if d.HasArg("cut") {
		n = size - at
	}
	b := make([]byte, n)
	if !d.HasArg("cut") {
		_, err = f.ReadAt(b, at)
		must(s.t, err)
		for i := range b {
			b[i] ^= 0xff
		}
	}
	_, err = f.WriteAt(b, at)
	must(s.t, err)
	must(s.t, f.SyncData())
	return "ok"
}

func brief(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.TrimPrefix(err.Error(), "journal: ")
}
