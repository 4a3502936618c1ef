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
