package main

import "testing"

// What clients may have leaves room for others, whatever the limits, and never more than was asked for.
func TestDescriptorsForClients(t *testing.T) {
	for _, c := range []struct {
		files uint64
		most  int
		want  int
	}{
		{0, 0, 0}, {0, 7, 7}, {1 << 40, 0, 0}, {1 << 63, 9, 9}, // not known, or without end
		{20_000, 0, 19_400}, {20_000, 19_400, 19_400}, {20_000, 19_401, 19_400}, {20_000, 5, 5},
		{1024, 0, 804}, {600, 0, 388}, {256, 0, 128}, {64, 0, 32}, {1 << 20, 0, 1<<20 - 200 - 1<<20/50},
	} {
		if got := forClients(c.files, c.most); got != c.want {
			t.Errorf("%d files, brokerMaxConnections %d: %d, want %d", c.files, c.most, got, c.want)
		}
	}
}
