package main

import (
	"reflect"
	"testing"

	"geminga/pkg/topic"
)

// The settings of dispatch come to the option that they name, and to no other.
func TestDispatchSettings(t *testing.T) {
	load := func(sets ...string) topic.Options {
		var args []string
		for _, s := range sets {
			args = append(args, "--set", s)
		}
		c, _, _, _, err := parseConfig("test", args)
		if err != nil {
			t.Fatal(err)
		}
		return c.options.Topic
	}
	for set, change := range map[string]func(*topic.Options){
		"maxProducersPerTopic=3":                              func(o *topic.Options) { o.MaxProducersPerTopic = 3 },
		"maxConsumersPerTopic=4":                              func(o *topic.Options) { o.MaxConsumersPerTopic = 4 },
		"maxConsumersPerSubscription=5":                       func(o *topic.Options) { o.MaxConsumersPerSubscription = 5 },
		"maxSubscriptionsPerTopic=6":                          func(o *topic.Options) { o.MaxSubscriptionsPerTopic = 6 },
		"dispatchThrottlingRatePerTopicInMsg=7":               func(o *topic.Options) { o.DispatchRatePerTopic.Messages = 7 },
		"dispatchThrottlingRatePerTopicInByte=8":              func(o *topic.Options) { o.DispatchRatePerTopic.Bytes = 8 },
		"dispatchThrottlingRatePerTopicInByte=-1":             func(*topic.Options) {},
		"dispatchThrottlingRatePerSubscriptionInMsg=9":        func(o *topic.Options) { o.DispatchRatePerSubscription.Messages = 9 },
		"dispatchThrottlingRatePerSubscriptionInByte=10":      func(o *topic.Options) { o.DispatchRatePerSubscription.Bytes = 10 },
		"dispatchThrottlingOnNonBacklogConsumerEnabled=false": func(o *topic.Options) { o.DispatchThrottlingOnlyOfBacklog = true },
		"dispatchThrottlingOnNonBacklogConsumerEnabled=true":  func(*topic.Options) {},
	} {
		want := load()
		change(&want)
		if got := load(set); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", set, got, want)
		}
	}
}
