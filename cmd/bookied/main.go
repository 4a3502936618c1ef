// Command bookied stores ledgers that are replicated through Raft groups, and the metadata of the cluster.
package main

import (
	"os"

	"geminga/cmd/internal/daemon"
)

func main() {
	os.Exit(daemon.Program{
		Name: "bookied",
		Doc:  "stores the ledgers and the metadata of a Geminga cluster",
		Commands: []daemon.Command{
			{Name: "init", Doc: "prepare an empty data directory, once", Run: initCommand},
			{Name: "run", Doc: "serve a prepared data directory", Run: runCommand},
			{Name: "config", Doc: "print the settings and where each value comes from", Run: configCommand},
		},
	}.Main(os.Args[1:]))
}
