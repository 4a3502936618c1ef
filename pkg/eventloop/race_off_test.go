//go:build !race

package eventloop_test

const raceEnabled = false
