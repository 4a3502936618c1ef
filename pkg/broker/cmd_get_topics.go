package broker

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// GET_TOPICS_OF_NAMESPACE lists the topics of a namespace by their full names, partitions each by itself. A pattern is
// left to the client to apply (filtered=false). A namespace that does not exist has no topics. Topics that are not
// persistent are those that are open on this broker.
func handleGetTopics(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.GetTopicsOfNamespace
	request := req.GetRequestId()
	ns, err := protocol.ParseNamespaceName(req.GetNamespace())
	if err != nil {
		c.fail(request, err)
		return nil
	}
	var transient []string
	if req.GetMode() != pulsarpb.CommandGetTopicsOfNamespace_PERSISTENT {
		transient = c.server.transientTopics(ns)
	}
	if req.GetMode() == pulsarpb.CommandGetTopicsOfNamespace_NON_PERSISTENT {
		c.topicList(request, transient)
		return nil
	}
	if err := c.beganLookup(); err != nil {
		c.fail(request, err)
		return nil
	}
	c.server.listTopics(ns, func(names []string, err error) {
		c.server.lookups.leave()
		c.post(func() {
			c.ended()
			if err != nil {
				c.fail(request, errMetadata)
				return
			}
			c.topicList(request, append(names, transient...))
		})
	})
	return nil
}

func (c *conn) topicList(request uint64, names []string) {
	c.reply(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_GET_TOPICS_OF_NAMESPACE_RESPONSE.Enum(),
		GetTopicsOfNamespaceResponse: &pulsarpb.CommandGetTopicsOfNamespaceResponse{
			RequestId: proto.Uint64(request), Topics: names, Filtered: proto.Bool(false), Changed: proto.Bool(true),
		},
	})
}

// transientTopics returns the topics of a namespace that are open here and not persistent, sorted.
func (s *Server) transientTopics(ns protocol.NamespaceName) []string {
	return slices.DeleteFunc(s.Topics(), func(name string) bool {
		return !strings.HasPrefix(name, protocol.NonPersistent+"://"+ns.String()+"/")
	})
}
