package topic

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

var discard = slog.New(slog.DiscardHandler)

// TestDispatchScripts runs the scripts of dispatchers against a fake cursor, one command at a time in virtual time.
func TestDispatchScripts(t *testing.T) {
	for _, name := range []string{"exclusive", "shared", "redelivery", "permits", "failover", "seek", "keyshared"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{t: t}
				defer func() { r.end() }()
				datadriven.RunTest(t, "testdata/"+name, r.run)
			})
		})
	}
}

// rig is a subscription under test. Its commands:
//
//	new [read-batch=n] [turn=n] [max-unacked=n] [max-unacked-sub=n] [partition=n] [ring] [look-ahead=n]
//	publish n=<entries> [batch=<messages>] [key=<key>]
//	publish keys=(<key>,…)    one entry each
//	subscribe c=<name> [type=shared] [priority=n] [out-of-order] [ranges=(<from>-<to>,…)]
//	flow c=<name> n=<permits>
//	ack c=<name> (<entry> | <entry>:<bits>)… [cumulative]
//	redeliver c=<name> [<entry>…]
//	seek c=<name> <entry> closes all consumers
//	close c=<name>        block c=<name>       resume c=<name>
//	hold                  reads stay under way until…
//	complete              …now
//	fail n=<reads>        advance d=<duration>
//	state
type rig struct {
	t         *testing.T
	pool      *executor.Pool
	sub       *subscription
	cursor    *fakeCursor
	sinks     map[string]*fakeSink
	consumers map[string]*Consumer
	held      bool
	ids       uint64
}

func (r *rig) run(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "new" {
		r.start(d)
		return ""
	}
	var err error
	r.on(func() { err = r.command(t, d) })
	r.settle()
	out := r.events()
	if err != nil {
		out += "error: " + err.Error() + "\n"
	}
	if d.Cmd == "state" {
		r.on(func() { out += r.state() })
	}
	return out
}

func (r *rig) start(d *datadriven.TestData) {
	r.end()
	var o Options
	maybe(d, "read-batch", &o.DispatcherMaxReadBatchSize)
	maybe(d, "turn", &o.DispatcherMaxRoundRobinBatchSize)
	maybe(d, "max-unacked", &o.MaxUnackedMessagesPerConsumer)
	maybe(d, "max-unacked-sub", &o.MaxUnackedMessagesPerSubscription)
	maybe(d, "look-ahead", &o.KeySharedLookAheadMsgInReplayThresholdPerConsumer)
	o.SubscriptionKeySharedHashRanges = !d.HasArg("ring")
	r.pool = executor.NewPool(executor.Options{Threads: 1})
	r.cursor = newFakeCursor()
	r.sub = newTestSubscription(r.pool.Next(), o, r.cursor)
	maybe(d, "partition", &r.sub.partition)
	r.sinks, r.consumers, r.held = map[string]*fakeSink{}, map[string]*Consumer{}, false
}

func maybe(d *datadriven.TestData, key string, to *int) {
	if d.HasArg(key) {
		arg, _ := d.Arg(key)
		n, err := strconv.Atoi(arg.Vals[0])
		if err != nil {
			n = -999
		}
		*to = n
	}
}

func (r *rig) end() {
	if r.pool == nil {
		return
	}
	r.on(func() {
		r.sub.shutDown(func(error) {})
		r.cursor.complete()
	})
	synctest.Wait()
	r.pool.Close()
	r.pool = nil
	if n := r.cursor.owner.refs.Load(); n != 0 {
		r.t.Errorf("%d payload references left", n)
	}
}

// on runs fn on the subscription's executor and waits.
func (r *rig) on(fn func()) {
	done := make(chan struct{})
	r.sub.exec.PostFunc(func() {
		defer close(done)
		fn()
	})
	<-done
}

// settle lets reads complete until nothing moves any more.
func (r *rig) settle() {
	for again := !r.held; again; {
		synctest.Wait()
		r.on(func() { again = r.cursor.complete() })
	}
	synctest.Wait()
}

func (r *rig) command(t *testing.T, d *datadriven.TestData) error {
	var name string
	var c *Consumer
	if d.HasArg("c") {
		d.ScanArgs(t, "c", &name)
		c = r.consumers[name]
	}
	n := 1
	maybe(d, "n", &n)
	switch d.Cmd {
	case "publish":
		batch := 0
		maybe(d, "batch", &batch)
		for _, key := range keysIn(d, n) {
			r.cursor.add(keyedPayload(t, key, uint64(len(r.cursor.log)), int32(batch)))
		}
		r.cursor.unpark()
	case "subscribe":
		return r.subscribe(d, name)
	case "flow":
		c.Flow(uint32(n))
	case "ack":
		return r.ack(d, c)
	case "redeliver":
		ps, _ := positions(d)
		c.Redeliver(ps)
	case "seek":
		return r.seek(d, c)
	case "close":
		c.Close(nil)
	case "block", "resume":
		r.sinks[name].blocked = d.Cmd == "block"
		if d.Cmd == "resume" {
			c.Resume()
		}
	case "hold":
		r.held = true
	case "complete":
		r.held = false
	case "fail":
		r.cursor.failing = n
	case "advance":
		var text string
		d.ScanArgs(t, "d", &text)
		by, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		<-time.After(by)
	case "state":
	default:
		return errors.New("unknown command")
	}
	return nil
}

func (r *rig) subscribe(d *datadriven.TestData, name string) error {
	types := map[string]SubType{"exclusive": Exclusive, "shared": Shared, "failover": Failover, "keyshared": KeyShared}
	kind := "exclusive"
	priority := 0
	if d.HasArg("type") {
		d.ScanArgs(r.t, "type", &kind)
	}
	maybe(d, "priority", &priority)
	var ranges []KeyRange
	if d.HasArg("ranges") {
		arg, _ := d.Arg("ranges")
		for _, v := range arg.Vals {
			var x KeyRange
			if _, err := fmt.Sscanf(v, "%d-%d", &x.Start, &x.End); err != nil {
				return err
			}
			ranges = append(ranges, x)
		}
	}
	r.ids++
	sink := newFakeSink(r.t, name)
	var failed error
	r.sub.connect(SubscribeRequest{
		Subscription: "sub", Type: types[kind], ConsumerID: r.ids, ConsumerName: name, PriorityLevel: int32(priority),
		Durable: true, Sink: sink, Keys: KeyPolicy{Sticky: d.HasArg("ranges"), OutOfOrder: d.HasArg("out-of-order")}, KeyRanges: ranges,
	}, func(c *Consumer, err error) {
		if failed = err; err == nil {
			r.sinks[name], r.consumers[name] = sink, c
		}
	})
	return failed
}

// keysIn are the keys of the entries to publish; without one each entry is on its own.
func keysIn(d *datadriven.TestData, n int) []string {
	if arg, ok := d.Arg("keys"); ok {
		return arg.Vals
	}
	key := ""
	if arg, ok := d.Arg("key"); ok {
		key = arg.Vals[0]
	}
	return slices.Repeat([]string{key}, n)
}

func (r *rig) ack(d *datadriven.TestData, c *Consumer) error {
	ps, sets := positions(d)
	q := AckRequest{Positions: ps, AckSets: sets}
	if d.HasArg("cumulative") {
		q.Type = AckCumulative
	}
	var failed error
	calls := 0
	q.Done = func(err error) { failed, calls = err, calls+1 }
	c.Ack(q)
	if calls != 1 {
		return fmt.Errorf("done was called %d times", calls)
	}
	return failed
}

func (r *rig) seek(d *datadriven.TestData, c *Consumer) error {
	ps, _ := positions(d)
	failed := errors.New("no answer")
	c.Seek(ps[0], func(err error) { failed = err })
	return failed
}

// positions reads arguments like 7 and 7:1011.
func positions(d *datadriven.TestData) (ps []ledger.Position, sets [][]int64) {
	for _, a := range d.CmdArgs {
		text, bits, partial := strings.Cut(a.Key, ":")
		n, err := strconv.Atoi(text)
		if err != nil {
			continue
		}
		ps = append(ps, ledger.Position{Ledger: 1, Entry: ledger.EntryID(n)})
		var set []int64
		if partial {
			set = setOf(bits)
		}
		sets = append(sets, set)
	}
	return ps, sets
}

func (r *rig) events() string {
	var out []string
	for _, s := range r.sinks {
		out = append(out, s.events...)
		s.events = nil
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	if len(out) == 0 {
		return ""
	}
	return strings.Join(out, "\n") + "\n"
}

func (r *rig) state() string {
	var b strings.Builder
	s := r.sub
	for _, c := range s.consumers {
		fmt.Fprintf(&b, "%s: permits=%d avg=%.1f", c.Name, c.permits(), c.average.value)
		if !s.single() {
			fmt.Fprintf(&b, " unacked=%d", c.unacked)
		}
		if c.blocked {
			b.WriteString(" blocked")
		}
		if c == s.active {
			b.WriteString(" active")
		}
		if s.keys != nil {
			b.WriteString(" hashes")
			s.keys.spans.each(c, func(x KeyRange) { fmt.Fprintf(&b, " %d-%d", x.Start, x.End) })
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "mark=%d read=%d backlog=%d", r.cursor.mark, r.cursor.next, r.cursor.Backlog())
	if n := s.again.replay.len(); n > 0 {
		fmt.Fprintf(&b, " replay=%d", n)
	}
	if k := s.keys; k != nil && k.wait.len() > 0 {
		fmt.Fprintf(&b, " wait=%d", k.wait.len())
	}
	if n := len(r.cursor.parts); n > 0 {
		var keys []string
		for p, set := range r.cursor.parts {
			keys = append(keys, fmt.Sprintf("%d[%s]", p, bitsOf(set)))
		}
		sort.Strings(keys)
		fmt.Fprintf(&b, " parts=%s", strings.Join(keys, ","))
	}
	if r.cursor.parked != nil {
		b.WriteString(" waiting")
	}
	if why := s.whyIdle(); why != "" {
		fmt.Fprintf(&b, "\n%s", why.Text())
	}
	b.WriteString("\n")
	return b.String()
}
