package broker

import (
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// LOOKUP tells which broker serves a topic. Connect: this one, which owns the topic's bundle now. Redirect: another,
// which is asked again and with authoritative set takes the bundle itself if nobody has it, so there are few hops.
// Failed: try again; the code is MetadataError, since on ServiceNotReady clients close the whole connection, or
// TooManyRequests when too many lookups are under way.
func handleLookup(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.LookupTopic
	request, began := req.GetRequestId(), time.Now()
	name, err := protocol.ParseTopicName(req.GetTopic())
	if err != nil {
		c.located(request, place{}, err)
		return nil
	}
	if err := c.beganLookup(); err != nil {
		c.located(request, place{}, err)
		return nil
	}
	c.server.owners.lookup(name, req.GetAuthoritative(), func(p place, err error) {
		c.server.lookups.leave()
		c.server.metrics.lookup(p, err, time.Since(began))
		c.post(func() {
			c.ended()
			c.located(request, p, err)
		})
	})
	return nil
}

// place is the answer to a lookup.
type place struct {
	bundle *bundle // set: it is here
	owned  bool    // by the broker below, as its record says; else that one is only the candidate
	url    string  // ask there
	urlTLS string
	web    string
}

func (c *conn) located(request uint64, p place, err error) {
	r := &pulsarpb.CommandLookupTopicResponse{RequestId: proto.Uint64(request)}
	switch {
	case err != nil:
		code := c.server.quietCode(err)
		r.Response = pulsarpb.CommandLookupTopicResponse_Failed.Enum()
		r.Error, r.Message = code.Enum(), proto.String(c.server.text(code, err))
	case p.bundle != nil:
		u := c.server.urls.Load()
		p.url, p.urlTLS = u.plain, u.tls
		r.Response = pulsarpb.CommandLookupTopicResponse_Connect.Enum()
		r.Authoritative = proto.Bool(true)
	default:
		r.Response = pulsarpb.CommandLookupTopicResponse_Redirect.Enum()
		r.Authoritative = proto.Bool(true)
	}
	if p.url != "" {
		r.BrokerServiceUrl = proto.String(p.url)
	}
	if p.urlTLS != "" {
		r.BrokerServiceUrlTls = proto.String(p.urlTLS)
	}
	c.reply(&pulsarpb.BaseCommand{Type: pulsarpb.BaseCommand_LOOKUP_RESPONSE.Enum(), LookupTopicResponse: r})
}
