package broker

import (
	"context"
	"fmt"
	"time"

	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// TopicRules say which topics and subscriptions come into being because a client names them, and which topics go because
// nobody uses them. All of it can be changed at run time. The zero value makes everything and deletes nothing.
type TopicRules struct {
	DisableAutoTopicCreation        bool // allowAutoTopicCreation=false
	DisableAutoSubscriptionCreation bool // allowAutoSubscriptionCreation=false
	AutoPartitioned                 bool // allowAutoTopicCreationType=partitioned: topics that clients make have partitions
	DefaultPartitions               int  // defaultNumPartitions: so many

	DeleteInactive bool // brokerDeleteInactiveTopicsEnabled
	// CaughtUp deletes topics whose subscriptions have no backlog, too; else those without subscriptions only
	// (brokerDeleteInactiveTopicsMode).
	CaughtUp      bool
	InactiveCheck time.Duration // brokerDeleteInactiveTopicsFrequencySeconds
	// InactiveAfter is for how long nobody must have used a topic; 0: InactiveCheck
	// (brokerDeleteInactiveTopicsMaxInactiveDurationSeconds).
	InactiveAfter time.Duration
}

// EnsureDefaults fills in what is not set.
func (r *TopicRules) EnsureDefaults() {
	def(&r.DefaultPartitions, 1)
	def(&r.InactiveCheck, time.Minute)
	def(&r.InactiveAfter, r.InactiveCheck)
}

func (r *TopicRules) validate(check func(ok bool, format string, args ...any)) {
	check(r.DefaultPartitions > 0, "defaultNumPartitions is %d", r.DefaultPartitions)
	check(r.InactiveCheck > 0, "brokerDeleteInactiveTopicsFrequencySeconds is %v", r.InactiveCheck)
	check(r.InactiveAfter > 0, "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds is %v", r.InactiveAfter)
}

// sweep deletes topics that nobody uses, until ctx ends. Only those that are open here can be told from topics that are in
// use; one that no client has looked up since the broker took it stays.
func (s *Server) sweep(ctx context.Context) {
	for {
		timer := time.NewTimer(s.rules.Load().InactiveCheck)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if r := s.rules.Load(); r.DeleteInactive {
			for _, h := range s.topics.all(nil) {
				h.exec.PostFunc(func() { s.topics.removeUnused(h, r) })
			}
		}
	}
}

// removeUnused deletes a topic that nobody has used for long. On its executor, on which clients come and go, too: whoever
// comes before is seen here, whoever comes later finds the topic closing, is told to come again, and makes a new one.
func (ts *topics) removeUnused(h *hosted, r *TopicRules) {
	if ts.serving(h.text) != h {
		return
	}
	h.t.UnusedFor(r.CaughtUp, func(d time.Duration) {
		if d < r.InactiveAfter {
			return
		}
		ts.remove(h, false, func(err error) {
			if err != nil {
				ts.server.log.Warn("Inactive topic is not deleted", "topic", h.text, "reason", err)
				return
			}
			ts.server.log.Info("Inactive topic deleted", "topic", h.text, "unused", d)
		})
	})
}

// mayMake reports whether a topic comes into being because a client names it, and allows it.
func (s *Server) mayMake(allowed bool) bool {
	return allowed && !s.rules.Load().DisableAutoTopicCreation
}

// partitionsOrMake reads the number of partitions of a topic that a client wants to use. A topic that does not exist is made
// with partitions, if the rules say so; errNoSuchTopic, if it must not be made at all. done comes on any goroutine.
func (s *Server) partitionsOrMake(n protocol.TopicName, create bool, done func(uint32, error)) {
	getPartitions(s.opts.Store, n, func(info partitionedInfo, version int64, err error) {
		r := s.rules.Load()
		switch {
		case err != nil || version != 0 || !n.IsPersistent():
			done(info.Partitions, err)
		case !s.mayMake(create):
			s.exists(n, func(ok bool, err error) {
				if err == nil && !ok {
					err = fmt.Errorf("%s: %w", n, errNoSuchTopic)
				}
				done(0, err)
			})
		case r.AutoPartitioned && n.Partition < 0:
			s.makePartitioned(n, r.DefaultPartitions, done)
		default:
			done(0, nil)
		}
	})
}

// makePartitioned makes a topic with partitions unless it exists; done gets their number, 0 if it exists without.
func (s *Server) makePartitioned(n protocol.TopicName, partitions int, done func(uint32, error)) {
	txn, err := withPartitions(metadata.Txn{}.If(topic.Key(n), 0), n, 0, partitions)
	if err != nil {
		done(0, err)
		return
	}
	s.opts.Store.Commit(txn, func(_ metadata.Outcome, err error) {
		if err != nil {
			done(0, fmt.Errorf("%w: %w", errMetadata, err))
			return
		}
		readPartitions(s.opts.Store, n, done) // ours, or another's that was faster
	})
}
