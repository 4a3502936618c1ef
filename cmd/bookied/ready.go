package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"geminga/rpc/bookiepb"
)

const (
	readyPatience = 500 * time.Millisecond // shorter than what the HTTP port gives a check, so that the reason arrives
	complainEvery = 10 * time.Second
)

// ready is nil when the bookie serves, else says what it waits for.
func (s *server) ready(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	err := s.bookie.Ready(try)
	if errors.Is(err, context.DeadlineExceeded) {
		return lacks(s.bookie.Status())
	}
	return err
}

// entries is nil unless some are known to be lost: what else there is is served, but somebody has to look.
func (s *server) entries(context.Context) error { return s.bookie.Unreadable() }

// lacks puts into words what keeps a bookie from being ready.
func lacks(st *bookiepb.StatusResponse) error {
	if m := st.GetMetadata(); m != nil && m.GetLeaderId() == "" {
		return fmt.Errorf("the metadata group has no leader: a majority of %s must run and reach each other", strings.Join(m.GetReplicas(), ", "))
	}
	for _, g := range st.GetGroups() {
		if g.GetLeaderId() == "" {
			return fmt.Errorf("ledger group %d has no leader: a majority of %s must run and reach each other",
				g.GetGroup(), strings.Join(g.GetReplicas(), ", "))
		}
	}
	return errors.New("no ledger group is open here: it waits for the metadata, to be registered there and to be told of its groups, or they cannot be opened")
}

// announce writes the ready line once the metadata answers and the groups have leaders, and until then, now and then,
// what is missing.
func (s *server) announce(ctx context.Context) {
	complained := time.Now()
	for ctx.Err() == nil {
		err := s.ready(ctx)
		switch {
		case err == nil:
			s.log.Info("bookied is ready", "bookie", s.bookie.BookieID(), "grpc", s.bookie.Address())
			return
		case ctx.Err() != nil:
			return
		case time.Since(complained) >= complainEvery:
			complained = time.Now()
			s.log.Warn("bookied is not ready yet", "bookie", s.bookie.BookieID(), "reason", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(readyPatience): // what has failed for good answers at once
		}
	}
}
