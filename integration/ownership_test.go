package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"geminga/integration/harness"
)

// TestBrokersAgree: every broker names the same owner of a topic, whichever is asked first, also when only some of them
// are told which cluster the bookies must be of. Brokers that do not see each other find no owner, or take topics from
// each other for ever.
func TestBrokersAgree(t *testing.T) {
	ctx := deadline(t, time.Minute)
	c := startCluster(t, harness.Options{Bookies: 1, Brokers: 1, BrokerSets: []string{"bookieClusterId=harness"}})
	second := must[*harness.Proc](t)(c.NewBroker())
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Kill)
	if err := second.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		topic := fmt.Sprintf("%s-%d", topicName(t), i)
		first, then := c.Brokers[0], second
		if i%2 == 1 {
			first, then = then, first
		}
		if a, b := ownerAfter(ctx, t, first, topic), ownerAfter(ctx, t, then, topic); a != b {
			t.Fatalf("%s: %s names %s, %s names %s", topic, first.Name, a, then.Name, b)
		}
	}
}

// ownerAfter asks one broker for the owner until it names one.
func ownerAfter(ctx context.Context, t *testing.T, p *harness.Proc, topic string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := "http://" + p.HTTP + "/lookup/v2/topic/" + strings.Replace(topic, "://", "/", 1)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
		if resp, err := http.DefaultClient.Do(req); err == nil {
			var answer struct{ BrokerURL string }
			err := json.NewDecoder(resp.Body).Decode(&answer)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK && answer.BrokerURL != "" {
				return answer.BrokerURL
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s names no owner of %s: %s", p.Name, topic, p.Tail(3))
		}
	}
}
