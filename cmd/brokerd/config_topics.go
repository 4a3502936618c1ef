package main

import (
	"fmt"
	"strconv"
	"time"

	"geminga/cmd/internal/settings"
)

// registerTopics has the settings that say which topics and subscriptions come and go by themselves.
func (c *config) registerTopics(s *settings.Set) {
	r := &c.options.Rules
	s.Func("allowAutoTopicCreation", "true", "create topics when a producer or consumer names them", settings.Inverted(&r.DisableAutoTopicCreation)).Dynamic()
	s.Func("allowAutoTopicCreationType", "non-partitioned", "partitioned, or non-partitioned: how they are created",
		oneOf(&r.AutoPartitioned, "non-partitioned", "partitioned")).Dynamic()
	s.Int(&r.DefaultPartitions, "defaultNumPartitions", 1, settings.Range{Min: 1, Max: 10_000}, "partitions of a topic that is created as a partitioned one").In("partitions").Dynamic()
	s.Func("allowAutoSubscriptionCreation", "true", "create durable subscriptions when a consumer names them", settings.Inverted(&r.DisableAutoSubscriptionCreation)).Dynamic()

	s.Bool(&r.DeleteInactive, "brokerDeleteInactiveTopicsEnabled", true, "delete topics that nobody uses, with their messages").Dynamic()
	s.Duration(&r.InactiveCheck, "brokerDeleteInactiveTopicsFrequencySeconds", 60, time.Second, "seconds between two looks for such topics").Dynamic()
	s.Func("brokerDeleteInactiveTopicsMode", "delete_when_no_subscriptions",
		"delete_when_no_subscriptions, or delete_when_subscriptions_caught_up: subscriptions without consumers and backlog are deleted with the topic",
		oneOf(&r.CaughtUp, "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")).Dynamic()
	s.Func("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "", "seconds without producers and consumers after which a topic counts as such; empty: as many as between two looks",
		optionalSeconds(&r.InactiveAfter)).In("s").Dynamic()
}

// oneOf sets p to whether the value is the second of two words.
func oneOf(p *bool, no, yes string) func(string) error {
	return func(v string) error {
		if v != no && v != yes {
			return fmt.Errorf("%q is neither %s nor %s", v, no, yes)
		}
		*p = v == yes
		return nil
	}
}

// optionalSeconds sets p to whole seconds, or to 0 when there is no value.
func optionalSeconds(p *time.Duration) func(string) error {
	return func(v string) error {
		*p = 0
		if v == "" {
			return nil
		}
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of seconds", v)
		}
		*p = time.Duration(n) * time.Second
		return nil
	}
}
