package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
)

// PublishRates are the publish rates that namespaces give to each of their topics; nil takes one away.
type PublishRates interface {
	PublishRate(ctx context.Context, ns protocol.NamespaceName) (rate broker.Rate, ok bool, err error)
	SetPublishRate(ctx context.Context, ns protocol.NamespaceName, rate *broker.Rate) error
}

var errBadRate = errors.New("the body must be a JSON object with publishThrottlingRateInMsg and publishThrottlingRateInByte")

// publishRate is Pulsar's form; -1 is no limit.
type publishRate struct {
	Messages int64 `json:"publishThrottlingRateInMsg"`
	Bytes    int64 `json:"publishThrottlingRateInByte"`
}

func (h *handler) routePublishRates() {
	const path = "/admin/v2/namespaces/{tenant}/{namespace}/publishRate"
	h.mux.HandleFunc("GET "+path, withRates(h, func(p PublishRates, ns protocol.NamespaceName, w http.ResponseWriter, r *http.Request) error {
		rate, ok, err := p.PublishRate(r.Context(), ns)
		if err == nil && ok {
			writeJSON(w, http.StatusOK, publishRate{orNone(rate.Messages), orNone(rate.Bytes)})
			return nil
		}
		return answerDone(w, err)
	}))
	h.mux.HandleFunc("POST "+path, withRates(h, func(p PublishRates, ns protocol.NamespaceName, w http.ResponseWriter, r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return errBadBody
		}
		rate := publishRate{-1, -1}
		if json.Unmarshal(body, &rate) != nil {
			return errBadRate
		}
		return answerDone(w, p.SetPublishRate(r.Context(), ns, &broker.Rate{Messages: max(0, rate.Messages), Bytes: max(0, rate.Bytes)}))
	}))
	h.mux.HandleFunc("DELETE "+path, withRates(h, func(p PublishRates, ns protocol.NamespaceName, w http.ResponseWriter, r *http.Request) error {
		return answerDone(w, p.SetPublishRate(r.Context(), ns, nil))
	}))
}

// orNone writes no limit as Pulsar does.
func orNone(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

func withRates(h *handler, serve func(PublishRates, protocol.NamespaceName, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return with(h, func(p PublishRates, w http.ResponseWriter, r *http.Request) error {
		ns, err := protocol.ParseNamespaceName(r.PathValue("tenant") + "/" + r.PathValue("namespace"))
		if err != nil {
			return err
		}
		return serve(p, ns, w, r)
	})
}
