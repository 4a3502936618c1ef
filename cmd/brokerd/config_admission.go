package main

import (
	"fmt"
	"strconv"
	"time"

	"geminga/cmd/internal/settings"
	"geminga/pkg/broker"
)

// registerAdmission registers what a broker takes in and when it stops reading.
func (c *config) registerAdmission(s *settings.Set) {
	a := &c.options.Admission
	size := settings.Range{Min: 1, Max: unlimited}
	s.Func("maxDirectMemoryMB", "512", "MiB that the buffers of connections may take; the thresholds of AUTO below, and the default above it, are parts of it",
		megabytes(&a.MaxDirectMemory)).In("MiB")
	s.Func("maxMessagePublishBufferSizeInMB", "", "MiB of payloads in flight, shared out evenly to the I/O loops, and of request frames in memory; "+
		"0 or less: no limit; empty: half of maxDirectMemoryMB, at least 64; the loops keep the shares of the start", megabytes(&a.MaxPublishBuffer)).In("MiB").Dynamic()
	s.Func("inProgressRequestFrameMemoryLimitEnabled", "AUTO",
		"limit of the receive buffers that request frames keep: DISABLED, TRACKING (measured only), AUTO (or false: when memory runs short), ENABLED (or true)",
		func(v string) (err error) {
			a.FrameMemory, err = broker.ParseFrameMemoryMode(v)
			return err
		}).Dynamic()

	s.Func("brokerPublisherThrottlingMaxMessageRate", "0", "messages per second that the broker takes; 0: no limit", rate(&a.BrokerRate.Messages)).In("messages per second").Dynamic()
	s.Func("brokerPublisherThrottlingMaxByteRate", "0", "bytes per second that the broker takes; 0: no limit", rate(&a.BrokerRate.Bytes)).In("bytes per second").Dynamic()
	s.Func("maxPublishRatePerTopicInMessages", "0", "messages per second that a topic takes; 0: no limit", rate(&a.TopicRate.Messages)).In("messages per second").Dynamic()
	s.Func("maxPublishRatePerTopicInBytes", "0", "bytes per second that a topic takes; 0: no limit", rate(&a.TopicRate.Bytes)).In("bytes per second").Dynamic()

	s.Int(&a.HighWater, "pulsarChannelWriteBufferHighWaterMark", 64<<10, size, "bytes of unsent output from which on a connection counts as not writable: nothing more is dispatched to it").In("bytes")
	s.Int(&a.LowWater, "pulsarChannelWriteBufferLowWaterMark", 32<<10, size, "bytes of unsent output at which it is writable again").In("bytes")
	s.Func("maxOutboundBufferSizeInMB", "", "MiB that all clients together may leave unread before each gets more only when it has read all; 0 or less: no limit; "+
		"empty: a quarter of maxDirectMemoryMB, at least 32", megabytes(&a.MaxOutbound)).In("MiB")
	s.Bool(&a.PauseIfUnwritable, "pulsarChannelPauseReceivingRequestsIfUnwritable", false, "leave requests of a connection alone while it is not writable; otherwise from 1 MiB of unsent output on")
	s.DurationOrNone(&a.Cooldown, "pulsarChannelPauseReceivingCooldownMs", 5000, time.Millisecond, "how long after such a pause requests come at the rate below; 0: no such time")
	s.Limit(&a.CooldownRate, "pulsarChannelPauseReceivingCooldownRateLimitPerSecond", 5, "requests of a connection in that time; 0: as many as come").In("requests per second")

	s.Int(&a.RecvMin, "brokerAdaptiveRecvByteBufAllocatorMinimumSize", 1<<10, size, "smallest receive buffer in bytes").In("bytes")
	s.Int(&a.RecvStart, "brokerAdaptiveRecvByteBufAllocatorInitialSize", 16<<10, size, "receive buffer that an I/O loop starts with").In("bytes")
	s.Int(&a.RecvMax, "brokerAdaptiveRecvByteBufAllocatorMaximumSize", 1<<20, size, "largest receive buffer of an I/O loop").In("bytes")
}

// megabytes parses a number of MiB into bytes: -1 for 0 and less, 0 (the default) for nothing.
func megabytes(p *int64) func(string) error {
	return func(v string) error {
		if v == "" {
			*p = 0
			return nil
		}
		n, err := strconv.ParseInt(v, 10, 32)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a number of MiB", v)
		case n <= 0:
			*p = -1
		default:
			*p = n << 20
		}
		return nil
	}
}

// rate parses what a second may bring. Less than 0 is 0, as in Pulsar.
func rate(p *int64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a whole number", v)
		case n > 1<<50:
			return fmt.Errorf("%d is more than %d", n, int64(1<<50))
		}
		*p = max(0, n)
		return nil
	}
}
