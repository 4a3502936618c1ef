package admin

import (
	"context"
	"fmt"
	"testing"

	"geminga/pkg/broker"
)

var _ Configuration = broker.Directory{}

// settable is a broker with one setting.
type settable struct {
	plainBroker
	stored map[string]string
}

func (s *settable) DynamicSettings() ([]string, error) { return []string{"rate"}, nil }

func (s *settable) RuntimeSettings() (map[string]string, error) {
	return map[string]string{"rate": "1", "key": "*****"}, nil
}

func (s *settable) StoredSettings(context.Context) (map[string]string, error) { return s.stored, nil }

func (s *settable) StoreSetting(_ context.Context, name, value string) error {
	switch {
	case name != "rate":
		return fmt.Errorf("%w: %s", broker.ErrNotDynamic, name)
	case value == "x":
		return fmt.Errorf("%w: not a number", broker.ErrBadSetting)
	}
	s.stored[name] = value
	return nil
}

func (s *settable) RemoveSetting(_ context.Context, name string) error {
	delete(s.stored, name)
	return nil
}

// Paths, codes and bodies are those of pulsar-admin brokers.
func TestConfiguration(t *testing.T) {
	h := newHandler(t, brokerOptions(&settable{stored: map[string]string{}}))
	const path = "/admin/v2/brokers/configuration"
	for _, c := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", path, 200, `["rate"]`},
		{"GET", path + "/values", 200, "{}"},
		{"POST", path + "/rate/a%2Fb%20c", 204, ""},
		{"GET", path + "/values", 200, `{"rate":"a/b c"}`},
		{"POST", path + "/rate/x", 412, `{"reason":"Invalid dynamic-config value: not a number"}`},
		{"POST", path + "/port/1", 412, `{"reason":"Can't update non-dynamic configuration: port"}`},
		{"DELETE", path + "/rate", 204, ""},
		{"GET", path + "/values", 200, "{}"},
		{"GET", path + "/runtime", 200, `{"key":"*****","rate":"1"}`},
	} {
		if code, body := do(h, c.method, c.path, ""); code != c.code || body != c.body {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, code, body, c.code, c.body)
		}
	}
	if code, _ := do(newHandler(t, brokerOptions(plainBroker{})), "GET", path, ""); code != 501 {
		t.Errorf("a broker without settings: %d", code)
	}
}
