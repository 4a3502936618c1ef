package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// What broker.Directory has.
var (
	_ Broker  = broker.Directory{}
	_ Lister  = broker.Directory{}
	_ Counter = broker.Directory{}
	_ Locator = broker.Directory{}
)

// plainBroker has stats and nothing else.
type plainBroker struct{}

func (plainBroker) TopicStats(context.Context, protocol.TopicName) (topic.Stats, error) {
	return topic.Stats{}, nil
}

// fakeBroker serves orders, and parts with its partitions.
type fakeBroker struct{ partitions int }

func (f *fakeBroker) TopicStats(_ context.Context, name protocol.TopicName) (topic.Stats, error) {
	if name.Local != "orders" && name.Local != "a/b c" {
		return topic.Stats{}, fmt.Errorf("%s: %w", name, broker.ErrNoSuchTopic)
	}
	return topic.Stats{MsgInCounter: 7, Subscriptions: map[string]*topic.SubscriptionStats{"s": {MsgBacklog: 3}}}, nil
}

func (f *fakeBroker) NamespaceTopics(_ context.Context, ns protocol.NamespaceName) ([]string, error) {
	switch ns.String() {
	case "public/default":
		return []string{"persistent://public/default/orders"}, nil
	case "public/slow":
		return nil, context.DeadlineExceeded
	}
	return nil, nil
}

func (f *fakeBroker) Partitions(context.Context, protocol.TopicName) (int, error) {
	return f.partitions, nil
}

func (f *fakeBroker) Locate(_ context.Context, name protocol.TopicName, _ bool) (broker.Location, error) {
	if name.Local == "broken" {
		return broker.Location{}, errors.New("boom")
	}
	return broker.Location{
		Here: true, Owned: true, ServiceURL: "pulsar://b1:6650", TLSURL: "pulsar+ssl://b1:6651", WebURL: "http://b1:8080",
	}, nil
}

// partitioner can make partitions, too.
type partitioner struct{ fakeBroker }

func (p *partitioner) CreatePartitions(_ context.Context, _ protocol.TopicName, n int) error {
	if p.partitions > 0 {
		return broker.ErrTopicExists
	}
	p.partitions = n
	return nil
}

func (p *partitioner) UpdatePartitions(_ context.Context, _ protocol.TopicName, n int) error {
	p.partitions = n
	return nil
}

func newHandler(t *testing.T, o Options) http.Handler {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func do(h http.Handler, method, path, body string) (int, string) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	return rec.Code, strings.TrimSpace(rec.Body.String())
}

func brokerOptions(b Broker) Options {
	return Options{
		Broker: b, Clusters: []string{"standalone"},
		Health:  func(context.Context) error { return nil },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "figures") }),
	}
}

func TestBrokerPaths(t *testing.T) {
	h := newHandler(t, brokerOptions(&partitioner{}))
	const orders = "/admin/v2/persistent/public/default/orders"
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/readyz", "", 200, `{"ready":true,"reasons":[]}`},
		{"GET", "/status.html", "", 200, "ok"},
		{"GET", "/metrics", "", 200, "figures"},
		{"GET", "/metrics/", "", 200, "figures"},
		{"GET", "/admin/v2/brokers/health?topicVersion=V2", "", 200, "ok"},
		{"GET", "/admin/v2/brokers/ready", "", 200, "ok"},
		{"GET", "/admin/v2/clusters", "", 200, `["standalone"]`},
		{"GET", "/admin/v2/persistent/public/default", "", 200, `["persistent://public/default/orders"]`},
		{"GET", "/admin/v2/namespaces/public/default/topics", "", 200, `["persistent://public/default/orders"]`},
		{"GET", "/admin/v2/persistent/public/empty", "", 200, `[]`},
		{"GET", "/admin/v2/persistent/public/slow", "", 503, `{"reason":"context deadline exceeded"}`},
		{"GET", "/admin/v2/persistent/public/de$ault", "", 412, `{"reason":`},
		{"GET", orders + "/stats", "", 200, `"msgInCounter":7`},
		{"GET", orders + "/stats", "", 200, `"msgBacklog":3`},
		{"GET", orders + "x/stats", "", 404, `{"reason":"persistent://public/default/ordersx: topic does not exist"}`},
		{"GET", "/admin/v2/persistent/public/default/%20/../../x/stats", "", 404, `{"reason":`},
		{"GET", orders + "/partitions", "", 200, `{"partitions":0,"deleted":false}`},
		{"PUT", orders + "/partitions", "4", 204, ""},
		{"PUT", orders + "/partitions", "4", 409, `{"reason":"This topic already exists"}`},
		{"POST", orders + "/partitions", `{"partitions": 6, "properties": {"a": "b"}}`, 204, ""},
		{"GET", orders + "/partitions", "", 200, `{"partitions":6,"deleted":false}`},
		{"POST", orders + "/partitions", "8", 204, ""},
		{"PUT", orders + "/partitions", `{"properties": {}}`, 412, `{"reason":"the number of partitions`},
		{"PUT", orders, "{}", 501, `{"reason":"not supported yet"}`},
		{"GET", orders + "/partitions?checkAllowAutoCreation=true", "", 200, `{"partitions":8,"deleted":false}`},
		{"PUT", orders + "/partitions", "0", 412, `{"reason":"the number of partitions`},
		{"PUT", orders + "/partitions", "many", 412, `{"reason":"the number of partitions`},
		{"PUT", orders + "/partitions", strings.Repeat(" ", maxBody) + "3", 412, `{"reason":"the number of partitions`},
		{"GET", "/lookup/v2/topic/persistent/public/default/orders", "", 200,
			`{"brokerUrl":"pulsar://b1:6650","brokerUrlTls":"pulsar+ssl://b1:6651","httpUrl":"http://b1:8080","httpUrlTls":"","nativeUrl":"pulsar://b1:6650"}`},
		{"GET", "/lookup/v2/topic/persistent/public/default/broken", "", 500, `{"reason":"boom"}`},
		{"GET", "/lookup/v2/topic/non-persistent/public/default/orders", "", 200, `{"brokerUrl":"pulsar://b1:6650"`},
		{"GET", "/lookup/v2/topic/volatile/public/default/orders", "", 404, `{"reason":"no such path: /lookup`},
		{"GET", "/admin/v2/non-persistent/public/default/orders/stats", "", 200, `"msgInCounter":7`},
		{"GET", "/admin/v2/non-persistent/public/default/x/stats", "", 404, `{"reason":"non-persistent://public/default/x: topic does not`},
		{"PUT", "/admin/v2/non-persistent/public/default/orders", "", 405, `{"reason":`},
		{"GET", "/", "", 404, `{"reason":"no such path: /"}`},
		{"GET", "/admin/v2/unknown", "", 404, `{"reason":"no such path: /admin/v2/unknown"}`},
		{"DELETE", orders + "/stats", "", 405, `{"reason":"method DELETE is not supported here"}`},
		{"POST", "/healthz", "", 405, `{"reason":`},
		{"GET", "/debug/pprof/", "", 404, `{"reason":`},
		{"GET", "/status", "", 404, `{"reason":`},
	} {
		got, body := do(h, c.method, c.path, c.body)
		if got != c.code || !strings.Contains(body, c.want) || (c.want == "" && body != "") {
			t.Errorf("%s %.80s: %d %s\nwant %d %s", c.method, c.path, got, body, c.code, c.want)
		}
		if strings.HasPrefix(c.want, "{") && !json.Valid([]byte(body)) {
			t.Errorf("%s %s: no JSON: %s", c.method, c.path, body)
		}
	}
}

func TestEscapedSlashInTopic(t *testing.T) {
	h := newHandler(t, brokerOptions(&fakeBroker{}))
	got, body := do(h, "GET", "/admin/v2/persistent/public/default/a%2Fb%20c/stats", "")
	// Whether such a name is valid is for the protocol package to say; the path at least must reach it.
	if name, err := protocol.ParseTopicName("persistent://public/default/a/b c"); err == nil && name.Local == "a/b c" && got != 200 {
		t.Errorf("%d %s", got, body)
	} else if err != nil && got != 412 {
		t.Errorf("%d %s", got, body)
	}
}

func TestWhatABrokerDoesNotHave(t *testing.T) {
	h := newHandler(t, brokerOptions(plainBroker{}))
	for path, method := range map[string]string{
		"/admin/v2/persistent/a/b/c/partitions":  "PUT",
		"/admin/v2/persistent/a/b/c/partitions?": "GET",
		"/admin/v2/persistent/a/b":               "GET",
		"/lookup/v2/topic/persistent/a/b/c":      "GET",
	} {
		if got, body := do(h, method, path, "3"); got != 501 || body != `{"reason":"not supported yet"}` {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
	if got, body := do(h, "GET", "/admin/v2/persistent/a/b/c/stats", ""); got != 200 {
		t.Errorf("%d %s", got, body)
	}
}

func TestBookieHasNoBrokerPaths(t *testing.T) {
	h := newHandler(t, Options{
		Status: func(context.Context) (any, error) { return map[string]int{"groups": 3}, nil },
		Pprof:  true,
	})
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/status": 200, "/debug/pprof/": 200, "/metrics": 404, "/admin/v2/clusters": 404,
	} {
		if got, body := do(h, "GET", path, ""); got != want {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
}

func TestNotReady(t *testing.T) {
	o := brokerOptions(&fakeBroker{})
	o.CheckTimeout = 20 * time.Millisecond
	release := make(chan struct{})
	returned := make(chan struct{}, 10)
	o.Ready = []Check{
		{"fine", func(context.Context) error { return nil }},
		{"bookies", func(context.Context) error { return errors.New("no quorum: 1 of 3 answer") }},
		{"deaf", func(context.Context) error { <-release; returned <- struct{}{}; return nil }},
	}
	o.Health = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	h := newHandler(t, o)
	want := `{"ready":false,"reasons":[{"check":"bookies","reason":"no quorum: 1 of 3 answer"},{"check":"deaf","reason":"` + errTooSlow.Error() + `"}]}`
	if got, body := do(h, "GET", "/readyz", ""); got != 503 || body != want {
		t.Errorf("%d %s", got, body)
	}
	for _, path := range []string{"/status.html", "/admin/v2/brokers/ready"} {
		if got, body := do(h, "GET", path, ""); got != 503 || body != `{"reason":"bookies: no quorum: 1 of 3 answer"}` {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
	if got, _ := do(h, "GET", "/admin/v2/brokers/health", ""); got != 503 {
		t.Errorf("health: %d", got)
	}
	if got, body := do(h, "GET", "/healthz", ""); got != 200 {
		t.Errorf("liveness depends on others: %d %s", got, body)
	}
	close(release)
	<-returned // the one check that ran: the others waited for it and gave up
	if len(returned) != 0 {
		t.Error("a hanging check was started again")
	}
}

func TestServer(t *testing.T) {
	o := brokerOptions(&fakeBroker{})
	o.Address = "127.0.0.1:0"
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Address = s.Addr().String()
	if second, err := Open(o); err == nil || !errors.As(err, new(*net.OpError)) {
		t.Errorf("port taken: %v %v", second, err)
	}
	resp, err := http.Get("http://" + s.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || string(body) != "ok" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for _, d := range []time.Duration{s.http.ReadHeaderTimeout, s.http.ReadTimeout, s.http.WriteTimeout, s.http.IdleTimeout} {
		if d <= 0 {
			t.Error("a timeout is missing")
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + s.Addr().String() + "/healthz"); err == nil {
		t.Error("still listening")
	}
}

func TestBadOptions(t *testing.T) {
	if _, err := New(Options{Ready: []Check{{}}, CheckTimeout: -1}); err == nil {
		t.Error("accepted")
	}
}
