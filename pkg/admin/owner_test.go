package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// placed is a broker that serves the topics whose names say so: here, there, or nowhere yet, which this broker takes when
// it is told that it should.
type placed struct {
	keeper
	other string // WebURL of the other broker
}

func (p *placed) Locate(_ context.Context, n protocol.TopicName, authoritative bool) (broker.Location, error) {
	switch {
	case strings.HasPrefix(n.Local, "here"), strings.HasPrefix(n.Local, "free") && authoritative:
		return broker.Location{Here: true, Owned: true, ServiceURL: "pulsar://me", WebURL: "http://me"}, nil
	case strings.HasPrefix(n.Local, "mute"):
		return broker.Location{Owned: true, ServiceURL: "pulsar://other"}, nil
	}
	return broker.Location{Owned: !strings.HasPrefix(n.Local, "free"), ServiceURL: "pulsar://other", WebURL: p.other}, nil
}

func (p *placed) CreateTopic(_ context.Context, n protocol.TopicName) error {
	return p.note("create %s", n.Local)
}

func (p *placed) TopicStats(_ context.Context, n protocol.TopicName) (topic.Stats, error) {
	return topic.Stats{}, p.note("stats %s", n.Local)
}

func newPlaced(t *testing.T) (*placed, http.Handler) {
	p := &placed{other: "http://other:8080"}
	return p, newHandler(t, brokerOptions(p))
}

func TestRequestsGoToTheOwner(t *testing.T) {
	p, h := newPlaced(t)
	const root, other = "/admin/v2/persistent/public/default/", "http://other:8080"
	for _, path := range []string{
		"PUT here", "DELETE here?force=true", "GET here/stats", "GET here/internalStats", "GET here/subscriptions",
		"DELETE here/subscription/s", "GET here/ledger/1/entry/2",
	} {
		method, rest, _ := strings.Cut(path, " ")
		p.asked = nil
		if code, body := do(h, method, root+rest, ""); code/100 != 2 {
			t.Errorf("%s: %d %s", path, code, body)
		}
		p.asked = nil
		for name, query := range map[string]string{"there": "", "free": "authoritative=true"} {
			rec := httptest.NewRecorder()
			target := root + strings.Replace(rest, "here", name, 1)
			h.ServeHTTP(rec, httptest.NewRequest(method, target, nil))
			want := other + target
			if query != "" {
				sep := map[bool]string{false: "?", true: "&"}[strings.Contains(want, "?")]
				want = strings.Replace(want+sep+query, "?force=true&authoritative=true", "?authoritative=true&force=true", 1)
			}
			if got := rec.Header().Get("Location"); rec.Code != http.StatusTemporaryRedirect || got != want {
				t.Errorf("%s %s: %d to %q, want %q", method, target, rec.Code, got, want)
			}
		}
		if len(p.asked) > 0 {
			t.Errorf("%s: asked %q of a topic that is elsewhere", path, p.asked)
		}
	}
	for path, want := range map[string]int{"free/stats?authoritative=true": 200, "mute/stats": 503, "there/partitions": 200} {
		if code, body := do(h, "GET", root+path, ""); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestLookupNamesTheOwner(t *testing.T) {
	_, h := newPlaced(t)
	const root = "/lookup/v2/topic/persistent/public/default/"
	for path, want := range map[string]string{
		"here":                    `"httpUrl":"http://me"`,
		"there":                   `"httpUrl":"http://other:8080"`,
		"free?authoritative=true": `"httpUrl":"http://me"`,
	} {
		if code, body := do(h, "GET", root+path, ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := do(h, "GET", root+"free", ""); code != http.StatusTemporaryRedirect {
		t.Errorf("a topic that another broker should take: %d", code)
	}
}

// The partitions of a topic are deleted wherever they are, and what another broker says is passed on.
func TestDeletePartitionsElsewhere(t *testing.T) {
	p, h := newPlaced(t)
	other := &placed{}
	there := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := brokerOptions(other)
		r.URL.Path = strings.Replace(r.URL.Path, "there", "here", 1)
		r.URL.RawPath = ""
		newHandler(t, o).ServeHTTP(w, r)
	})
	server := httptest.NewServer(there)
	defer server.Close()
	p.other = server.URL
	const path = "/admin/v2/persistent/public/default/there/partitions?force=true"
	for _, c := range []struct {
		fail error
		code int
		want string
	}{
		{nil, 204, ""},
		{topic.ErrInUse, 412, topic.ErrInUse.Error()},
		{broker.ErrNoSuchTopic, 404, broker.ErrNoSuchTopic.Error()},
	} {
		other.asked, other.fail = nil, c.fail
		code, body := do(h, "DELETE", path, "")
		if asked := strings.Join(other.asked, ", "); code != c.code || !strings.Contains(body, c.want) || asked != "delete here-partition-0 true" {
			t.Errorf("%d %s, asked %q", code, body, asked)
		}
	}
	if code, body := do(h, "DELETE", strings.Replace(path, "there", "mute", 1), ""); code != 503 || !strings.Contains(body, errNoWebURL.Error()) {
		t.Errorf("broker without HTTP: %d %s", code, body)
	}
	server.Close()
	if code, body := do(h, "DELETE", path, ""); code != 503 {
		t.Errorf("broker gone: %d %s", code, body)
	}
}
