//go:build race

package managedledger_test

const raceEnabled = true // the race detector allocates
