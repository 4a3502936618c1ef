package admin

import (
	"context"
	"io"
	"net/http"

	"geminga/pkg/protocol"
)

// Namespaces knows tenants and namespaces. Policies and tenant infos are JSON objects, empty when the client sent none.
type Namespaces interface {
	Tenants(ctx context.Context) ([]string, error)
	CreateTenant(ctx context.Context, tenant string, info []byte) error
	Namespaces(ctx context.Context, tenant string) ([]string, error)
	CreateNamespace(ctx context.Context, ns protocol.NamespaceName, policies []byte) error
	NamespacePolicies(ctx context.Context, ns protocol.NamespaceName) ([]byte, error)
	DeleteNamespace(ctx context.Context, ns protocol.NamespaceName) error
}

func (h *handler) routeNamespaces() {
	const tenants, namespaces = "/admin/v2/tenants", "/admin/v2/namespaces/{tenant}"
	h.mux.HandleFunc("GET "+tenants, h.withNamespaces(func(n Namespaces, w http.ResponseWriter, r *http.Request) error {
		return answer(w)(n.Tenants(r.Context()))
	}))
	h.mux.HandleFunc("PUT "+tenants+"/{tenant}", h.withNamespaces(func(n Namespaces, w http.ResponseWriter, r *http.Request) error {
		info, err := io.ReadAll(r.Body)
		if err != nil {
			return errBadBody
		}
		return answerDone(w, n.CreateTenant(r.Context(), r.PathValue("tenant"), info))
	}))
	h.mux.HandleFunc("GET "+namespaces, h.withNamespaces(func(n Namespaces, w http.ResponseWriter, r *http.Request) error {
		return answer(w)(n.Namespaces(r.Context(), r.PathValue("tenant")))
	}))
	h.mux.HandleFunc("GET "+namespaces+"/{namespace}", h.withNamespace(
		func(n Namespaces, ns protocol.NamespaceName, w http.ResponseWriter, r *http.Request) error {
			policies, err := n.NamespacePolicies(r.Context(), ns)
			if err == nil {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(policies)
			}
			return err
		}))
	h.mux.HandleFunc("PUT "+namespaces+"/{namespace}", h.withNamespace(
		func(n Namespaces, ns protocol.NamespaceName, w http.ResponseWriter, r *http.Request) error {
			policies, err := io.ReadAll(r.Body)
			if err != nil {
				return errBadBody
			}
			return answerDone(w, n.CreateNamespace(r.Context(), ns, policies))
		}))
	h.mux.HandleFunc("DELETE "+namespaces+"/{namespace}", h.withNamespace(
		func(n Namespaces, ns protocol.NamespaceName, w http.ResponseWriter, r *http.Request) error {
			return answerDone(w, n.DeleteNamespace(r.Context(), ns))
		}))
}

// withNamespaces serves a request within RequestTimeout.
func (h *handler) withNamespaces(serve func(Namespaces, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return with(h, serve)
}

// withNamespace is withNamespaces for a request about one namespace.
func (h *handler) withNamespace(
	serve func(Namespaces, protocol.NamespaceName, http.ResponseWriter, *http.Request) error,
) http.HandlerFunc {
	return h.withNamespaces(func(n Namespaces, w http.ResponseWriter, r *http.Request) error {
		ns, err := protocol.ParseNamespaceName(r.PathValue("tenant") + "/" + r.PathValue("namespace"))
		if err != nil {
			return err
		}
		return serve(n, ns, w, r)
	})
}

// answer writes a list, unless there is an error.
func answer(w http.ResponseWriter) func([]string, error) error {
	return func(names []string, err error) error {
		if err == nil {
			writeJSON(w, http.StatusOK, append([]string{}, names...))
		}
		return err
	}
}

// answerDone says that a change has been made, unless there is an error.
func answerDone(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
