package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"geminga/cmd/internal/settings"
	"geminga/pkg/topic"
)

// registerDispatch has the settings of how many may use a topic, of the rates of dispatch, of what may be unacknowledged in the broker, of failover and Key_Shared subscriptions, and of delayed delivery.
func (c *config) registerDispatch(s *settings.Set) {
	t := &c.options.Topic
	s.Limit(&t.MaxProducersPerTopic, "maxProducersPerTopic", 0, "producers of a topic; 0: no limit").In("producers").Dynamic()
	s.Limit(&t.MaxConsumersPerTopic, "maxConsumersPerTopic", 0, "consumers of all subscriptions of a topic; 0: no limit").In("consumers").Dynamic()
	s.Limit(&t.MaxConsumersPerSubscription, "maxConsumersPerSubscription", 0, "consumers of a subscription; 0: no limit").In("consumers").Dynamic()
	s.Limit(&t.MaxSubscriptionsPerTopic, "maxSubscriptionsPerTopic", 0, "subscriptions of a topic; those that exist stay; 0: no limit").In("subscriptions").Dynamic()
	s.Limit(&t.MaxUnackedMessagesPerBroker, "maxUnackedMessagesPerBroker", 0, "unacknowledged messages of all shared subscriptions together from which on the larger ones are given nothing new; again at half of it; 0: no limit").In("messages").Dynamic()
	s.Func("maxUnackedMessagesPerSubscriptionOnBrokerBlocked", "0.16", "part of maxUnackedMessagesPerBroker: a subscription with no more than this goes on",
		fraction(&t.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked)).Dynamic()
	s.Func("dispatchThrottlingRatePerTopicInMsg", "0", "messages per second that all subscriptions of a topic together are given; 0 or less: no limit", rate(&t.DispatchRatePerTopic.Messages)).In("messages per second").Dynamic()
	s.Func("dispatchThrottlingRatePerTopicInByte", "0", "the same in bytes", rate(&t.DispatchRatePerTopic.Bytes)).In("bytes per second").Dynamic()
	s.Func("dispatchThrottlingRatePerSubscriptionInMsg", "0", "messages per second that each subscription is given; 0 or less: no limit", rate(&t.DispatchRatePerSubscription.Messages)).In("messages per second").Dynamic()
	s.Func("dispatchThrottlingRatePerSubscriptionInByte", "0", "the same in bytes", rate(&t.DispatchRatePerSubscription.Bytes)).In("bytes per second").Dynamic()
	s.Func("dispatchThrottlingOnNonBacklogConsumerEnabled", "true", "these rates also hold for subscriptions whose consumers have been sent all messages; false: only for those with a backlog",
		settings.Inverted(&t.DispatchThrottlingOnlyOfBacklog)).Dynamic()
	s.DurationOrNone(&t.ActiveConsumerFailoverDelay, "activeConsumerFailoverDelayTimeMillis", 1000, time.Millisecond, "from a change of the active consumer of a failover subscription to its first message and the notices; 0: at once")
	s.Bool(&t.ActiveConsumerFailoverConsistentHashing, "activeConsumerFailoverConsistentHashing", false, "choose the active consumer of a partition by consistent hashing, as for topics without partitions; else by the partition's number")
	s.Func("subscriptionKeySharedUseConsistentHashing", "true", "deal the keys of Key_Shared subscriptions out by consistent hashing; else by halving ranges of hashes",
		settings.Inverted(&t.SubscriptionKeySharedHashRanges))
	s.Int(&t.SubscriptionKeySharedConsistentHashingReplicaPoints, "subscriptionKeySharedConsistentHashingReplicaPoints", 100, settings.Range{Min: 1, Max: 10_000}, "points of a consumer on the ring of consistent hashing").In("points")
	s.Limit(&t.KeySharedLookAheadMsgInReplayThresholdPerConsumer, "keySharedLookAheadMsgInReplayThresholdPerConsumer", 4000, "entries that may wait for their keys, times the consumers, before nothing new is read; 0: no limit").In("entries").Dynamic()
	s.Limit(&t.KeySharedLookAheadMsgInReplayThresholdPerSubscription, "keySharedLookAheadMsgInReplayThresholdPerSubscription", 40_000, "the same for all consumers together; 0: no limit").In("entries").Dynamic()
	s.DurationOrNone(&t.KeySharedUnblockingInterval, "keySharedUnblockingIntervalMs", 10, time.Millisecond, "from the last acknowledgement of a draining key to its next delivery; 0: at once").Dynamic()
	s.Func("delayedDeliveryEnabled", "true", "deliver messages of Shared and Key_Shared subscriptions at the time that their producers ask for; false: at once", settings.Inverted(&t.DelayedDeliveryDisabled))
	s.Duration(&t.DelayedDeliveryTickTime, "delayedDeliveryTickTimeMillis", 1000, time.Millisecond, "delayed messages may be as much later than their time; they are never early")
	s.Func("brokerEntryMetadataInterceptors", "", "what entries are stored with, separated by commas: AppendBrokerTimestampMetadataInterceptor (the broker's time, which seeks by time go by), "+
		"AppendIndexMetadataInterceptor (a number for each message of the topic)", interceptors(t))
	s.Bool(&c.options.ExposeBrokerEntryMetadata, "exposingBrokerEntryMetadataToClientEnabled", false, "send that to clients that announce that they read it")
	s.Bool(&t.DelayedDeliveryStrict, "isDelayedDeliveryDeliverAtTimeStrict", false, "deliver delayed messages to the millisecond, not at whole ticks")
}

// interceptors parses brokerEntryMetadataInterceptors: Pulsar's class names, of which we have these two.
func interceptors(t *topic.Options) func(string) error {
	return func(v string) error {
		t.AppendBrokerTimestamp, t.AppendIndex = false, false
		for name := range strings.SplitSeq(v, ",") {
			switch strings.TrimPrefix(strings.TrimSpace(name), "org.apache.pulsar.common.intercept.") {
			case "":
			case "AppendBrokerTimestampMetadataInterceptor":
				t.AppendBrokerTimestamp = true
			case "AppendIndexMetadataInterceptor":
				t.AppendIndex = true
			default:
				return fmt.Errorf("%q is neither AppendBrokerTimestampMetadataInterceptor nor AppendIndexMetadataInterceptor", name)
			}
		}
		return nil
	}
}

// fraction parses a number above 0 and up to 1.
func fraction(p *float64) func(string) error {
	return func(v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0 && f <= 1) {
			return fmt.Errorf("%q is not a number above 0 and up to 1", v)
		}
		*p = f
		return nil
	}
}
