package integration

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"geminga/integration/harness"
)

const configuration = "/admin/v2/brokers/configuration"

// ask sends a request to a daemon's HTTP port and returns status and body.
func ask(ctx context.Context, t *testing.T, method, addr, path string) (int, string) {
	t.Helper()
	req := must[*http.Request](t)(http.NewRequestWithContext(ctx, method, "http://"+addr+path, http.NoBody))
	resp := must[*http.Response](t)(http.DefaultClient.Do(req))
	defer resp.Body.Close()
	return resp.StatusCode, string(must[[]byte](t)(io.ReadAll(resp.Body)))
}

// runtimeSettings are the values in force on a broker.
func runtimeSettings(ctx context.Context, t *testing.T, broker *harness.Proc) map[string]string {
	t.Helper()
	code, body := ask(ctx, t, "GET", broker.HTTP, configuration+"/runtime")
	var values map[string]string
	if err := json.Unmarshal([]byte(body), &values); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s (%v)", code, body, err)
	}
	return values
}

// TestDynamicSettings: what is stored at one broker is in force on both, also after a restart, until it is removed.
func TestDynamicSettings(t *testing.T) {
	const name = "maxPublishRatePerTopicInMessages"
	ctx := deadline(t, 2*time.Minute)
	c := startCluster(t, harness.Options{
		Bookies: 1, Brokers: 2, BrokerSets: []string{name + "=7777", "gossipSecretKey=abcdefghijklmnop"},
		BookieSets: []string{"gossipSecretKey=abcdefghijklmnop"},
	})
	one, two := c.Brokers[0], c.Brokers[1]
	inForce := func(what, want string) {
		t.Helper()
		for _, b := range c.Brokers {
			for got := ""; got != want; {
				if ctx.Err() != nil {
					t.Fatalf("%s: %s has %s=%s, want %s", what, b.Name, name, got, want)
				}
				got = runtimeSettings(ctx, t, b)[name]
			}
		}
	}
	inForce("at the start", "7777")
	if key := runtimeSettings(ctx, t, one)["gossipSecretKey"]; key != "*****" {
		t.Errorf("the secret shows as %q", key)
	}
	if code, body := ask(ctx, t, "GET", one.HTTP, configuration); code != 200 || !strings.Contains(body, `"`+name+`"`) {
		t.Errorf("%d %s", code, body)
	}
	for path, want := range map[string]string{
		name + "/many":          "Invalid dynamic-config value",
		"brokerServicePort/1":   "Can't update non-dynamic configuration",
		"brokerServicePrt/6650": "Can't update non-dynamic configuration",
	} {
		if code, body := ask(ctx, t, "POST", one.HTTP, configuration+"/"+path); code != http.StatusPreconditionFailed || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := ask(ctx, t, "POST", one.HTTP, configuration+"/"+name+"/500"); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, body)
	}
	inForce("stored", "500")
	if err := two.Term(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	restart(ctx, t, two)
	inForce("after a restart", "500")
	if _, body := ask(ctx, t, "GET", two.HTTP, configuration+"/values"); strings.TrimSpace(body) != `{"`+name+`":"500"}` {
		t.Errorf("stored: %s", body)
	}
	if code, body := ask(ctx, t, "DELETE", two.HTTP, configuration+"/"+name); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, body)
	}
	inForce("removed", "7777")
}
