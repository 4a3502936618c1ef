package managedledger

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// record is a metadata key that one owner at a time writes: each put names the version that the owner wrote or read
// last. It lives on one executor.
//
// An outcome may stay unknown: the put may have happened, may happen later, or never. The record settles it by reading:
//
//	our value is there       → it has happened
//	the version we put upon  → it has not; the same put is tried again. Should the first one arrive still, exactly one of
//	                           the two wins, because both name the same version
//	anything else            → somebody else writes this key: errConflict
//
// Values of one owner differ from one another, or it does not matter which of two equal ones was written.
type record struct {
	store    Store
	executor *executor.Executor
	key      string
	version  int64

	value   []byte // being put; nil: being deleted
	done    func(error)
	retries int
	stopped bool
}

const (
	retryFirst = 5 * time.Millisecond
	retryMost  = time.Second
)

// backoff doubles from retryFirst to retryMost.
func backoff(n int) time.Duration { return min(retryFirst<<min(n, 20), retryMost) }

// put writes the value. One at a time. done: nil, errConflict, or an error that no retry can heal.
func (r *record) put(value []byte, done func(error)) {
	r.value, r.done, r.retries = value, done, 0
	r.commit()
}

// remove deletes the key. done as in put.
func (r *record) remove(done func(error)) { r.put(nil, done) }

// stop answers a put under way with ErrClosed; its outcome stays unknown.
func (r *record) stop() {
	r.stopped = true
	r.finish(ErrClosed)
}

func (r *record) commit() {
	op := metadata.Put(r.key, r.value)
	if r.value == nil {
		op = metadata.Delete(r.key)
	}
	txn := metadata.Txn{}.If(r.key, r.version).Then(op)
	r.store.Commit(txn, func(out metadata.Outcome, err error) {
		r.executor.PostFunc(func() { r.committed(out, err) })
	})
}

func (r *record) committed(out metadata.Outcome, err error) {
	switch {
	case r.stopped:
	case errors.Is(err, ledger.ErrShutdown):
		r.finish(err)
	case err != nil:
		r.later(r.inspect)
	case out.Err == nil:
		r.version = out.Versions[0]
		r.finish(nil)
	case errors.Is(out.Err, metadata.ErrBadVersion):
		// Either somebody else has put, or an earlier attempt of ours has.
		r.inspect()
	default:
		r.finish(fmt.Errorf("managedledger: put %s: %w", r.key, out.Err))
	}
}

func (r *record) inspect() {
	r.store.Get(r.key, func(item metadata.Item, err error) {
		r.executor.PostFunc(func() { r.inspected(item, err) })
	})
}

func (r *record) inspected(item metadata.Item, err error) {
	switch {
	case r.stopped:
	case errors.Is(err, ledger.ErrShutdown):
		r.finish(err)
	case err != nil:
		r.later(r.inspect)
	case item.Version == r.version:
		r.later(r.commit)
	case r.value == nil && item.Version == 0,
		r.value != nil && item.Version != 0 && bytes.Equal(item.Value, r.value):
		r.version = item.Version
		r.finish(nil)
	default:
		r.finish(fmt.Errorf("%w: %s at version %d, not %d", errConflict, r.key, item.Version, r.version))
	}
}

func (r *record) later(step func()) {
	r.executor.After(backoff(r.retries), executor.Func(func() {
		if !r.stopped {
			step()
		}
	}))
	r.retries++
}

func (r *record) finish(err error) {
	if done := r.done; done != nil {
		r.done, r.value = nil, nil
		done(err)
	}
}
