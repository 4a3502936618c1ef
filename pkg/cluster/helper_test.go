package cluster

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
