package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

var (
	errBusy     = errors.New("the check before is still running")
	errTooSlow  = errors.New("no answer in time")
	errNotYet   = errors.New("not supported yet")
	errNoPath   = errors.New("no such path")
	errBadBody  = errors.New("the body is too long or did not come")
	errBadEntry = errors.New("ledger and entry must be numbers")
	errBadCount = errors.New("the number of partitions must be a JSON number from 1 to 10000")
)

// codes is the table from errors to HTTP status, as Pulsar answers them; the first match counts.
func codes() []struct {
	err  error
	code int
} {
	return []struct {
		err  error
		code int
	}{
		{broker.ErrNoSuchTopic, http.StatusNotFound},
		{broker.ErrTopicExists, http.StatusConflict},
		{broker.ErrFewerPartitions, http.StatusConflict},
		{broker.ErrPartitioned, http.StatusConflict},
		{broker.ErrNoTenant, http.StatusNotFound},
		{broker.ErrTenantExists, http.StatusConflict},
		{broker.ErrNoNamespace, http.StatusNotFound},
		{broker.ErrNamespaceExists, http.StatusConflict},
		{broker.ErrNamespaceNotEmpty, http.StatusConflict},
		{broker.ErrBadPolicies, http.StatusBadRequest},
		{broker.ErrPolicyNotSupported, http.StatusPreconditionFailed},
		{broker.ErrNotDynamic, http.StatusPreconditionFailed},
		{broker.ErrBadSetting, http.StatusPreconditionFailed},
		{topic.ErrNoEntry, http.StatusNotFound},
		{topic.ErrNoSubscription, http.StatusNotFound},
		{topic.ErrInUse, http.StatusPreconditionFailed},
		{topic.ErrConsumerBusy, http.StatusPreconditionFailed},
		{errBadBody, http.StatusBadRequest},
		{errBadRate, http.StatusBadRequest},
		{errBadEntry, http.StatusPreconditionFailed},
		{protocol.ErrBadTopicName, http.StatusPreconditionFailed},
		{protocol.ErrBadNamespace, http.StatusPreconditionFailed},
		{errBadCount, http.StatusPreconditionFailed},
		{errNotYet, http.StatusNotImplemented},
		{topic.ErrNotSupported, http.StatusNotImplemented},
		{topic.ErrNotAllowed, http.StatusMethodNotAllowed},
		{topic.ErrNotReady, http.StatusServiceUnavailable},
		{errNoWebURL, http.StatusServiceUnavailable},
		{context.DeadlineExceeded, http.StatusServiceUnavailable},
		{context.Canceled, http.StatusServiceUnavailable},
	}
}

// code is the HTTP status of an error: another broker's, what the table says, or 500.
func (h *handler) code(err error) int {
	var elsewhere *elsewhereError
	if errors.As(err, &elsewhere) {
		return elsewhere.code
	}
	if broker.Transient(err) {
		return http.StatusServiceUnavailable
	}
	for _, c := range h.codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return http.StatusInternalServerError
}

// fail answers an error in Pulsar's shape.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := h.code(err)
	if code == http.StatusInternalServerError {
		h.opts.Logger.Warn("admin request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	writeReason(w, code, err.Error())
}

// reasonIn reads what writeReason wrote, or takes the text as it is.
func reasonIn(body []byte) string {
	var answer struct{ Reason string }
	if json.Unmarshal(body, &answer) == nil && answer.Reason != "" {
		return answer.Reason
	}
	return string(body)
}

func writeReason(w http.ResponseWriter, code int, reason string) {
	writeJSON(w, code, struct {
		Reason string `json:"reason"`
	}{reason})
}

// writeJSON answers v. A failure to write is the client's: there is nobody left to tell.
func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"reason":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}
