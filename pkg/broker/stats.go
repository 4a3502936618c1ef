package broker

import (
	"context"
	"fmt"
	"slices"

	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// Topics returns the names of the topics that are open here, sorted.
func (s *Server) Topics() []string {
	var out []string
	for _, h := range s.topics.all(nil) {
		out = append(out, h.text)
	}
	slices.Sort(out)
	return out
}

// TopicStats returns figures of a topic in the shape that Pulsar's administrators know. ErrTopicNotHere says that it is
// not open on this broker.
func (s *Server) TopicStats(ctx context.Context, name string) (topic.Stats, error) {
	n, err := protocol.ParseTopicName(name)
	if err != nil {
		return topic.Stats{}, err
	}
	h := s.topics.serving(n.String())
	if h == nil {
		return topic.Stats{}, fmt.Errorf("%s: %w", n, ErrTopicNotHere)
	}
	answer := make(chan topic.Stats, 1)
	h.exec.PostFunc(func() { h.t.Stats(func(st topic.Stats) { answer <- st }) })
	select {
	case st := <-answer:
		return st, nil
	case <-ctx.Done():
		return topic.Stats{}, fmt.Errorf("stats of %s: %w", n, ctx.Err())
	}
}

// Unload closes a topic: its clients look it up again, and the next one opens it anew.
func (s *Server) Unload(ctx context.Context, name string) error {
	n, err := protocol.ParseTopicName(name)
	if err != nil {
		return err
	}
	h := s.topics.serving(n.String())
	if h == nil {
		return fmt.Errorf("%s: %w", n, ErrTopicNotHere)
	}
	done := make(chan error, 1)
	s.topics.unload(h, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("unload %s: %w", n, ctx.Err())
	}
}
