package main

import (
	"strings"
	"testing"

	"geminga/pkg/broker"
)

// Every dynamic setting reaches the options when it is stored, and is what brokerd was started with when it is not.
func TestStorable(t *testing.T) {
	c, _, _, _, err := parseConfig("test", []string{"--set", "maxPublishRatePerTopicInMessages=7", "--set", "gossipSecretKey=abcdefghijklmnop"})
	if err != nil {
		t.Fatal(err)
	}
	own, values, err := c.brokerOptions().Settings.With(nil)
	if err != nil || own.Admission != c.brokerOptions().Admission || values["maxPublishRatePerTopicInMessages"] != "7" {
		t.Fatalf("%v: %+v", err, own.Admission)
	}
	if strings.Contains(values["gossipSecretKey"], "abc") {
		t.Error("the secret shows")
	}
	other := map[string]string{ // another value than the default of each
		"inProgressRequestFrameMemoryLimitEnabled": "TRACKING", "allowAutoTopicCreation": "false", "managedLedgerCacheCopyEntries": "true",
		"allowAutoTopicCreationType": "partitioned", "allowAutoSubscriptionCreation": "false", "brokerDeleteInactiveTopicsEnabled": "false",
		"brokerDeleteInactiveTopicsMode": "delete_when_subscriptions_caught_up", "dispatchThrottlingOnNonBacklogConsumerEnabled": "false",
		"maxUnackedMessagesPerSubscriptionOnBrokerBlocked": "0.5",
	}
	for _, name := range c.brokerOptions().Settings.Dynamic() {
		value := other[name]
		if value == "" {
			value = "3"
		}
		o, values, err := c.brokerOptions().Settings.With(map[string]string{name: value})
		if err != nil || values[name] != value {
			t.Errorf("%s=%s: %q, %v", name, value, values[name], err)
		}
		if sameDynamic(&o, &own) {
			t.Errorf("%s=%s changes nothing", name, value)
		}
	}
	if _, _, err := c.brokerOptions().Settings.With(map[string]string{"brokerServicePort": "1"}); err == nil {
		t.Error("the port can be changed at run time")
	}
}

// sameDynamic compares what dynamic settings may change.
func sameDynamic(a, b *broker.Options) bool {
	return a.Admission == b.Admission && a.Limits == b.Limits && a.Cache.CopyEntries == b.Cache.CopyEntries && a.Rules == b.Rules && a.Topic == b.Topic
}
