package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
)

// A request about one topic is served by the broker that serves the topic. Any other answers as Pulsar does, with 307 and
// the place: clients repeat the request there, method and body included. To a broker that does not own the topic yet the
// redirect says that it should (authoritative=true), so there are at most two.

var errNoWebURL = errors.New("the broker that serves the topic has no HTTP address")

const queryAuthoritative = "authoritative"

func authoritative(r *http.Request) bool { return r.URL.Query().Get(queryAuthoritative) == "true" }

// withOwned is withTopic on the broker that serves the topic.
func (h *handler) withOwned(w http.ResponseWriter, r *http.Request, serve func(context.Context, protocol.TopicName) error) {
	h.withTopic(w, r, func(ctx context.Context, name protocol.TopicName) error {
		at, err := h.locate(ctx, name, authoritative(r))
		switch {
		case err != nil:
			return err
		case at.Here:
			return serve(ctx, name)
		}
		return redirect(w, r, at)
	})
}

func (h *handler) locate(ctx context.Context, name protocol.TopicName, authoritative bool) (broker.Location, error) {
	if l, ok := h.opts.Broker.(Locator); ok {
		return l.Locate(ctx, name, authoritative)
	}
	return broker.Location{Here: true, Owned: true}, nil
}

// redirect sends a request to where its topic is.
func redirect(w http.ResponseWriter, r *http.Request, at broker.Location) error {
	target, err := url.Parse(at.WebURL)
	if err != nil || target.Host == "" {
		return fmt.Errorf("%w: %s", errNoWebURL, at.ServiceURL)
	}
	to := *r.URL
	to.Scheme, to.Host = target.Scheme, target.Host
	query := to.Query()
	query.Del(queryAuthoritative)
	if !at.Owned {
		query.Set(queryAuthoritative, "true")
	}
	to.RawQuery = query.Encode()
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

// elsewhereError is how another broker answered.
type elsewhereError struct {
	code   int
	reason string
}

func (e *elsewhereError) Error() string { return e.reason }

// deleteAnywhere deletes a topic, here or at the broker that serves it.
func (h *handler) deleteAnywhere(ctx context.Context, s Stored, name protocol.TopicName, force bool) error {
	at, err := h.locate(ctx, name, false)
	switch {
	case err != nil:
		return err
	case at.Here:
		return s.DeleteTopic(ctx, name, force)
	case at.WebURL == "":
		return fmt.Errorf("%w: %s", errNoWebURL, at.ServiceURL)
	}
	target := fmt.Sprintf("%s/admin/v2/%s/%s/%s/%s?force=%t&%s=%t", at.WebURL, name.Domain, name.Tenant,
		name.NamespaceName().Local(), url.PathEscape(name.Local), force, queryAuthoritative, !at.Owned)
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, target, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := h.opts.Client.Do(req)
	if err != nil {
		return &elsewhereError{http.StatusServiceUnavailable, fmt.Sprintf("delete %s: %v", name, err)}
	}
	defer resp.Body.Close()
	switch reason, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)); {
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w", name, broker.ErrNoSuchTopic)
	case resp.StatusCode/100 != 2:
		return &elsewhereError{resp.StatusCode, fmt.Sprintf("delete %s at %s: %s", name, at.WebURL, reasonIn(reason))}
	}
	return nil
}
