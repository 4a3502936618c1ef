// Package settings reads the daemons' configuration: Pulsar's own names in key=value files, overridden by the
// environment, overridden by --set, overridden by what the cluster has stored. A daemon registers each setting it
// understands together with the variable that receives it, so a name that nothing reads cannot exist; a name that was
// given and not registered is reported.
package settings

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// EnvPrefix stands before a setting's name in the environment: GEMINGA_brokerServicePort=6650.
const EnvPrefix = "GEMINGA_"

// Where values come from, when not from a file, whose path it is then, or from the environment.
const (
	fromDefault = "default"
	fromStored  = "stored in the metadata"
)

var (
	// ErrBadSetting marks every complaint about a name or a value.
	ErrBadSetting = errors.New("bad setting")
	// ErrNotDynamic says that a setting is read at the start only.
	ErrNotDynamic = errors.New("not a setting that can be changed at run time")
)

// Setting is one registered name.
type Setting struct {
	Name    string
	Default string
	Doc     string // what it does

	unit    string
	dynamic bool
	secret  bool
	value   string
	source  string // fromDefault, or where the value came from
	parse   func(string) error
}

// In says what the number counts.
func (st *Setting) In(unit string) *Setting { st.unit = unit; return st }

// Dynamic says that the value can be changed at run time.
func (st *Setting) Dynamic() *Setting { st.dynamic = true; return st }

// Secret says that the value is never shown.
func (st *Setting) Secret() *Setting { st.secret = true; return st }

// masked is shown instead of a secret.
const masked = "*****"

// shown is the value as others may see it.
func (st *Setting) shown() string {
	if st.secret && st.value != "" {
		return masked
	}
	return st.value
}

// Set holds the settings of one daemon. Not safe for concurrent use.
type Set struct {
	byName  map[string]*Setting
	order   []string
	foreign *Foreign // nil: none
}

// New returns an empty set.
func New() *Set { return &Set{byName: map[string]*Setting{}} }

func (s *Set) add(name, def, doc string, parse func(string) error) *Setting {
	st := &Setting{Name: name, Default: def, Doc: doc, value: def, source: fromDefault, parse: parse}
	s.byName[name] = st
	s.order = append(s.order, name)
	return st
}

// String registers a text.
func (s *Set) String(p *string, name, def, doc string) *Setting {
	return s.add(name, def, doc, func(v string) error { *p = v; return nil })
}

// List registers a comma-separated list; blanks around the elements are dropped.
func (s *Set) List(p *[]string, name, def, doc string) *Setting {
	return s.add(name, def, doc, func(v string) error {
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
func (s *Set) Bool(p *bool, name string, def bool, doc string) *Setting {
	return s.add(name, strconv.FormatBool(def), doc, func(v string) error {
		b, err := strconv.ParseBool(v)
		*p = b
		return err
	})
}

// Func registers a setting that parse gives a meaning to.
func (s *Set) Func(name, def, doc string, parse func(string) error) *Setting {
	return s.add(name, def, doc, parse)
}

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
func (s *Set) Int(p *int, name string, def int, r Range, doc string) *Setting {
	return s.add(name, strconv.Itoa(def), doc, func(v string) error {
		n, err := parseInt(v, r)
		*p = int(n)
		return err
	})
}

// Limit registers how much of something there may be. 0 is no limit, and so is whatever is less, as in Pulsar.
func (s *Set) Limit(p *int, name string, def int, doc string) *Setting {
	return s.add(name, strconv.Itoa(def), doc, func(v string) error {
		n, err := parseInt(v, Range{math.MinInt64, 1 << 30})
		*p = int(max(0, n))
		return err
	})
}

// Duration registers a positive number of units (time.Second for …Seconds settings). 0 is refused: to the packages that
// receive it, it would mean their default.
func (s *Set) Duration(p *time.Duration, name string, def int, unit time.Duration, doc string) *Setting {
	return s.add(name, strconv.Itoa(def), doc, parseDuration(p, unit, 1)).In(unitName(unit))
}

// DurationOrNone is Duration for settings whose 0 has a meaning. Whoever reads the variable must see to it that 0 does
// not become a default.
func (s *Set) DurationOrNone(p *time.Duration, name string, def int, unit time.Duration, doc string) *Setting {
	return s.add(name, strconv.Itoa(def), doc, parseDuration(p, unit, 0)).In(unitName(unit))
}

func unitName(unit time.Duration) string {
	switch unit {
	case time.Millisecond:
		return "milliseconds"
	case time.Second:
		return "seconds"
	case time.Minute:
		return "minutes"
	}
	return unit.String()
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

// Dynamic returns the names that can be changed at run time, in the order of registration.
func (s *Set) Dynamic() []string {
	names := []string{}
	for _, name := range s.order {
		if s.byName[name].dynamic {
			names = append(names, name)
		}
	}
	return names
}

// Values returns every value in force; secrets are masked.
func (s *Set) Values() map[string]string {
	values := make(map[string]string, len(s.order))
	for _, name := range s.order {
		values[name] = s.byName[name].shown()
	}
	return values
}

// Print writes every setting as a commented key=value file: what it does, its default and unit, whether it can be
// changed at run time, where the value comes from when that is not the default, and the value in force. A secret's line
// is a comment, so that the file can be loaded again.
func (s *Set) Print(w io.Writer) {
	for i, name := range s.order {
		st := s.byName[name]
		if i > 0 {
			fmt.Fprintln(w)
		}
		facts := fmt.Sprintf("default %q", st.Default)
		if st.unit != "" {
			facts += ", in " + st.unit
		}
		if st.dynamic {
			facts += ", dynamic"
		}
		if st.source != fromDefault {
			facts += ", now from: " + st.source
		}
		hide := ""
		if st.secret && st.value != "" {
			hide = "# "
		}
		fmt.Fprintf(w, "# %s\n# %s\n%s%s=%s\n", st.Doc, facts, hide, name, st.shown())
	}
}
