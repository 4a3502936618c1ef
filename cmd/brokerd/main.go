// Command brokerd serves the Pulsar binary protocol over ledgers that bookied stores.
package main

import (
	"os"

	"geminga/cmd/internal/daemon"
)

func main() {
	os.Exit(daemon.Program{
		Name: "brokerd",
		Doc:  "serves the Pulsar protocol of a Geminga cluster",
		Commands: []daemon.Command{
			{Name: "run", Doc: "serve as a broker of a cluster", Run: runCommand},
			{Name: "standalone", Doc: "serve with embedded bookies, everything in one process", Run: standaloneCommand},
			{Name: "config", Doc: "print the settings and where each value comes from", Run: configCommand},
		},
	}.Main(os.Args[1:]))
}
