package integration

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

// TestDamageNobodyCanRepairIsSaid turns a bit of a stored message where there is one bookie only. The process runs, says what
// is lost on its readiness endpoint, also after another start, and does not say so before.
func TestDamageNobodyCanRepairIsSaid(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	dir := workDir(t)
	c := startCluster(t, harness.Options{Dir: dir, Bookies: 1, Brokers: 1})
	client := newClient(t, c.URLs[0])
	producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{Topic: topicName(t), DisableBatching: true}))
	for i := range 50 {
		must[pulsar.MessageID](t)(producer.Send(ctx, &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "message %d of many", i)}))
	}
	waitStatus(ctx, t, c.Bookies[0].HTTP, http.StatusOK)
	c.Bookies[0].Kill()
	flipIn(t, filepath.Join(dir, "bookie-1"), "message 20 of many")
	for range 2 {
		if err := c.Bookies[0].Start(); err != nil {
			t.Fatal(err)
		}
		waitSaid(ctx, t, c.Bookies[0].HTTP, `"entries"`, "group 1 cannot be opened: there is no other replica")
		if err := c.Bookies[0].Term(20 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// flipIn turns a bit of some bytes in the journal below a directory, which have to be there.
func flipIn(t *testing.T, dir, what string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".seg" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := bytes.Index(b, []byte(what))
		if at < 0 {
			return nil
		}
		found++
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt([]byte{b[at] ^ 1}, int64(at))
		return err
	})
	if err != nil || found == 0 {
		t.Fatalf("%q is in %d files: %v", what, found, err)
	}
}

// waitSaid polls the readiness endpoint until it says no, with all of some words.
func waitSaid(ctx context.Context, t *testing.T, addr string, words ...string) {
	t.Helper()
	t.Log(waitReadyz(ctx, t, addr, fmt.Sprintf("503 with %q", words), func(status int, body string) bool {
		missing := func(word string) bool { return !strings.Contains(body, word) }
		return status == http.StatusServiceUnavailable && !slices.ContainsFunc(words, missing)
	}))
}
