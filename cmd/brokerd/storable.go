package main

import (
	"geminga/cmd/internal/settings"
	"geminga/pkg/broker"
)

// storable is what brokerd was started with, as the base of what the cluster has stored (broker.Settings). The file is
// not read again.
type storable struct{ loaded *settings.Set }

// Dynamic implements broker.Settings.
func (s storable) Dynamic() []string { return s.loaded.Dynamic() }

// With implements broker.Settings.
func (s storable) With(stored map[string]string) (broker.Options, map[string]string, error) {
	c := &config{loaded: s.loaded}
	set := c.register()
	if err := set.Overlay(s.loaded, stored); err != nil {
		return broker.Options{}, nil, err
	}
	return c.brokerOptions(), set.Values(), nil
}
