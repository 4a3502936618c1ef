package admin

import (
	"context"
	"testing"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
)

var _ PublishRates = broker.Directory{}

type ratedBroker struct {
	plainBroker
	rate *broker.Rate
}

func (b *ratedBroker) PublishRate(_ context.Context, ns protocol.NamespaceName) (broker.Rate, bool, error) {
	if ns.Tenant != "public" {
		return broker.Rate{}, false, broker.ErrNoNamespace
	}
	if b.rate == nil {
		return broker.Rate{}, false, nil
	}
	return *b.rate, true, nil
}

func (b *ratedBroker) SetPublishRate(_ context.Context, _ protocol.NamespaceName, rate *broker.Rate) error {
	b.rate = rate
	return nil
}

// Paths, codes and bodies are those of pulsar-admin namespaces {get,set,remove}-publish-rate.
func TestPublishRate(t *testing.T) {
	h := newHandler(t, brokerOptions(&ratedBroker{}))
	const path = "/admin/v2/namespaces/public/default/publishRate"
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", path, "", 204, ""},
		{"POST", path, `{"publishThrottlingRateInMsg":500}`, 204, ""},
		{"GET", path, "", 200, `{"publishThrottlingRateInMsg":500,"publishThrottlingRateInByte":-1}`},
		{"POST", path, `{"publishThrottlingRateInMsg":-1,"publishThrottlingRateInByte":9}`, 204, ""},
		{"GET", path, "", 200, `{"publishThrottlingRateInMsg":-1,"publishThrottlingRateInByte":9}`},
		{"POST", path, `500`, 400, `{"reason":"` + errBadRate.Error() + `"}`},
		{"DELETE", path, "", 204, ""},
		{"GET", path, "", 204, ""},
		{"GET", "/admin/v2/namespaces/acme/x/publishRate", "", 404, `{"reason":"Namespace does not exist"}`},
	} {
		if code, body := do(h, c.method, c.path, c.body); code != c.code || body != c.want {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, code, body, c.code, c.want)
		}
	}
}
