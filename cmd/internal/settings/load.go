package settings

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
)

// Sources are where values come from, weakest first.
type Sources struct {
	File    string   // path of a key=value file, or empty
	Environ []string // as os.Environ
	Sets    []string // name=value, from --set
	Strict  bool     // a name of the file that nobody knows is an error
}

// Report names what was given and has no effect.
type Report struct {
	Unknown     []string // neither ours nor of the system whose files we read: perhaps a typo
	Unsupported []string // of that system, and not here
	Changed     []string // those of Unsupported whose value is not that system's default
}

// Log warns of what has no effect. daemon is who speaks.
func (r Report) Log(log *slog.Logger, daemon string) {
	if len(r.Unknown) > 0 {
		log.Warn("settings that nobody knows; are they misspelled? With --strict-config they end "+daemon, "names", r.Unknown)
	}
	if len(r.Unsupported) > 0 {
		log.Warn("settings of Pulsar that "+daemon+" does not have are ignored; changed are those not at Pulsar's default",
			"count", len(r.Unsupported), "changed", r.Changed)
	}
}

// Load applies the sources and parses every value. An empty value is the default.
//
// The error joins all bad values and every unknown name from --set or the environment, where nobody copies what was made
// for another system, and with Strict from the file. Whatever else has no effect is in the report; but a setting that
// promises protection (see Foreign) and has no effect is an error wherever it stands.
func (s *Set) Load(src Sources) (Report, error) {
	given, err := readFile(src.File)
	if err != nil {
		return Report{}, err
	}
	l := loading{set: s, strict: src.Strict}
	for _, g := range given {
		l.assign(g, true)
	}
	for _, kv := range src.Environ {
		name, value, ok := strings.Cut(kv, "=")
		if name, found := strings.CutPrefix(name, EnvPrefix); ok && found {
			l.assign(line{name, value, "environment " + EnvPrefix + name}, false)
		}
	}
	for _, kv := range src.Sets {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			l.fault("--set %s: want name=value", kv)
			continue
		}
		l.assign(line{strings.TrimSpace(name), value, "--set"}, false)
	}
	l.errs = append(l.errs, s.parse())
	return l.report(), errors.Join(l.errs...)
}

// Overlay takes the values of a loaded set of the same registrations, puts stored ones on top and parses all of them.
// The error joins all faults; ErrNotDynamic is among them for a setting that can only be read at the start.
func (s *Set) Overlay(loaded *Set, stored map[string]string) error {
	for name, st := range s.byName {
		st.value, st.source = loaded.byName[name].value, loaded.byName[name].source
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		st := s.byName[name]
		if st == nil || !st.dynamic {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrBadSetting, name, ErrNotDynamic))
			continue
		}
		st.value, st.source = strings.TrimSpace(stored[name]), fromStored
	}
	return errors.Join(append(errs, s.parse())...)
}

func (s *Set) parse() error {
	var errs []error
	for _, name := range s.order {
		st := s.byName[name]
		if err := st.parse(st.value); err != nil {
			if st.secret {
				err = errors.New("its value is not of the right form")
			}
			errs = append(errs, fmt.Errorf("%w: %s (%s): %w", ErrBadSetting, name, st.source, err))
		}
	}
	return errors.Join(errs...)
}

// line is a value that somebody has given.
type line struct{ name, value, source string }

// loading is one call of Load.
type loading struct {
	set         *Set
	strict      bool
	errs        []error
	unknown     map[string]struct{}
	unsupported map[string]bool // and whether the last value differs from the default there
}

func (l *loading) fault(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf("%w: %w", ErrBadSetting, fmt.Errorf(format, args...)))
}

func (l *loading) assign(g line, fromFile bool) {
	value := strings.TrimSpace(g.value)
	if st := l.set.byName[g.name]; st != nil {
		st.value, st.source = value, g.source
		if value == "" {
			st.value, st.source = st.Default, fromDefault
		}
		return
	}
	foreign, def, protects := l.set.foreign.find(g.name)
	switch {
	case foreign && protects && value != "" && value != def:
		l.fault("%s: %s=%s is not supported, and without it there would be less protection than asked for; remove it to go on", g.source, g.name, value)
	case foreign:
		if l.unsupported == nil {
			l.unsupported = map[string]bool{}
		}
		l.unsupported[g.name] = value != "" && value != def
	case !fromFile || l.strict:
		hint := ""
		if meant := l.set.meant(g.name); meant != "" {
			hint = ", perhaps " + meant + " is meant"
		}
		l.fault("%s: unknown name %s%s", g.source, g.name, hint)
	default:
		if l.unknown == nil {
			l.unknown = map[string]struct{}{}
		}
		l.unknown[g.name] = struct{}{}
	}
}

func (l *loading) report() Report {
	r := Report{
		Unknown: slices.Sorted(maps.Keys(l.unknown)), Unsupported: slices.Sorted(maps.Keys(l.unsupported)),
	}
	for _, name := range r.Unsupported {
		if l.unsupported[name] {
			r.Changed = append(r.Changed, name)
		}
	}
	return r
}

// readFile reads name=value lines; "" is no file.
func readFile(path string) ([]line, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	defer f.Close()
	var lines []line
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		text := strings.TrimSpace(sc.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%w: %s:%d: want name=value", ErrBadSetting, path, n)
		}
		lines = append(lines, line{strings.TrimSpace(name), value, fmt.Sprintf("%s:%d", path, n)})
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	return lines, nil
}
