package metadata

import "strings"

const hexDigits = "0123456789ABCDEF"

// Escape makes a name into one part of a key: letters, digits and -_.~:@=+,! stay, every other byte becomes %XX, and
// the empty name becomes a single %. Different names have different escapes; Unescape is the inverse.
func Escape(name string) string {
	if name == "" {
		return "%"
	}
	n := 0
	for i := range len(name) {
		if !plain(name[i]) {
			n++
		}
	}
	if n == 0 {
		return name
	}
	b := make([]byte, 0, len(name)+2*n)
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

// Unescape returns the name, or false when part is not what Escape makes.
func Unescape(part string) (string, bool) {
	if part == "%" {
		return "", true
	}
	b := make([]byte, 0, len(part))
	for i := 0; i < len(part); i++ {
		c := part[i]
		if plain(c) {
			b = append(b, c)
			continue
		}
		if c != '%' || i+2 >= len(part) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, part[i+1]), strings.IndexByte(hexDigits, part[i+2])
		if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
			return "", false
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), len(b) > 0
}

func plain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-_.~:@=+,!", c) >= 0
}
