package admin

import (
	"context"
	"net/http"
)

// Configuration are the settings that the cluster stores for all brokers.
type Configuration interface {
	DynamicSettings() ([]string, error)
	RuntimeSettings() (map[string]string, error)
	StoredSettings(ctx context.Context) (map[string]string, error)
	StoreSetting(ctx context.Context, name, value string) error
	RemoveSetting(ctx context.Context, name string) error
}

func (h *handler) routeConfiguration() {
	const path = "/admin/v2/brokers/configuration"
	h.mux.HandleFunc("GET "+path, with(h, func(c Configuration, w http.ResponseWriter, _ *http.Request) error {
		return answer(w)(c.DynamicSettings())
	}))
	h.mux.HandleFunc("GET "+path+"/runtime", with(h, func(c Configuration, w http.ResponseWriter, _ *http.Request) error {
		return answerMap(w)(c.RuntimeSettings())
	}))
	h.mux.HandleFunc("GET "+path+"/values", with(h, func(c Configuration, w http.ResponseWriter, r *http.Request) error {
		return answerMap(w)(c.StoredSettings(r.Context()))
	}))
	h.mux.HandleFunc("POST "+path+"/{name}/{value}", with(h, func(c Configuration, w http.ResponseWriter, r *http.Request) error {
		return answerDone(w, c.StoreSetting(r.Context(), r.PathValue("name"), r.PathValue("value")))
	}))
	h.mux.HandleFunc("DELETE "+path+"/{name}", with(h, func(c Configuration, w http.ResponseWriter, r *http.Request) error {
		return answerDone(w, c.RemoveSetting(r.Context(), r.PathValue("name")))
	}))
}

// with serves requests, within RequestTimeout, by a part of the Broker that it may not have.
func with[T any](h *handler, serve func(T, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		part, ok := h.opts.Broker.(T)
		if !ok {
			h.fail(w, r, errNotYet)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.opts.RequestTimeout)
		defer cancel()
		if err := serve(part, w, r.WithContext(ctx)); err != nil {
			h.fail(w, r, err)
		}
	}
}

// answerMap writes names and values, unless there is an error.
func answerMap(w http.ResponseWriter) func(map[string]string, error) error {
	return func(values map[string]string, err error) error {
		if err == nil {
			writeJSON(w, http.StatusOK, values)
		}
		return err
	}
}
