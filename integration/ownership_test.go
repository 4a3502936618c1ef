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

// TestAnyBrokerAdministers: a topic is made, looked at and deleted by way of brokers that do not serve it, and so is a
// partitioned topic whose partitions both brokers serve.
func TestAnyBrokerAdministers(t *testing.T) {
	ctx := deadline(t, time.Minute)
	c := startCluster(t, harness.Options{Bookies: 1, Brokers: 2})
	for _, p := range c.Brokers {
		ownerAfter(ctx, t, p, topicName(t)) // until it knows the other
	}
	request := func(p *harness.Proc, method, topic, rest, body string) int {
		url := "http://" + p.HTTP + "/admin/v2/" + strings.Replace(topic, "://", "/", 1) + rest
		req := must[*http.Request](t)(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))
		resp := must[*http.Response](t)(http.DefaultClient.Do(req))
		resp.Body.Close()
		return resp.StatusCode
	}
	want := func(code int, p *harness.Proc, method, topic, rest, body string) {
		t.Helper()
		if got := request(p, method, topic, rest, body); got != code {
			t.Errorf("%s %s%s at %s: %d instead of %d", method, topic, rest, p.Name, got, code)
		}
	}
	for i := range 8 {
		topic := fmt.Sprintf("%s-%d", topicName(t), i)
		want(204, c.Brokers[i%2], "PUT", topic, "", "")
		for _, p := range c.Brokers {
			want(409, p, "PUT", topic, "", "")
			want(200, p, "GET", topic, "/stats", "")
			want(200, p, "GET", topic, "/subscriptions", "")
		}
		want(204, c.Brokers[i/2%2], "DELETE", topic, "", "")
		want(404, c.Brokers[i%2], "GET", topic, "/stats", "")
	}
	topic := topicName(t) + "-partitioned"
	want(204, c.Brokers[0], "PUT", topic, "/partitions", "16")
	owners := map[string]bool{}
	for i := range 16 {
		partition := fmt.Sprintf("%s-partition-%d", topic, i)
		want(204, c.Brokers[i%2], "PUT", partition, "", "")
		owners[ownerAfter(ctx, t, c.Brokers[0], partition)] = true
	}
	if len(owners) != 2 {
		t.Errorf("all partitions are at %v", owners)
	}
	want(204, c.Brokers[1], "DELETE", topic, "/partitions", "")
	want(404, c.Brokers[0], "GET", topic+"-partition-0", "/stats", "")
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
