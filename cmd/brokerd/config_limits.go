package main

import (
	"time"

	"geminga/cmd/internal/settings"
)

// registerLimits registers how much clients may have and ask for.
func (c *config) registerLimits(s *settings.Set) {
	l := &c.options.Limits
	s.Limit(&l.Connections, "brokerMaxConnections", 0, "clients beyond are told so and closed; 0, and more than that: as many as the process may have files open, less 200 and a fiftieth for everything else").In("connections")
	s.Limit(&l.ConnectionsPerIP, "brokerMaxConnectionsPerIp", 0, "the same for the clients at one address; 0: no limit").In("connections")
	s.Limit(&l.Producers, "maxProducersPerConnection", 100_000, "producers that one connection may have; 0: no limit").In("producers")
	s.Limit(&l.Consumers, "maxConsumersPerConnection", 100_000, "consumers that one connection may have; 0: no limit").In("consumers")
	s.Limit(&l.Requests, "maxPendingRequestsPerConnection", 50_000, "lookups, and openings of producers and consumers, of a connection that are not answered; more are refused, and clients try again; 0: no limit").In("requests")
	s.Limit(&l.Lookups, "maxConcurrentLookupRequest", 50_000, "lookups of all connections that are under way; more are refused, and clients try again; 0: no limit").In("requests").Dynamic()
	s.Limit(&l.TopicLoads, "maxConcurrentTopicLoadRequest", 5000, "topics that are opened at a time; others wait; 0: no limit").In("topics").Dynamic()
	s.Limit(&l.SubscribeRate.Times, "subscribeThrottlingRatePerConsumer", 0, "how often one consumer may subscribe to a topic in the period below; more are refused, and clients try again; 0: no limit").In("requests per period").Dynamic()
	s.Duration(&l.SubscribeRate.Period, "subscribeRatePeriodPerConsumerInSecond", 30, time.Second, "period of the setting above").Dynamic()
}
