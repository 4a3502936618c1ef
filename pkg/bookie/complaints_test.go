package bookie

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestComplaintsAreNotRepeated(t *testing.T) {
	var c complaints
	now := time.Now()
	if !c.due(now, "x") || c.due(now.Add(complainEvery-1), "x") || !c.due(now, "y") || !c.due(now.Add(complainEvery), "x") {
		t.Error("the same complaint is to be written once in a while, another one at once")
	}
	for i := range 3 * maxComplaints {
		if !c.due(now, fmt.Sprint(i)) {
			t.Errorf("complaint %d was swallowed", i)
		}
	}
	if len(c.last) > maxComplaints {
		t.Errorf("%d complaints are remembered", len(c.last))
	}
}

// What raft says of a peer that is away is for debugging; what it says of its own disk is not.
func TestRaftLogLevels(t *testing.T) {
	var out bytes.Buffer
	l := newRaftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	l.Error("failed to make requestVote RPC", "error", errors.New("connection refused"))
	l.Error("failed to heartbeat to", "peer", "b")
	l.Error("failed to get log", "error", errStopped)
	if out.Len() != 0 {
		t.Errorf("noise: %s", &out)
	}
	l.Error("failed to commit logs", "error", errors.New("disk"))
	if !strings.Contains(out.String(), "level=INFO") || !strings.Contains(out.String(), "failed to commit logs") {
		t.Errorf("silence: %q", &out)
	}
}
