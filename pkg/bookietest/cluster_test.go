package bookietest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// log gathers what is called back.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) Appended(ref ledger.Ref, last ledger.EntryID, err error) {
	l.add("%d to %d: %v", ref.ID, last, err)
}

// take waits until nothing moves any more, then returns and forgets the lines.
func (l *log) take() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.lines, "; ")
	l.lines = nil
	return s
}

func (l *log) expect(t *testing.T, want string) {
	t.Helper()
	if got := l.take(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func bubble(t *testing.T, fn func(t *testing.T, c *bookietest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := bookietest.New(bookietest.Options{})
		fn(t, c)
		c.Close()
		if n := c.Retained(); n != 0 {
			t.Errorf("%d payloads retained", n)
		}
	})
}

func create(t *testing.T, cl *bookietest.Client, epoch ledger.Epoch) ledger.Ref {
	t.Helper()
	var ref ledger.Ref
	cl.Create(epoch, 0, func(r ledger.Ref, err error) {
		if err != nil {
			t.Error(err)
		}
		ref = r
	})
	synctest.Wait()
	return ref
}

func payloads(texts ...string) []ledger.Payload {
	var ps []ledger.Payload
	for _, s := range texts {
		ps = append(ps, ledger.Payload{Data: []byte(s)})
	}
	return ps
}

func TestAppendAndRead(t *testing.T) {
	bubble(t, func(t *testing.T, c *bookietest.Cluster) {
		l, cl := &log{}, c.Client()
		ref := create(t, cl, 1)
		l.mu.Lock() // a call inline would not come back
		cl.Append(ref, 1, 0, payloads("a", "b"), l)
		cl.Append(ref, 1, 2, payloads("c"), l)
		l.mu.Unlock()
		l.expect(t, "1 to 1: <nil>; 1 to 2: <nil>")
		read := func(first, confirmed ledger.EntryID, limits ledger.Limits) {
			cl.Read(ref, first, confirmed, limits, func(es []ledger.Entry, err error) {
				for _, e := range es {
					l.add("%s=%s", e.Position, e.Payload.Data)
					e.Payload.Release()
				}
				l.add("%v", err)
			})
		}
		read(0, 1, ledger.Limits{Entries: 9, Bytes: 100})
		l.expect(t, "1:0=a; 1:1=b; <nil>")
		read(1, 9, ledger.Limits{Entries: 9, Bytes: 1})
		l.expect(t, "1:1=b; <nil>")
		read(3, 9, ledger.Limits{Entries: 9, Bytes: 1})
		l.expect(t, "no such entry")
		c.Damage(ref, 1)
		read(0, 2, ledger.Limits{Entries: 9, Bytes: 100})
		l.expect(t, "1:0=a; <nil>")
		read(1, 2, ledger.Limits{Entries: 9, Bytes: 100})
		l.expect(t, "entry unreadable on this replica")
		cl.Delete(ref, func(err error) { l.add("deleted %v", err) })
		read(0, 2, ledger.Limits{Entries: 1})
		l.expect(t, "deleted <nil>; no such ledger")
		if c.Outstanding() != 0 {
			t.Errorf("%d payloads outstanding", c.Outstanding())
		}
	})
}

// The old owner is cut off, the new one takes over, then the old one's append arrives.
func TestFencingBetweenOwners(t *testing.T) {
	bubble(t, func(t *testing.T, c *bookietest.Cluster) {
		l, old, young := &log{}, c.Client(), c.Client()
		ref := create(t, old, 1)
		old.Append(ref, 1, 0, payloads("a"), l)
		synctest.Wait()
		old.Cut()
		old.Append(ref, 1, 1, payloads("b"), l)
		old.Append(ref, 1, 2, payloads("c"), l)
		l.expect(t, "1 to 0: <nil>")
		young.Fence(ref, 2, func(last ledger.EntryID, err error) { l.add("fenced at %d: %v", last, err) })
		young.Close(ref, 0, func(err error) { l.add("closed: %v", err) })
		l.expect(t, "fenced at 0: <nil>; closed: <nil>")
		old.Heal()
		l.expect(t, "1 to 0: ledger fenced by a newer epoch")
		old.Append(ref, 1, 3, payloads("d"), l)
		l.expect(t, "1 to 0: ledger fenced by a newer epoch")
		if got := c.Entries(ref); len(got) != 1 {
			t.Errorf("entries %q", got)
		}
	})
}

// Rollover on trouble: the group is silent, its appends are abandoned, and they are applied later nevertheless.
func TestHeldGroup(t *testing.T) {
	bubble(t, func(t *testing.T, c *bookietest.Cluster) {
		l, cl := &log{}, c.Client()
		ref := create(t, cl, 1)
		c.Hold(ref.Group)
		cl.Append(ref, 1, 0, payloads("a"), l)
		l.expect(t, "")
		cl.Abandon(ref)
		if c.Retained() != 0 {
			t.Error("abandoned payloads retained")
		}
		cl.Create(1, ref.Group, func(r ledger.Ref, err error) { l.add("other group %t %v", r.Group != ref.Group, err) })
		cl.Close(ref, ledger.NoEntry, func(err error) { l.add("closed %v", err) })
		l.expect(t, "other group true <nil>")
		c.Release(ref.Group)
		l.expect(t, "closed <nil>")
		if st, _ := c.State(ref); st.Last != ledger.NoEntry || !st.Closed || st.Summed != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestLostAndDelayedAcks(t *testing.T) {
	bubble(t, func(t *testing.T, c *bookietest.Cluster) {
		l, cl := &log{}, c.Client()
		ref := create(t, cl, 1)
		c.LoseAcks(ref.Group, true)
		cl.Append(ref, 1, 0, payloads("a"), l)
		l.expect(t, "")
		if len(c.Entries(ref)) != 1 {
			t.Error("not applied")
		}
		c.LoseAcks(ref.Group, false)
		l.expect(t, "1 to 0: <nil>")
		c.Delay(ref.Group, time.Second)
		start := time.Now()
		cl.Append(ref, 1, 1, payloads("b"), l)
		cl.Fence(ref, 1, func(ledger.EntryID, error) { l.add("fenced after %v", time.Since(start)) })
		l.expect(t, "")
		<-time.After(2 * time.Second) // virtual
		l.expect(t, "1 to 1: <nil>; fenced after 1s")
	})
}

func TestScriptedFaults(t *testing.T) {
	bubble(t, func(t *testing.T, c *bookietest.Cluster) {
		l, cl := &log{}, c.Client()
		done := func(out metadata.Outcome, err error) { l.add("%v %v", out.Err, err) }
		c.UnknownNext(bookietest.Commit, 1)
		cl.Commit(metadata.Txn{}.If("/k", 0).Then(metadata.Put("/k", []byte("v"))), done)
		cl.Commit(metadata.Txn{}.If("/k", 0).Then(metadata.Put("/k", []byte("w"))), done)
		l.expect(t, "<nil> outcome unknown; key has another version: /k: 1, not 0 <nil>")
		c.FailNext(bookietest.Get, 1, ledger.ErrOverloaded)
		get := func(it metadata.Item, err error) { l.add("%s %v", it.Value, err) }
		cl.Get("/k", get)
		cl.Get("/k", get)
		l.expect(t, " overloaded; v <nil>")
		ref := create(t, cl, 1)
		cl.UnknownNext(bookietest.Append, 1)
		c.Hold(ref.Group) // both are under way when the first fails
		cl.Append(ref, 1, 0, payloads("a"), l)
		cl.Append(ref, 1, 1, payloads("b"), l)
		c.Release(ref.Group)
		l.expect(t, "1 to -1: outcome unknown")
		cl.Abandon(ref)
		cl.Append(ref, 1, 0, payloads("a"), l)
		l.expect(t, "1 to 0: <nil>")
		for id := range ledger.GroupID(3) {
			c.Down(id + 1)
		}
		cl.Create(1, 0, func(_ ledger.Ref, err error) { l.add("%v", err) })
		cl.Append(ref, 1, 1, payloads("b"), l)
		cl.Close(ref, 0, func(err error) { l.add("closed %v", err) })
		l.expect(t, "no healthy ledger group; 1 to 0: outcome unknown")
		c.Up(ref.Group)
		l.expect(t, "closed <nil>")
	})
}

func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, c *bookietest.Cluster) {
		l, cl := &log{}, c.Client()
		c.Transact(metadata.Txn{}.Then(metadata.Put("/a/1", []byte("x")), metadata.Put("/b", nil)))
		ctx, cancel := context.WithCancel(t.Context())
		cl.Watch(ctx, "/a/", func(items []metadata.Item, synced bool) {
			for _, it := range items {
				l.add("%s@%d=%s %t", it.Key, it.Version, it.Value, synced)
			}
		})
		l.expect(t, "/a/1@1=x true")
		cl.Commit(metadata.Txn{}.Then(metadata.Delete("/a/1"), metadata.Put("/b", nil)), func(metadata.Outcome, error) { l.add("done") })
		l.expect(t, "/a/1@0= true; done")
		cancel()
		synctest.Wait()
		c.Transact(metadata.Txn{}.Then(metadata.Put("/a/2", nil)))
		l.expect(t, "")
	})
}

func TestShutdownAndKill(t *testing.T) {
	bubble(t, func(t *testing.T, c *bookietest.Cluster) {
		l, shut, killed := &log{}, c.Client(), c.Client()
		a, b := create(t, shut, 1), create(t, killed, 1)
		c.Hold(a.Group)
		c.LoseAcks(b.Group, true)
		shut.Append(a, 1, 0, payloads("a"), l)
		killed.Append(b, 1, 0, payloads("b"), l)
		synctest.Wait()
		shut.Shutdown()
		l.expect(t, "1 to -1: shutting down")
		killed.Kill()
		c.LoseAcks(b.Group, false)
		shut.Fence(b, 2, func(_ ledger.EntryID, err error) { l.add("%v", errors.Is(err, ledger.ErrShutdown)) })
		l.expect(t, "true")
		if len(c.Entries(b)) != 1 || len(c.Entries(a)) != 0 {
			t.Errorf("entries %q %q", c.Entries(a), c.Entries(b))
		}
	})
}
