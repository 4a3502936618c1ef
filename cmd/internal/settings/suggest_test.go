package settings

import (
	"errors"
	"strings"
	"testing"
)

func TestMeant(t *testing.T) {
	s := New()
	var port, size, most int
	s.Int(&port, "brokerServicePort", 6650, Range{0, 65535}, "")
	s.Int(&size, "sizeA", 1, Range{0, 9}, "")
	s.Int(&size, "sizeB", 1, Range{0, 9}, "")
	s.Limit(&most, "most", 7, "")
	s.Foreign(ParseForeign("brokerServicePortTls=\nmaxTenants=0\nbookkeeper_*="))
	for name, want := range map[string]string{
		"brokerServicePrt": "brokerServicePort", "brokerserviceport": "brokerServicePort", "brokerServiecPort": "brokerServicePort",
		"brokerServicePortTl": "brokerServicePortTls", "maxTenant": "maxTenants", "MAXTENANTS": "maxTenants",
		"sizeC": "", "size": "", "sizeAA": "sizeA", "webPort": "", "": "", "brokerService": "",
	} {
		if got := s.meant(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	_, err := s.Load(Sources{Sets: []string{"brokerServicePrt=1"}})
	if !errors.Is(err, ErrBadSetting) || !strings.Contains(err.Error(), "unknown name brokerServicePrt, perhaps brokerServicePort is meant") {
		t.Errorf("%v", err)
	}
}

// Less than nothing is no limit, as in Pulsar.
func TestLimit(t *testing.T) {
	var n int
	s := New()
	s.Limit(&n, "most", 7, "")
	for value, want := range map[string]int{"": 7, "0": 0, "-1": 0, "-9223372036854775808": 0, "3": 3} {
		if _, err := s.Load(Sources{Sets: []string{"most=" + value}}); err != nil || n != want {
			t.Errorf("%q: %d (%v), want %d", value, n, err, want)
		}
	}
	for _, bad := range []string{"x", "1.5", "1073741825"} {
		if _, err := s.Load(Sources{Sets: []string{"most=" + bad}}); err == nil {
			t.Errorf("%s passed", bad)
		}
	}
}
