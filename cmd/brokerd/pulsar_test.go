package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// brokerConf is a broker.conf as Pulsar ships it: every name with its default. What differs among Pulsar's versions
// does not matter here.
func brokerConf(extra ...string) string {
	var b strings.Builder
	for text := range strings.Lines(pulsarSettings) {
		name, def, ok := strings.Cut(strings.TrimSpace(text), "=")
		name = strings.TrimPrefix(name, "!")
		if ok && name[0] != '#' {
			b.WriteString("# about " + name + "\n" + name + "=" + def + "\n\n")
		}
	}
	b.WriteString(strings.Join(extra, "\n"))
	return b.String()
}

func parseFile(t *testing.T, text string, args ...string) (c *config, log string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, _, report, err := parseConfig("test", append(args, "--conf", path))
	var lines bytes.Buffer
	report.Log(slog.New(slog.NewTextHandler(&lines, nil)), "brokerd")
	return c, lines.String(), err
}

// A whole broker.conf is accepted, also strictly, and one line says how much of it has no effect.
func TestPulsarsFileIsAccepted(t *testing.T) {
	c, log, err := parseFile(t, brokerConf("clusterName=mine", "maxTenants=7", "bookkeeper_opportunisticStriping=true"), "--strict-config")
	if err != nil {
		t.Fatal(err)
	}
	if c.cluster != "mine" || c.options.MaxMessageSize != 5<<20 {
		t.Errorf("%+v", c)
	}
	for _, want := range []string{"are ignored", "count=", `changed="[bookkeeper_opportunisticStriping maxTenants]"`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in %s", want, log)
		}
	}
	if strings.Count(log, "\n") != 1 {
		t.Errorf("more than one line: %s", log)
	}
}

// A misspelled name is neither Pulsar's nor ours; strictly, it ends brokerd.
func TestMisspelledName(t *testing.T) {
	text := brokerConf("brokerServicePrt=1")
	_, log, err := parseFile(t, text)
	if err != nil || !strings.Contains(log, "brokerServicePrt") {
		t.Errorf("%v: %s", err, log)
	}
	if _, _, err = parseFile(t, text, "--strict-config"); err == nil || !strings.Contains(err.Error(), "unknown name brokerServicePrt") {
		t.Errorf("strict: %v", err)
	}
}

// What would leave a broker less protected than its file says is refused.
func TestProtectionIsNotIgnored(t *testing.T) {
	for _, set := range []string{"authenticationEnabled=true", "authorizationEnabled=true", "tlsRequireTrustedClientCertOnConnect=true"} {
		name, _, _ := strings.Cut(set, "=")
		if (&config{}).register().Values()[name] != "" {
			continue // supported
		}
		if _, _, err := parseFile(t, brokerConf(set)); err == nil || !strings.Contains(err.Error(), set) {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// A number without a unit is a riddle.
func TestNumbersHaveUnits(t *testing.T) {
	set := (&config{}).register()
	var out bytes.Buffer
	set.Print(&out)
	exempt := []string{"brokerServicePort", "webServicePort", "gossipPort", "bookiePort"}
	var facts string
	for text := range strings.Lines(out.String()) {
		if strings.HasPrefix(text, "# ") {
			facts = text
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(text), "=")
		digits := value != "" && strings.Trim(value, "0123456789") == ""
		if digits && !strings.Contains(facts, ", in ") && !slices.Contains(exempt, name) {
			t.Errorf("%s: what does it count? Add .In(unit)", name)
		}
	}
}
