package settings

import "strings"

// Foreign are the settings that another system reads from the same file and this daemon does not.
type Foreign struct {
	byName   map[string]foreignSetting
	prefixes []string
}

type foreignSetting struct {
	def      string
	protects bool
}

// ParseForeign reads a list of name=default lines; # begins a comment. A name that ends with * is a prefix of names. A !
// before a name says that the setting promises protection: to ignore another value than the default would break the
// promise without a word.
func ParseForeign(list string) *Foreign {
	f := &Foreign{byName: map[string]foreignSetting{}}
	for text := range strings.Lines(list) {
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		name, def, _ := strings.Cut(text, "=")
		name, protects := strings.CutPrefix(name, "!")
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			f.prefixes = append(f.prefixes, prefix)
			continue
		}
		f.byName[name] = foreignSetting{def, protects}
	}
	return f
}

func (f *Foreign) find(name string) (found bool, def string, protects bool) {
	if f == nil {
		return false, "", false
	}
	if s, ok := f.byName[name]; ok {
		return true, s.def, s.protects
	}
	for _, p := range f.prefixes {
		if strings.HasPrefix(name, p) {
			return true, "", false
		}
	}
	return false, "", false
}

// Foreign tells the set which names belong to another system. A name that is registered is ours, whether listed or not.
func (s *Set) Foreign(f *Foreign) { s.foreign = f }
