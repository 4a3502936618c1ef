package main

import (
	"errors"
	"fmt"
	"net"
)

// The ports that the client's tests know.
const (
	pulsarPort = 6650
	webPort    = 8080
)

var errNoNamespace = errors.New("no network namespace of its own here: the suite uses the ports of the machine")

// exitNoNamespace is how the command inside says errNoNamespace: some systems give a namespace in which nothing is allowed.
const exitNoNamespace = 3

// portsFree reports which port is taken, if any.
func portsFree() error {
	for _, port := range []int{pulsarPort, webPort} {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return fmt.Errorf("the suite needs port %d, and something else listens there: stop it first (%w)", port, err)
		}
		_ = l.Close()
	}
	return nil
}
