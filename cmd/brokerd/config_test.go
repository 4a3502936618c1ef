package main

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"geminga/pkg/eventloop"
)

// 0 is either what it says or refused; it is never a default in disguise.
func TestZeroDurations(t *testing.T) {
	c, _, _, _, err := parseConfig("test", []string{"--set", "managedLedgerMinLedgerRolloverTimeMinutes=0"})
	if err != nil {
		t.Fatal(err)
	}
	o := c.brokerOptions().Ledger
	o.EnsureDefaults()
	if o.MinRolloverTime > time.Microsecond {
		t.Errorf("a least age of 0 has become %s", o.MinRolloverTime)
	}
	for _, name := range []string{
		"keepAliveIntervalSeconds", "connectionLivenessCheckTimeoutMillis", "brokerShutdownTimeoutMs", "ledgerStallTimeoutMillis",
		"brokerDeduplicationProducerInactivityTimeoutMinutes", "managedLedgerMaxLedgerRolloverTimeMinutes", "delayedDeliveryTickTimeMillis",
	} {
		if _, _, _, _, err := parseConfig("test", []string{"--set", name + "=0"}); err == nil {
			t.Errorf("%s=0 passed", name)
		}
	}
}

// The limit of the broker and its share arrive; a share that is none is refused.
func TestUnackedLimitSettings(t *testing.T) {
	c, _, _, _, err := parseConfig("test", []string{"--set", "maxUnackedMessagesPerBroker=7", "--set", "maxUnackedMessagesPerSubscriptionOnBrokerBlocked=0.5"})
	if err != nil {
		t.Fatal(err)
	}
	if o := c.brokerOptions().Topic; o.MaxUnackedMessagesPerBroker != 7 || o.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked != 0.5 {
		t.Errorf("%d, %v", o.MaxUnackedMessagesPerBroker, o.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked)
	}
	for _, bad := range []string{"0", "1.1", "-1", "NaN", "x"} {
		if _, _, _, _, err := parseConfig("test", []string{"--set", "maxUnackedMessagesPerSubscriptionOnBrokerBlocked=" + bad}); err == nil {
			t.Errorf("%s passed", bad)
		}
	}
}

// Interceptors are named as in Pulsar, with their package or without; others are refused.
func TestInterceptorSettings(t *testing.T) {
	const pkg = "org.apache.pulsar.common.intercept."
	for value, want := range map[string][2]bool{
		"": {}, "AppendIndexMetadataInterceptor": {false, true}, pkg + "AppendBrokerTimestampMetadataInterceptor": {true, false},
		pkg + "AppendBrokerTimestampMetadataInterceptor, " + pkg + "AppendIndexMetadataInterceptor": {true, true},
	} {
		c, _, _, _, err := parseConfig("test", []string{"--set", "brokerEntryMetadataInterceptors=" + value, "--set", "exposingBrokerEntryMetadataToClientEnabled=true"})
		if err != nil {
			t.Fatal(err)
		}
		o := c.brokerOptions()
		if got := [2]bool{o.Topic.AppendBrokerTimestamp, o.Topic.AppendIndex}; got != want || !o.ExposeBrokerEntryMetadata {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if _, _, _, _, err := parseConfig("test", []string{"--set", "brokerEntryMetadataInterceptors=Other"}); err == nil {
		t.Error("an interceptor that is not known passed")
	}
}

// Settings that do not go together are refused before anything is opened, and by config, too; negative limits are none, as
// in Pulsar.
func TestSettingsGoTogether(t *testing.T) {
	for _, bad := range [][]string{
		{"pulsarChannelWriteBufferHighWaterMark=99"},
		{"brokerAdaptiveRecvByteBufAllocatorMinimumSize=4096", "brokerAdaptiveRecvByteBufAllocatorMaximumSize=2048"},
		{"brokerAdaptiveRecvByteBufAllocatorInitialSize=100"},
	} {
		var args []string
		for _, s := range bad {
			args = append(args, "--set", s)
		}
		if err := configCommand(t.Context(), args); err == nil || !strings.Contains(err.Error(), strings.Split(bad[0], "=")[0][:20]) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	c, _, _, _, err := parseConfig("test", []string{
		"--set", "maxUnackedMessagesPerConsumer=-1", "--set", "subscribeThrottlingRatePerConsumer=-1", "--set", "brokerMaxConnections=-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if o := c.brokerOptions(); o.Topic.MaxUnackedMessagesPerConsumer != -1 || o.Limits.SubscribeRate.Times != 0 || o.Limits.Connections != 0 {
		t.Errorf("%+v, %+v", o.Topic, o.Limits)
	}
}

// numIOThreads: what is given wins, else it is the formula for the processors that there are.
func TestLoops(t *testing.T) {
	for set, want := range map[string]int{"0": eventloop.DefaultLoops(runtime.GOMAXPROCS(0)), "3": 3, "1024": 1024} {
		c, _, _, _, err := parseConfig("test", []string{"--set", "numIOThreads=" + set})
		if err != nil {
			t.Fatal(err)
		}
		o := c.brokerOptions()
		if o.EnsureDefaults(); o.Loops != want {
			t.Errorf("%s: %d loops, want %d", set, o.Loops, want)
		}
	}
}
