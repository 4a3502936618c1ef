//go:build !linux

package eventloop_test

func blockingKinds() []kind { return nil }
