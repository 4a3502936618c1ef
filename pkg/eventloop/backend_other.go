//go:build !linux

package eventloop

import "net"

// epoll does not exist here.
type epoll struct{}

const defaultBackend = Portable

func newPoller(Backend) (poller, error) { return newPark(), nil }

func listenConfig() *net.ListenConfig { return &net.ListenConfig{} }

func (g *Group) acceptSockets(ln net.Listener) error {
	_ = ln.Close()
	return ErrNoBackend
}
