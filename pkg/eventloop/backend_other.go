//go:build !linux

package eventloop

import "net"

// epoll does not exist here.
type epoll struct{}

const defaultBackend = Portable

func newPoller(Backend) (poller, error) { return newPark(), nil }

// hungUp cannot tell: a peer that goes while its connection is paused is noticed when that is resumed or written to.
func hungUp(net.Conn) bool { return false }

func listenConfig() *net.ListenConfig { return &net.ListenConfig{} }

func (g *Group) acceptSockets(ln net.Listener) error {
	_ = ln.Close()
	return ErrNoBackend
}
