// Command bookied stores ledgers that are replicated through Raft groups, and the metadata of the cluster.
package main

import (
	"os"

	"geminga/cmd/internal/daemon"
)

func main() {
	look := tool{out: os.Stdout, notes: os.Stderr}
	op := operator{out: os.Stdout}
	os.Exit(daemon.Program{
		Name: "bookied",
		Doc:  "stores the ledgers and the metadata of a Geminga cluster",
		Commands: []daemon.Command{
			{Name: "init", Doc: "prepare an empty data directory, once", Run: initCommand},
			{Name: "run", Doc: "serve a prepared data directory", Run: runCommand},
			{Name: "decommission", Doc: "move all replicas of a bookie to others, and say how far it is", Run: op.decommission},
			{Name: "read-only", Doc: "make a bookie take no entries in the groups that it leads, or take them again", Run: op.readOnly},
			{Name: "inspect", Doc: "list groups, ledgers or segments of a stopped bookie's directory", Run: look.inspect},
			{Name: "verify", Doc: "check every checksum in a stopped bookie's directory", Run: look.verify},
			{Name: "dump", Doc: "print entries of a ledger from a stopped bookie's directory", Run: look.dump},
			{Name: "config", Doc: "print the settings and where each value comes from", Run: configCommand},
		},
	}.Main(os.Args[1:]))
}
