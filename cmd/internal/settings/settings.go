// Package settings reads the daemons' configuration: Pulsar's own names in key=value files, overridden by the
// environment, overridden by --set. A daemon registers each setting it understands together with the variable that
// receives it, so a name that nothing reads cannot exist; a name that was given and not registered is reported.
package settings

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

// EnvPrefix stands before a setting's name in the environment: GEMINGA_brokerServicePort=6650.
const EnvPrefix = "GEMINGA_"

// fromDefault is the source of a value that nobody gave.
const fromDefault = "default"

// ErrBadSetting marks every complaint about a value.
var ErrBadSetting = errors.New("bad setting")

// Setting is one registered name.
type Setting struct {
	Name    string
	Default string
	Doc     string // what it does, its unit
	value   string
	source  string // fromDefault, or where the value came from
	parse   func(string) error
}

// Set holds the settings of one daemon. Not safe for concurrent use.
type Set struct {
	byName map[string]*Setting
	order  []string
}

// New returns an empty set.
func New() *Set { return &Set{byName: map[string]*Setting{}} }

func (s *Set) add(name, def, doc string, parse func(string) error) {
	s.byName[name] = &Setting{Name: name, Default: def, Doc: doc, value: def, source: fromDefault, parse: parse}
	s.order = append(s.order, name)
}

// String registers a text.
func (s *Set) String(p *string, name, def, doc string) {
	s.add(name, def, doc, func(v string) error { *p = v; return nil })
}

// List registers a comma-separated list; blanks around the elements are dropped.
func (s *Set) List(p *[]string, name, def, doc string) {
	s.add(name, def, doc, func(v string) error {
		*p = nil
		for _, e := range strings.Split(v, ",") {
			if e = strings.TrimSpace(e); e != "" {
				*p = append(*p, e)
			}
		}
		return nil
	})
}

// Bool registers true or false.
func (s *Set) Bool(p *bool, name string, def bool, doc string) {
	s.add(name, strconv.FormatBool(def), doc, func(v string) error {
		b, err := strconv.ParseBool(v)
		*p = b
		return err
	})
}

// Func registers a setting that parse gives a meaning to.
func (s *Set) Func(name, def, doc string, parse func(string) error) { s.add(name, def, doc, parse) }

// Inverted parses true or false into its opposite, for settings whose variable says the reverse.
func Inverted(p *bool) func(string) error {
	return func(v string) error {
		b, err := strconv.ParseBool(v)
		*p = !b
		return err
	}
}

// Range bounds a number, both ends included.
type Range struct{ Min, Max int64 }

// Int registers a number within bounds.
func (s *Set) Int(p *int, name string, def int, r Range, doc string) {
	s.add(name, strconv.Itoa(def), doc, func(v string) error {
		n, err := parseInt(v, r)
		*p = int(n)
		return err
	})
}

// Duration registers a positive number of units (time.Second for …Seconds settings). 0 is refused: to the packages that
// receive it, it would mean their default.
func (s *Set) Duration(p *time.Duration, name string, def int, unit time.Duration, doc string) {
	s.add(name, strconv.Itoa(def), doc, parseDuration(p, unit, 1))
}

// DurationOrNone is Duration for settings whose 0 has a meaning. Whoever reads the variable must see to it that 0 does
// not become a default.
func (s *Set) DurationOrNone(p *time.Duration, name string, def int, unit time.Duration, doc string) {
	s.add(name, strconv.Itoa(def), doc, parseDuration(p, unit, 0))
}

func parseDuration(p *time.Duration, unit time.Duration, least int64) func(string) error {
	return func(v string) error {
		n, err := parseInt(v, Range{least, int64(1<<62) / int64(unit)})
		*p = time.Duration(n) * unit
		return err
	}
}

func parseInt(v string, r Range) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", v)
	}
	if n < r.Min || n > r.Max {
		return 0, fmt.Errorf("%d is not within %d..%d", n, r.Min, r.Max)
	}
	return n, nil
}

// Sources are where values come from, weakest first.
type Sources struct {
	File    string   // path of a key=value file, or empty
	Environ []string // as os.Environ
	Sets    []string // name=value, from --set
}

// Load applies the sources and parses every value. The error joins all bad values and every unknown name from --set or
// the environment. Unknown names of the file are returned instead, since a file written for Pulsar has many.
func (s *Set) Load(src Sources) (unknown []string, err error) {
	var errs []error
	if src.File != "" {
		unknown, err = s.loadFile(src.File)
		if err != nil {
			return nil, err
		}
	}
	for _, kv := range src.Environ {
		name, value, ok := strings.Cut(kv, "=")
		if name, found := strings.CutPrefix(name, EnvPrefix); ok && found {
			errs = append(errs, s.assign(name, value, "environment "+EnvPrefix+name))
		}
	}
	for _, kv := range src.Sets {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("%w: --set %s: want name=value", ErrBadSetting, kv))
			continue
		}
		errs = append(errs, s.assign(strings.TrimSpace(name), value, "--set"))
	}
	for _, name := range s.order {
		st := s.byName[name]
		if perr := st.parse(st.value); perr != nil {
			errs = append(errs, fmt.Errorf("%w: %s (%s): %w", ErrBadSetting, name, st.source, perr))
		}
	}
	return unknown, errors.Join(errs...)
}

func (s *Set) assign(name, value, source string) error {
	st, ok := s.byName[name]
	if !ok {
		return fmt.Errorf("%w: %s: unknown name %s", ErrBadSetting, source, name)
	}
	st.value, st.source = strings.TrimSpace(value), source
	return nil
}

func (s *Set) loadFile(path string) (unknown []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("%w: %s:%d: want name=value", ErrBadSetting, path, n)
		}
		if s.assign(strings.TrimSpace(name), value, path) != nil {
			unknown = append(unknown, strings.TrimSpace(name))
		}
	}
	sort.Strings(unknown)
	return unknown, sc.Err()
}

// Print writes every setting as a commented key=value file: what it does, its default, where the value comes from when
// that is not the default, and the effective value.
func (s *Set) Print(w io.Writer) {
	for i, name := range s.order {
		st := s.byName[name]
		if i > 0 {
			fmt.Fprintln(w)
		}
		from := ""
		if st.source != fromDefault {
			from = ", now from: " + st.source
		}
		fmt.Fprintf(w, "# %s\n# default %q%s\n%s=%s\n", st.Doc, st.Default, from, name, st.value)
	}
}
