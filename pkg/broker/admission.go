package broker

import (
	"time"

	"geminga/pkg/topic"
)

// Admission is what a broker takes in, and when it stops doing so.
type Admission struct {
	MaxDirectMemory  int64           // maxDirectMemoryMB: budget of all I/O buffers; default 512 MiB; negative: not known
	MaxPublishBuffer int64           // maxMessagePublishBufferSizeInMB; default half the budget, at least 64 MiB; negative: no limit
	FrameMemory      FrameMemoryMode // inProgressRequestFrameMemoryLimitEnabled

	BrokerRate Rate // brokerPublisherThrottlingMaxMessageRate, …MaxByteRate
	TopicRate  Rate // maxPublishRatePerTopicInMessages, …InBytes

	HighWater int // pulsarChannelWriteBufferHighWaterMark; 64 KiB
	LowWater  int // pulsarChannelWriteBufferLowWaterMark; 32 KiB, or half of HighWater
	// MaxOutbound is maxOutboundBufferSizeInMB: what clients have not read, of all connections together, beyond which each
	// gets more only when it has read all; default a quarter of the budget, at least 32 MiB; negative: no limit.
	MaxOutbound       int64
	PauseIfUnwritable bool // pulsarChannelPauseReceivingRequestsIfUnwritable
	// After such a pause, for Cooldown, CooldownRate requests a second (pulsarChannelPauseReceivingCooldownMs,
	// …CooldownRateLimitPerSecond); 0: no cooldown.
	Cooldown     time.Duration
	CooldownRate int

	// brokerAdaptiveRecvByteBufAllocator{Minimum,Initial,Maximum}Size; 1 KiB, 16 KiB, 1 MiB
	RecvMin, RecvStart, RecvMax int
}

// EnsureDefaults fills in what is not set.
func (a *Admission) EnsureDefaults() {
	def(&a.MaxDirectMemory, 512<<20)
	def(&a.MaxPublishBuffer, max(64<<20, a.MaxDirectMemory/2))
	def(&a.HighWater, 64<<10)
	def(&a.MaxOutbound, max(32<<20, a.MaxDirectMemory/4))
	def(&a.LowWater, min(32<<10, a.HighWater/2))
	def(&a.RecvMin, 1<<10)
	def(&a.RecvStart, max(16<<10, a.RecvMin))
	def(&a.RecvMax, max(1<<20, a.RecvStart))
}

func (a *Admission) validate(check func(ok bool, format string, args ...any)) {
	check(a.FrameMemory <= FrameMemoryEnabled, "inProgressRequestFrameMemoryLimitEnabled is %d", a.FrameMemory)
	check(a.Cooldown >= 0 && a.CooldownRate >= 0, "pulsarChannelPauseReceivingCooldownMs is %v, …RateLimitPerSecond %d", a.Cooldown, a.CooldownRate)
	for _, r := range []Rate{a.BrokerRate, a.TopicRate} {
		check(r.Messages >= 0 && r.Bytes >= 0, "publish rate is %d messages, %d bytes", r.Messages, r.Bytes)
	}
	check(0 < a.LowWater && a.LowWater < a.HighWater && a.HighWater <= 1<<30,
		"pulsarChannelWriteBufferLowWaterMark %d and …HighWaterMark %d are not in order", a.LowWater, a.HighWater)
	check(256 <= a.RecvMin && a.RecvMin <= a.RecvStart && a.RecvStart <= a.RecvMax && a.RecvMax <= 64<<20,
		"brokerAdaptiveRecvByteBufAllocatorMinimumSize %d, …InitialSize %d, …MaximumSize %d are not in order",
		a.RecvMin, a.RecvStart, a.RecvMax)
}

// minOutbound is the least output that may gather before requests of a client that does not read are left alone, whether
// or not PauseIfUnwritable is set.
const minOutbound = 1 << 20

// openAdmission sets up the limits, before there are connections.
func (s *Server) openAdmission() {
	a := &s.opts.Admission
	s.maxOutbound = max(minOutbound, a.HighWater)
	s.publishLimit.why = throttleBrokerRate
	s.publishLimit.set(a.BrokerRate, s.opened)
	s.topicRate.Store(&a.TopicRate)
	s.memory.init(a, s.group.RootBytes, s.notifyLoops)
	for i, st := range s.states {
		st.holder.memory, st.holder.loop = &s.memory, s.group.Loops()[i]
		if a.MaxPublishBuffer > 0 {
			st.inFlight.share = max(1, a.MaxPublishBuffer/int64(len(s.states)))
		}
	}
	s.group.SetAccount(s.memory.accountFor(a.FrameMemory))
}

// SetFrameMemoryMode changes inProgressRequestFrameMemoryLimitEnabled, for all connections. After DISABLED, frames are
// counted from the next read on.
func (s *Server) SetFrameMemoryMode(mode FrameMemoryMode) {
	s.memory.configure(func(m *FrameMemoryMode, _ *int64) {
		*m = mode
		s.group.SetAccount(s.memory.accountFor(mode))
	})
}

// SetFrameMemoryLimit changes maxMessagePublishBufferSizeInMB, in bytes, for the memory of request frames; 0 or less: no
// limit. The loops keep the shares that they have got at the start.
func (s *Server) SetFrameMemoryLimit(bytes int64) {
	s.memory.configure(func(_ *FrameMemoryMode, limit *int64) { *limit = bytes })
}

// SetBrokerPublishRate changes the rate of all that is published here.
func (s *Server) SetBrokerPublishRate(r Rate) { s.publishLimit.set(r, time.Now()) }

// SetTopicPublishRate changes the rate of each topic whose namespace has none of its own.
func (s *Server) SetTopicPublishRate(r Rate) {
	s.topicRate.Store(&r)
	s.rates.apply(s.topics.all(nil)...)
}

// SetTopicOptions changes what topic.Configure can change, in topics that are open and in those to come.
func (s *Server) SetTopicOptions(o topic.Options) {
	s.topicOptions.Store(&o)
	s.topicEnv.Unacked.Set(o)
	for _, h := range s.topics.all(nil) {
		s.topics.configure(h)
	}
}

// SetCopyEntries changes managedLedgerCacheCopyEntries for what enters the cache from now on.
func (s *Server) SetCopyEntries(copying bool) { s.topicEnv.Ledger.Cache.SetCopyEntries(copying) }
