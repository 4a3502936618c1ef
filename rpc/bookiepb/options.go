package bookiepb

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
)

// MaxMessageSize bounds a message in both directions. Everything that is sent is kept well below it.
const MaxMessageSize = 64 << 20

// Greeting is how long a connection may take to say what it is. A server that stops waits for it as well.
const Greeting = 5 * time.Second

// Keys of the request metadata.
const (
	// GroupHeader names the group of an append stream, in decimal.
	GroupHeader = "geminga-group"
	// ClusterHeader names the cluster that the caller believes to talk to; optional.
	ClusterHeader = "geminga-cluster"
)

// The two sides must agree: a client that pings more often than the server permits is disconnected.
const (
	clientPing        = 15 * time.Second
	clientPingTimeout = 5 * time.Second
	serverPermits     = 8 * time.Second
	serverPing        = 30 * time.Second
	serverPingTimeout = 10 * time.Second

	streamWindow = 4 << 20
	connWindow   = 16 << 20
)

// ClientOptions returns what every client of this protocol dials with; credentials are the caller's.
func ClientOptions() []grpc.DialOption {
	buffers := &pool{}
	return []grpc.DialOption{
		experimental.WithBufferPool(buffers),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(codec{buffers}),
			grpc.MaxCallRecvMsgSize(MaxMessageSize),
			grpc.MaxCallSendMsgSize(MaxMessageSize),
		),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: clientPing, Timeout: clientPingTimeout, PermitWithoutStream: true,
		}),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithDisableRetry(), // retries are decided by the callers, who know what is safe to repeat
	}
}

// ServerOptions returns what every server of this protocol is made with; credentials are the caller's.
func ServerOptions() []grpc.ServerOption {
	buffers := &pool{}
	return []grpc.ServerOption{
		experimental.BufferPool(buffers),
		grpc.ForceServerCodecV2(codec{buffers}),
		grpc.MaxRecvMsgSize(MaxMessageSize),
		grpc.MaxSendMsgSize(MaxMessageSize),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: serverPermits, PermitWithoutStream: true,
		}),
		grpc.ConnectionTimeout(Greeting), // gRPC's own is two minutes
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPing, Timeout: serverPingTimeout}),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
	}
}
