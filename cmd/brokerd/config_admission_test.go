package main

import (
	"testing"

	"geminga/pkg/broker"
)

// load reads settings as --set gives them.
func load(t *testing.T, sets ...string) (broker.Admission, error) {
	t.Helper()
	var args []string
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	c, _, _, _, err := parseConfig("test", args)
	if err != nil {
		return broker.Admission{}, err
	}
	return c.brokerOptions().Admission, nil
}

// Each setting arrives where it belongs, and only there.
func TestAdmissionSettings(t *testing.T) {
	before, err := load(t)
	if err != nil {
		t.Fatal(err)
	}
	for set, change := range map[string]func(*broker.Admission){
		"maxDirectMemoryMB=100":                                 func(a *broker.Admission) { a.MaxDirectMemory = 100 << 20 },
		"maxDirectMemoryMB=0":                                   func(a *broker.Admission) { a.MaxDirectMemory = -1 },
		"maxMessagePublishBufferSizeInMB=7":                     func(a *broker.Admission) { a.MaxPublishBuffer = 7 << 20 },
		"maxMessagePublishBufferSizeInMB=0":                     func(a *broker.Admission) { a.MaxPublishBuffer = -1 },
		"maxMessagePublishBufferSizeInMB=-1":                    func(a *broker.Admission) { a.MaxPublishBuffer = -1 },
		"inProgressRequestFrameMemoryLimitEnabled=true":         func(a *broker.Admission) { a.FrameMemory = broker.FrameMemoryEnabled },
		"inProgressRequestFrameMemoryLimitEnabled=enabled":      func(a *broker.Admission) { a.FrameMemory = broker.FrameMemoryEnabled },
		"inProgressRequestFrameMemoryLimitEnabled=false":        func(*broker.Admission) {},
		"inProgressRequestFrameMemoryLimitEnabled=AUTO":         func(*broker.Admission) {},
		"inProgressRequestFrameMemoryLimitEnabled=TRACKING":     func(a *broker.Admission) { a.FrameMemory = broker.FrameMemoryTracking },
		"inProgressRequestFrameMemoryLimitEnabled=DISABLED":     func(a *broker.Admission) { a.FrameMemory = broker.FrameMemoryDisabled },
		"brokerPublisherThrottlingMaxMessageRate=500":           func(a *broker.Admission) { a.BrokerRate.Messages = 500 },
		"brokerPublisherThrottlingMaxByteRate=501":              func(a *broker.Admission) { a.BrokerRate.Bytes = 501 },
		"maxPublishRatePerTopicInMessages=502":                  func(a *broker.Admission) { a.TopicRate.Messages = 502 },
		"maxPublishRatePerTopicInBytes=503":                     func(a *broker.Admission) { a.TopicRate.Bytes = 503 },
		"maxPublishRatePerTopicInBytes=-1":                      func(*broker.Admission) {},
		"pulsarChannelWriteBufferHighWaterMark=99999":           func(a *broker.Admission) { a.HighWater = 99999 },
		"pulsarChannelWriteBufferLowWaterMark=98":               func(a *broker.Admission) { a.LowWater = 98 },
		"pulsarChannelPauseReceivingRequestsIfUnwritable=true":  func(a *broker.Admission) { a.PauseIfUnwritable = true },
		"brokerAdaptiveRecvByteBufAllocatorMinimumSize=2048":    func(a *broker.Admission) { a.RecvMin = 2048 },
		"brokerAdaptiveRecvByteBufAllocatorInitialSize=32768":   func(a *broker.Admission) { a.RecvStart = 32768 },
		"brokerAdaptiveRecvByteBufAllocatorMaximumSize=2000000": func(a *broker.Admission) { a.RecvMax = 2000000 },
	} {
		want := before
		change(&want)
		if got, err := load(t, set); err != nil || got != want {
			t.Errorf("%s: %+v (%v), want %+v", set, got, err, want)
		}
	}
	for _, bad := range []string{
		"inProgressRequestFrameMemoryLimitEnabled=maybe", "maxDirectMemoryMB=much", "maxDirectMemoryMB=99999999999",
		"brokerPublisherThrottlingMaxMessageRate=x", "pulsarChannelWriteBufferHighWaterMark=0",
	} {
		if _, err := load(t, bad); err == nil {
			t.Errorf("%s passed", bad)
		}
	}
}

// The defaults that depend on others.
func TestAdmissionDefaults(t *testing.T) {
	for budget, want := range map[string]int64{"512": 256 << 20, "100": 64 << 20, "0": 64 << 20, "4096": 2048 << 20} {
		a, err := load(t, "maxDirectMemoryMB="+budget)
		if err != nil {
			t.Fatal(err)
		}
		a.EnsureDefaults()
		if a.MaxPublishBuffer != want {
			t.Errorf("budget of %s MiB: publish buffer %d, want %d", budget, a.MaxPublishBuffer, want)
		}
	}
	c, _, _, _, err := parseConfig("test", []string{"--set", "managedLedgerCacheCopyEntries=true"})
	if err != nil || !c.brokerOptions().Cache.CopyEntries {
		t.Errorf("managedLedgerCacheCopyEntries is not read (%v)", err)
	}
}
