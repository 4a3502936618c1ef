package main

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

// Every setting changes what it is for: the options of the bookie, or, for those listed, what the command reads itself.
func TestSettingsArrive(t *testing.T) {
	ofCommand := []string{
		"gossipJoin", "gossipPort", "gossipSecretKey", "httpServerPort", "logFormat", "logLevel", "pprofEnabled", "shutdownTimeoutSeconds",
	}
	before, set, _, _, err := parseConfig("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, def := range set.Values() {
		value := another(def)
		if name == "logFormat" {
			value = "json"
		}
		c, _, _, _, err := parseConfig("test", []string{"--set", name + "=" + value})
		if err != nil {
			t.Error(err)
			continue
		}
		arrived := !reflect.DeepEqual(before.bookieOptions("d"), c.bookieOptions("d"))
		if slices.Contains(ofCommand, name) {
			arrived = !reflect.DeepEqual(before, c)
		}
		if !arrived {
			t.Errorf("%s=%s changes nothing (default %q)", name, value, def)
		}
	}
}

// another is a value that most settings with this default take.
func another(def string) string {
	if n, err := strconv.ParseInt(def, 10, 64); err == nil {
		if half := max(n, 0)/2 + 3; half != n {
			return fmt.Sprint(half)
		}
		return fmt.Sprint(n + 1)
	}
	switch def {
	case "true":
		return "false"
	case "false":
		return "true"
	case "info":
		return "debug"
	}
	return "127.0.0.9:1"
}
