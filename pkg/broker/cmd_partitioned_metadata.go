package broker

import (
	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// PARTITIONED_METADATA tells how many partitions a topic has; 0 for one that is not partitioned or does not exist yet. One
// that does not exist is made, if topics that clients name are to have partitions. If topics must not be made, by the
// rules or because the client says so (metadata_auto_creation_enabled), it is TopicNotFound.
// Trouble with the metadata is MetadataError: on ServiceNotReady in this answer clients close the whole connection.
func handlePartitionedMetadata(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.PartitionMetadata
	request := req.GetRequestId()
	name, err := protocol.ParseTopicName(req.GetTopic())
	if err != nil {
		c.partitions(request, 0, err)
		return nil
	}
	if err := c.beganLookup(); err != nil {
		c.partitions(request, 0, err)
		return nil
	}
	c.server.partitionsOrMake(name, req.GetMetadataAutoCreationEnabled(), func(n uint32, err error) {
		c.server.lookups.leave()
		c.post(func() {
			c.ended()
			c.partitions(request, n, err)
		})
	})
	return nil
}

func (c *conn) partitions(request uint64, n uint32, err error) {
	r := &pulsarpb.CommandPartitionedTopicMetadataResponse{RequestId: proto.Uint64(request)}
	if err != nil {
		code := c.server.quietCode(err)
		r.Response = pulsarpb.CommandPartitionedTopicMetadataResponse_Failed.Enum()
		r.Error, r.Message = code.Enum(), proto.String(c.server.text(code, err))
	} else {
		r.Response = pulsarpb.CommandPartitionedTopicMetadataResponse_Success.Enum()
		r.Partitions = proto.Uint32(n)
	}
	c.reply(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_PARTITIONED_METADATA_RESPONSE.Enum(), PartitionMetadataResponse: r,
	})
}

// quietCode is codeOf for the answers to lookups, where ServiceNotReady costs the client its connection. That is right
// only when this broker goes away.
func (s *Server) quietCode(err error) protocol.ServerError {
	code := s.codeOf(err)
	if code == pulsarpb.ServerError_ServiceNotReady && !s.closing.Load() {
		return pulsarpb.ServerError_MetadataError
	}
	return code
}
