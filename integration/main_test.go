// Package integration tests the built daemons with the official Pulsar client.
package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"geminga/integration/harness"
)

var (
	binDir = flag.String("bin", "../bin", "directory of the built daemons")
	keep   = flag.Bool("keep", false, "keep data directories and logs")
)

// workDir is removed after the test unless it failed and -keep was given.
func workDir(t *testing.T) string {
	t.Helper()
	//nolint:usetesting // it is kept on demand
	dir, err := os.MkdirTemp("", "geminga-"+filepath.Base(t.Name())+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if *keep {
			t.Logf("kept %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	return dir
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func startStandalone(t *testing.T, sets ...string) (*harness.Proc, string) {
	t.Helper()
	p, url, err := harness.NewStandalone(harness.Options{Bin: *binDir, Dir: workDir(t), BrokerSets: sets})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.Tail(60))
		}
		p.Kill()
		checkSound(t, p)
	})
	if err := p.WaitReady(deadline(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	return p, url
}

func checkSound(t *testing.T, p *harness.Proc) {
	t.Helper()
	if fault := p.Fault(); fault != "" {
		t.Errorf("%s: %s", p.Name, fault)
	}
}

func startCluster(t *testing.T, o harness.Options) *harness.Cluster {
	t.Helper()
	o.Bin = *binDir
	if o.Dir == "" {
		o.Dir = workDir(t)
	}
	c, err := harness.NewCluster(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs(60))
		}
		c.Kill()
		for _, p := range c.All() {
			checkSound(t, p)
		}
	})
	if err := c.Start(deadline(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// newClient returns a client whose log goes to a file beside the test's data, shown on failure.
func newClient(t *testing.T, url string) pulsar.Client {
	t.Helper()
	c, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:              url,
		OperationTimeout: 30 * time.Second,
		Logger:           plog.DefaultNopLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func topicName(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("persistent://public/default/%s-%d", filepath.Base(t.Name()), time.Now().UnixNano())
}
