package main

import (
	"context"
	"fmt"
	"time"

	"geminga/integration/torture"
)

// unackedSets keep everything else out of the heap: the cache is as small as it may be and holds no receive buffers.
// The limits of unacknowledged messages are off. Garbage is collected by way of pprof's handler.
func unackedSets() []string {
	return []string{
		"pprofEnabled=true", "managedLedgerCacheSizeMB=1", "managedLedgerCacheCopyEntries=true",
		"maxUnackedMessagesPerConsumer=0", "maxUnackedMessagesPerSubscription=0",
	}
}

// unacked prints what is kept for messages that were delivered and not acknowledged.
func unacked(ctx context.Context, o options) error {
	unackedHeader()
	return unackedRow(ctx, o)
}

func unackedHeader() {
	fmt.Print("| read by, not acknowledged | deliveries | live heap of brokerd, bytes each |\n|---|---|---|\n")
}

func unackedRow(ctx context.Context, o options) error {
	o.reading.acks = acksNone
	o.brokerSets = append(o.brokerSets[:len(o.brokerSets):len(o.brokerSets)], unackedSets()...)
	return withCluster(ctx, o, func(addr string, d daemons) error {
		ctx, cancel := context.WithTimeout(ctx, o.limit)
		defer cancel()
		bytes, err := heapGrowth(ctx, o, addr, torture.Watch{PID: d.broker.PID(), HTTP: d.broker.HTTP})
		if err != nil {
			return fmt.Errorf("%v, unacknowledged: %w", o.reading, err)
		}
		deliveries := int64(o.unacked * o.reading.subscriptions)
		fmt.Printf("| %v | %d | %.0f |\n", o.reading, deliveries, per(float64(bytes), deliveries))
		return nil
	})
}

// heapGrowth returns by how much the live heap grows with o.unacked messages. As many are there before, so that buffers
// and the cache have their usual size.
func heapGrowth(ctx context.Context, o options, addr string, w torture.Watch) (int64, error) {
	cl, err := open(o, addr)
	defer cl.close()
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, cl.hangUp)()
	if err := cl.publishAndDrain(ctx, o.unacked); err != nil {
		return 0, err
	}
	before, err := liveHeap(ctx, w)
	if err != nil {
		return 0, err
	}
	if err := cl.publishAndDrain(ctx, o.unacked); err != nil {
		return 0, err
	}
	after, err := liveHeap(ctx, w)
	return after - before, err
}

// liveHeap returns the least of some looks: a few objects are always about to be garbage.
func liveHeap(ctx context.Context, w torture.Watch) (int64, error) {
	const looks, pause = 5, 300 * time.Millisecond
	s, err := w.Now(ctx)
	least := s.Heap
	for range looks - 1 {
		if err != nil {
			return 0, err
		}
		time.Sleep(pause)
		s, err = w.Now(ctx)
		least = min(least, s.Heap)
	}
	return least, err
}
