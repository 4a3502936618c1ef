package main

import (
	"time"

	"geminga/cmd/internal/settings"
)

// registerLimits registers how much clients may have and ask for.
func (c *config) registerLimits(s *settings.Set) {
	l := &c.options.Limits
	count := settings.Range{Min: 0, Max: unlimited}
	s.Int(&l.Connections, "brokerMaxConnections", 0, count, "clients beyond are told so and closed; 0, and more than that: as many as the process may have files open, less 200 and a fiftieth for everything else").In("connections")
	s.Int(&l.ConnectionsPerIP, "brokerMaxConnectionsPerIp", 0, count, "the same for the clients at one address; 0: no limit").In("connections")
	s.Int(&l.Producers, "maxProducersPerConnection", 100_000, count, "producers that one connection may have; 0: no limit").In("producers")
	s.Int(&l.Consumers, "maxConsumersPerConnection", 100_000, count, "consumers that one connection may have; 0: no limit").In("consumers")
	s.Int(&l.Requests, "maxPendingRequestsPerConnection", 50_000, count, "lookups, and openings of producers and consumers, of a connection that are not answered; more are refused, and clients try again; 0: no limit").In("requests")
	s.Int(&l.Lookups, "maxConcurrentLookupRequest", 50_000, count, "lookups of all connections that are under way; more are refused, and clients try again; 0: no limit").In("requests").Dynamic()
	s.Int(&l.TopicLoads, "maxConcurrentTopicLoadRequest", 5000, count, "topics that are opened at a time; others wait; 0: no limit").In("topics").Dynamic()
	s.Int(&l.SubscribeRate.Times, "subscribeThrottlingRatePerConsumer", 0, count, "how often one consumer may subscribe to a topic in the period below; more are refused, and clients try again; 0: no limit").In("requests per period").Dynamic()
	s.Duration(&l.SubscribeRate.Period, "subscribeRatePeriodPerConsumerInSecond", 30, time.Second, "period of the setting above").Dynamic()
}
