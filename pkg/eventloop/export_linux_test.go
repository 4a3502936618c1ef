package eventloop

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// blockingEpoll is the rejected alternative to epoll: the thread sleeps in epoll_wait and an eventfd wakes it. It is
// kept to measure against.
type blockingEpoll struct {
	*epoll
	event int
}

// UseBlockingEpoll makes the group sleep in epoll_wait.
func (o *Options) UseBlockingEpoll() {
	o.newPoller = func() (poller, error) {
		p, err := newEpoll()
		if err != nil {
			return nil, err
		}
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		b := &blockingEpoll{p, fd}
		e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: 1<<31 - 1}
		return b, unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e)
	}
}

func (b *blockingEpoll) poll(l *Loop, block bool) {
	if block {
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(b.fd),
			uintptr(unsafe.Pointer(&b.events[0])), uintptr(len(b.events)), ^uintptr(0), 0, 0)
		if errno != 0 {
			n = 0
		}
		b.ready = int(n)
	} else {
		b.ready = b.take()
	}
	for i := range b.ready {
		b.dispatch(l, &b.events[i])
	}
	l.load.events += int64(b.ready)
}

func (b *blockingEpoll) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(b.event, one[:])
}

func (b *blockingEpoll) close() {
	_ = unix.Close(b.event)
	b.epoll.close()
}
