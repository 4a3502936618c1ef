package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const client = "github.com/apache/pulsar-client-go"

// build copies the client out of the module cache, which is read-only and outside of any module of ours, and builds its
// tests with its own go.mod. What is in the work directory already is kept.
func (o *options) build(ctx context.Context) (version string, err error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", client)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("where is %s: %w", client, err)
	}
	var module struct{ Version, Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", fmt.Errorf("where is %s: %w", client, err)
	}
	if o.work, err = filepath.Abs(o.work); err != nil {
		return "", err
	}
	if _, err := os.Stat(o.source()); errors.Is(err, os.ErrNotExist) {
		if err := os.CopyFS(o.source(), os.DirFS(module.Dir)); err != nil {
			return "", err
		}
	}
	cmd = exec.CommandContext(ctx, "go", "test", "-c", "-o", o.binary(), "./pulsar")
	cmd.Dir, cmd.Env = o.source(), append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return module.Version, cmd.Run()
}

func (o *options) source() string { return filepath.Join(o.work, "client") }

func (o *options) binary() string { return filepath.Join(o.work, "pulsar.test") }
