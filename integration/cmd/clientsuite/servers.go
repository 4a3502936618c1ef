package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"geminga/integration/harness"
)

// settings are what the suite's own server configuration says. Of three keys, consistent hashing may give one consumer all.
func settings() []string {
	return []string{
		"maxMessageSize=1048576", "subscriptionKeySharedUseConsistentHashing=false", "advertisedAddress=localhost",
	}
}

// start starts the servers and returns what ends them. The tests know the first broker only; it sends them to the other.
func (o *options) start(ctx context.Context, on, dir string) (stop func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h := harness.Options{
		Bin: o.bin, Dir: filepath.Join(dir, "servers"), Bookies: 3, Brokers: 2, BrokerSets: settings(),
		PulsarPort: pulsarPort, WebPort: webPort,
	}
	switch on {
	case "standalone":
		p, _, err := harness.NewStandalone(h)
		if err != nil {
			return nil, err
		}
		if err := p.Start(); err != nil {
			return nil, err
		}
		return p.Kill, p.WaitReady(ctx)
	case "cluster":
		c, err := harness.NewCluster(h)
		if err != nil {
			return nil, err
		}
		return c.Kill, c.Start(ctx)
	}
	return nil, fmt.Errorf("-on %s: there are standalone and cluster", on)
}
