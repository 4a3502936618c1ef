//go:build !race

package managedledger_test

const raceEnabled = false
