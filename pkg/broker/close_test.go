package broker

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
)

// While nobody answers, with a message under way, shutting down is quick and no error.
func TestCloseWhileNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &heldStore{}
		cluster := bookietest.New(bookietest.Options{Groups: 1})
		t.Cleanup(cluster.Close)
		s := startOn(t, cluster, func(o *Options) {
			inBubble(o)
			o.Ledger.LedgerStallTimeout = time.Hour
			store.Store, o.Store = o.Store, store
		})
		p := pipe(t, s)
		p.handshake()
		p.producer(name(1), 1, "")
		cluster.Delay(1, time.Minute)
		p.write(sendFrame(t, 1, 0, "x"))
		synctest.Wait()
		store.hold()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > silence+time.Second {
			t.Errorf("it took %v", d)
		}
		store.release()
	})
}

// While the ledgers of a topic are silent and the metadata answers, shutting down is quick and no error, and the bundle is
// given up, also when the time is short.
func TestCloseWhileLedgersAreSilent(t *testing.T) {
	n, err := protocol.ParseTopicName(name(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []time.Duration{8 * time.Second, silence + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			cluster := bookietest.New(bookietest.Options{Groups: 1})
			t.Cleanup(cluster.Close)
			s := startOn(t, cluster, func(o *Options) {
				inBubble(o)
				o.Ledger.LedgerStallTimeout = time.Hour
			})
			p := pipe(t, s)
			p.handshake()
			p.producer(name(1), 1, "")
			cluster.Hold(1)
			p.write(sendFrame(t, 1, 0, "x"))
			synctest.Wait()
			key := s.owners.owned(n).key
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Errorf("in %v: %v", limit, err)
			}
			if d := time.Since(start); d > stalled+time.Second {
				t.Errorf("in %v: it took %v", limit, d)
			}
			if owner := ownerIn(t, cluster, key); owner.Broker != "" {
				t.Errorf("in %v: the owner is still %+v", limit, owner)
			}
			cluster.Release(1)
		})
	}
}

func ownerIn(t *testing.T, cluster *bookietest.Cluster, key string) (info metadata.OwnerInfo) {
	t.Helper()
	answer := make(chan error, 1)
	cluster.Client().Get(key, func(item metadata.Item, err error) {
		answer <- errors.Join(err, json.Unmarshal(item.Value, &info))
	})
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	return info
}
