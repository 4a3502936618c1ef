package main

import (
	"testing"
	"time"
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
