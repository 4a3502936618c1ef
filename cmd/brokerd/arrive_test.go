package main

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

// Every setting changes what it is for: the options of the broker, or, for those listed, what the commands read themselves.
func TestSettingsArrive(t *testing.T) {
	ofCommands := []string{
		"advertisedAddress", "bookieClusterId", "bookiePort", "brokerShutdownTimeoutMs", "gossipJoin", "gossipPort", "gossipSecretKey",
		"journalDirectIO", "journalDirectory", "journalMaxSizeMB", "journalSyncData", "journalWriteTimeoutSeconds", "logFormat", "logLevel", "metadataStoreUrl",
		"pprofEnabled", "standaloneBookies", "webServicePort",
	}
	others := map[string]string{ // than the default, where it is neither a number nor a truth
		"allowAutoTopicCreationType": "partitioned", "brokerDeleteInactiveTopicsMode": "delete_when_subscriptions_caught_up",
		"brokerEntryMetadataInterceptors": "AppendIndexMetadataInterceptor", "subscriptionKeySharedUseConsistentHashing": "false",
		"maxUnackedMessagesPerSubscriptionOnBrokerBlocked": "0.5", "inProgressRequestFrameMemoryLimitEnabled": "TRACKING",
		"maxMessagePublishBufferSizeInMB": "7", "maxOutboundBufferSizeInMB": "7", "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "7",
		"logFormat": "json",
	}
	before, _, _, _, err := parseConfig("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, def := range before.loaded.Values() {
		value, ok := others[name]
		if !ok {
			value = another(def)
		}
		c, _, _, _, err := parseConfig("test", []string{"--set", name + "=" + value})
		if err != nil {
			t.Error(err)
			continue
		}
		was, is := before.brokerOptions(), c.brokerOptions()
		was.Settings, is.Settings = nil, nil
		arrived := !reflect.DeepEqual(was, is)
		if slices.Contains(ofCommands, name) {
			was, is := *before, *c
			was.loaded, is.loaded = nil, nil
			arrived = !reflect.DeepEqual(was, is)
		}
		if !arrived {
			t.Errorf("%s=%s changes nothing (default %q)", name, value, def)
		}
	}
}

// another is a value that most settings with this default take.
func another(def string) string {
	if n, err := strconv.ParseInt(def, 10, 64); err == nil {
		if half := max(n, 0)/2 + 3; half != n {
			return fmt.Sprint(half)
		}
		return fmt.Sprint(n + 1)
	}
	switch def {
	case "true":
		return "false"
	case "false":
		return "true"
	case "info":
		return "debug"
	}
	return "127.0.0.9:1"
}
