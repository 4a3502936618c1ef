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
	h, err := s.serving(name)
	if err != nil {
		return topic.Stats{}, err
	}
	return await(ctx, "stats of "+h.text, func(done func(topic.Stats, error)) {
		h.exec.PostFunc(func() { h.t.Stats(func(st topic.Stats) { done(st, nil) }) })
	})
}

// serving finds a topic that is open here; ErrTopicNotHere otherwise.
func (s *Server) serving(name string) (*hosted, error) {
	n, err := protocol.ParseTopicName(name)
	if err != nil {
		return nil, err
	}
	h := s.topics.serving(n.String())
	if h == nil {
		return nil, fmt.Errorf("%s: %w", n, ErrTopicNotHere)
	}
	return h, nil
}

// Unload closes a topic: its clients look it up again, and the next one opens it anew.
func (s *Server) Unload(ctx context.Context, name string) error {
	h, err := s.serving(name)
	if err != nil {
		return err
	}
	_, err = await(ctx, "unload "+h.text, func(done func(struct{}, error)) {
		s.topics.unload(h, func(err error) { done(struct{}{}, err) })
	})
	return err
}
