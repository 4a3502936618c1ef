package topic

import (
	"errors"
	"fmt"
	"time"
)

// Options are the settings of topics. The names are those of the settings of the broker in Go's spelling.
type Options struct {
	DispatcherMaxReadBatchSize       int // most entries per read
	DispatcherMaxReadSizeBytes       int // most bytes per read
	DispatcherMaxRoundRobinBatchSize int // most entries to one consumer of a shared subscription before the next one's turn

	DispatchRatePerTopic            MaxRate // delivered of a topic to all of its subscriptions together
	DispatchRatePerSubscription     MaxRate // delivered to each subscription
	DispatchThrottlingOnlyOfBacklog bool    // dispatchThrottlingOnNonBacklogConsumerEnabled=false: not while all has been read

	MaxUnackedMessagesPerConsumer     int // shared subscriptions; -1: no limit
	MaxUnackedMessagesPerSubscription int // shared subscriptions; -1: no limit
	MaxUnackedMessagesPerBroker       int // shared subscriptions together, see UnackedLimit; 0: no limit
	// MaxUnackedMessagesPerSubscriptionOnBrokerBlocked is the part of MaxUnackedMessagesPerBroker up to which a
	// subscription goes on when that is reached.
	MaxUnackedMessagesPerSubscriptionOnBrokerBlocked float64

	// WholeBatchesOnly ignores acknowledgements of parts of batches: acknowledgmentAtBatchIndexLevelEnabled=false.
	WholeBatchesOnly bool

	ActiveConsumerFailoverDelay time.Duration // failover: from a change of the active consumer to its service; -1: none
	// ActiveConsumerFailoverConsistentHashing chooses the active consumer of partitions as that of other topics: by the
	// nearest point on a ring instead of by the partition's number.
	ActiveConsumerFailoverConsistentHashing bool

	// SubscriptionKeySharedHashRanges deals the hashes of keys out as ranges of halves, quarters… instead of by
	// consistent hashing: subscriptionKeySharedUseConsistentHashing=false.
	SubscriptionKeySharedHashRanges                       bool
	SubscriptionKeySharedConsistentHashingReplicaPoints   int           // points of a consumer on the ring
	KeySharedLookAheadMsgInReplayThresholdPerConsumer     int           // entries that may wait for their keys; -1: no limit
	KeySharedLookAheadMsgInReplayThresholdPerSubscription int           // the same, for all consumers
	KeySharedUnblockingInterval                           time.Duration // from when a key is free to its next delivery; -1: none

	DelayedDeliveryDisabled bool          // delayedDeliveryEnabled=false: messages are delivered at once
	DelayedDeliveryTickTime time.Duration // delayed messages are looked after at whole ticks, unless…
	DelayedDeliveryStrict   bool          // …isDelayedDeliveryDeliverAtTimeStrict

	AppendBrokerTimestamp bool // entries are stored with the broker's time, which seeks by time go by
	AppendIndex           bool // entries are stored with the index of their last message in the topic

	BrokerDeduplicationEnabled                   bool
	BrokerDeduplicationEntriesInterval           int           // entries between two snapshots
	BrokerDeduplicationSnapshotInterval          time.Duration // time between two snapshots when there were new entries
	BrokerDeduplicationMaxNumberOfProducers      int           // most producers in a snapshot
	BrokerDeduplicationProducerInactivityTimeout time.Duration // after which a producer that is gone is forgotten

	MaxProducersPerTopic        int // 0: no limit, as below
	MaxConsumersPerTopic        int // of all subscriptions together
	MaxConsumersPerSubscription int
	MaxSubscriptionsPerTopic    int

	ReadRetryMin time.Duration // first wait after a failed read; doubles
	ReadRetryMax time.Duration
}

// EnsureDefaults fills in what is not set.
func (o *Options) EnsureDefaults() {
	setDefault(&o.DispatcherMaxReadBatchSize, 500)
	setDefault(&o.DispatcherMaxReadSizeBytes, 5<<20)
	setDefault(&o.DispatcherMaxRoundRobinBatchSize, 20)
	setDefault(&o.MaxUnackedMessagesPerConsumer, 50_000)
	setDefault(&o.MaxUnackedMessagesPerSubscription, 200_000)
	setDefault(&o.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked, 0.16)
	setDefault(&o.ActiveConsumerFailoverDelay, time.Second)
	setDefault(&o.SubscriptionKeySharedConsistentHashingReplicaPoints, 100)
	setDefault(&o.KeySharedLookAheadMsgInReplayThresholdPerConsumer, 4000)
	setDefault(&o.KeySharedLookAheadMsgInReplayThresholdPerSubscription, 40_000)
	setDefault(&o.KeySharedUnblockingInterval, 10*time.Millisecond)
	setDefault(&o.DelayedDeliveryTickTime, time.Second)
	setDefault(&o.BrokerDeduplicationEntriesInterval, 1000)
	setDefault(&o.BrokerDeduplicationSnapshotInterval, 2*time.Minute)
	setDefault(&o.BrokerDeduplicationMaxNumberOfProducers, 10_000)
	setDefault(&o.BrokerDeduplicationProducerInactivityTimeout, 6*time.Hour)
	setDefault(&o.ReadRetryMin, 50*time.Millisecond)
	setDefault(&o.ReadRetryMax, 15*time.Second)
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Validate reports all faults.
func (o *Options) Validate() error {
	var errs []error
	atLeast := func(name string, v, least int64) {
		if v < least {
			errs = append(errs, fmt.Errorf("%s is %d, must be at least %d", name, v, least))
		}
	}
	atLeast("dispatcherMaxReadBatchSize", int64(o.DispatcherMaxReadBatchSize), 1)
	atLeast("dispatcherMaxReadSizeBytes", int64(o.DispatcherMaxReadSizeBytes), 1)
	atLeast("dispatcherMaxRoundRobinBatchSize", int64(o.DispatcherMaxRoundRobinBatchSize), 1)
	for _, r := range []MaxRate{o.DispatchRatePerTopic, o.DispatchRatePerSubscription} {
		atLeast("dispatchThrottlingRate", min(r.Messages, r.Bytes), 0)
	}
	atLeast("maxUnackedMessagesPerConsumer", int64(o.MaxUnackedMessagesPerConsumer), -1)
	atLeast("maxUnackedMessagesPerSubscription", int64(o.MaxUnackedMessagesPerSubscription), -1)
	atLeast("maxUnackedMessagesPerBroker", int64(o.MaxUnackedMessagesPerBroker), 0)
	if f := o.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked; !(f > 0 && f <= 1) {
		errs = append(errs, fmt.Errorf("maxUnackedMessagesPerSubscriptionOnBrokerBlocked is %v, must be above 0 and at most 1", f))
	}
	atLeast("activeConsumerFailoverDelay", int64(o.ActiveConsumerFailoverDelay), -1)
	atLeast("subscriptionKeySharedConsistentHashingReplicaPoints", int64(o.SubscriptionKeySharedConsistentHashingReplicaPoints), 1)
	atLeast("keySharedLookAheadMsgInReplayThresholdPerConsumer", int64(o.KeySharedLookAheadMsgInReplayThresholdPerConsumer), -1)
	atLeast("keySharedLookAheadMsgInReplayThresholdPerSubscription", int64(o.KeySharedLookAheadMsgInReplayThresholdPerSubscription), -1)
	atLeast("keySharedUnblockingInterval", int64(o.KeySharedUnblockingInterval), -1)
	atLeast("delayedDeliveryTickTimeMillis", int64(o.DelayedDeliveryTickTime), int64(time.Millisecond))
	atLeast("brokerDeduplicationEntriesInterval", int64(o.BrokerDeduplicationEntriesInterval), 1)
	atLeast("brokerDeduplicationMaxNumberOfProducers", int64(o.BrokerDeduplicationMaxNumberOfProducers), 1)
	atLeast("brokerDeduplicationSnapshotInterval", int64(o.BrokerDeduplicationSnapshotInterval), 1)
	atLeast("brokerDeduplicationProducerInactivityTimeout", int64(o.BrokerDeduplicationProducerInactivityTimeout), 1)
	atLeast("maxProducersPerTopic", int64(o.MaxProducersPerTopic), 0)
	atLeast("maxConsumersPerTopic", int64(o.MaxConsumersPerTopic), 0)
	atLeast("maxConsumersPerSubscription", int64(o.MaxConsumersPerSubscription), 0)
	atLeast("maxSubscriptionsPerTopic", int64(o.MaxSubscriptionsPerTopic), 0)
	atLeast("readRetryMin", int64(o.ReadRetryMin), 1)
	atLeast("readRetryMax", int64(o.ReadRetryMax), int64(o.ReadRetryMin))
	return errors.Join(errs...)
}
