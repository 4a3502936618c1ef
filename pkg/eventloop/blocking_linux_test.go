package eventloop_test

import "geminga/pkg/eventloop"

func blockingKinds() []kind {
	return []kind{{name: "blocking", prepare: (*eventloop.Options).UseBlockingEpoll}}
}
