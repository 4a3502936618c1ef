package admin

import (
	"context"
	"net/http"

	"geminga/pkg/protocol"
)

// lookupAnswer is Pulsar's LookupData.
type lookupAnswer struct {
	BrokerURL    string `json:"brokerUrl"`
	BrokerURLTLS string `json:"brokerUrlTls"`
	HTTPURL      string `json:"httpUrl"`
	HTTPURLTLS   string `json:"httpUrlTls"`
	NativeURL    string `json:"nativeUrl"`
}

// serveLookup names the owner. A broker that should become the owner is asked itself, by a redirect.
func (h *handler) serveLookup(w http.ResponseWriter, r *http.Request) {
	h.withTopic(w, r, func(ctx context.Context, name protocol.TopicName) error {
		if _, ok := h.opts.Broker.(Locator); !ok {
			return errNotYet
		}
		at, err := h.locate(ctx, name, authoritative(r))
		switch {
		case err != nil:
			return err
		case !at.Owned:
			return redirect(w, r, at)
		}
		writeJSON(w, http.StatusOK, lookupAnswer{
			BrokerURL: at.ServiceURL, BrokerURLTLS: at.TLSURL, HTTPURL: at.WebURL, NativeURL: at.ServiceURL,
		})
		return nil
	})
}
