package topic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// TestRandomDispatch drives subscriptions with random joins, leaves, grants, acknowledgements, redeliveries, blocked
// connections, failing reads, seeks, publishes, times of delivery, rates, and a limit that it shares with others, and checks after each step what
// subscription promises: permits conserved, unacknowledged never negative, nothing acknowledged delivered again, nothing
// before its time, nothing
// from before a seek, nothing to consumers that have left, order without gaps on Exclusive and Failover, order of each key on Key_Shared
// and a key unacknowledged at one consumer at a time, no stall. At the end everything is acknowledged and nothing is
// retained.
func TestRandomDispatch(t *testing.T) {
	for seed := range seeds(150) {
		exec := executor.New("test")
		done := make(chan struct{})
		exec.PostFunc(func() {
			defer close(done)
			newRandomRun(t, exec, uint64(seed)).run()
		})
		<-done
		exec.Close()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type randomRun struct {
	t         *testing.T
	rnd       *rand.Rand
	s         *subscription
	f         *fakeCursor
	kind      SubType
	consumers []*model
	serving   *Consumer // the subscription's, as last seen
	policy    KeyPolicy
	keys      keyOracle
	ids       uint64
	acked     map[int]bool // wholly acknowledged entries
	once      map[int]bool // were delivered
	batch     map[int]int32
	history   []string
	gone      []*model // left, or were closed
	limit     *UnackedLimit
	shared    *RateLimit   // of the topic
	others    int64        // of the limit
	freed     bool         // a wake-up is posted
	delaying  bool         // messages may have a time of delivery
	early     map[int]bool // entries with such a time: it has not come yet
}

// farFuture is a time of delivery that does not come during a run, in ms, but when the run says so (come).
const farFuture = 1 << 44

// model is what the test knows of a consumer.
type model struct {
	c       *Consumer
	sink    *fakeSink
	seen    int // deliveries looked at
	granted int64
	got     int64
	pending map[int]bool
	last    int // exclusive: last entry of the current pass
}

func newRandomRun(t *testing.T, exec *executor.Executor, seed uint64) *randomRun {
	rnd := rand.New(rand.NewPCG(seed, 17))
	f := newFakeCursor()
	f.inline, f.restart = rnd.IntN(3) == 0, rnd.IntN(2) == 0
	o := someOptions(rnd)
	r := &randomRun{
		t: t, rnd: rnd, f: f, s: newTestSubscription(exec, o, f),
		acked: map[int]bool{}, once: map[int]bool{}, batch: map[int]int32{}, early: map[int]bool{}, delaying: rnd.IntN(2) == 0, keys: newKeyOracle(2 + rnd.IntN(30)),
	}
	r.shared = newDispatchLimit(someRate(rnd))
	r.s.setUpRates(r.shared)
	r.chooseKind()
	r.share(NewUnackedLimit(Options{
		MaxUnackedMessagesPerBroker: 20 + rnd.IntN(200), MaxUnackedMessagesPerSubscriptionOnBrokerBlocked: 0.3,
	}))
	return r
}

func someOptions(rnd *rand.Rand) Options {
	o := Options{
		DispatcherMaxReadBatchSize:       1 + rnd.IntN(40),
		DispatcherMaxRoundRobinBatchSize: 1 + rnd.IntN(5),
		MaxUnackedMessagesPerConsumer:    []int{-1, 0, 10, 50}[rnd.IntN(4)],
		ReadRetryMin:                     1,
		ReadRetryMax:                     1,
		ActiveConsumerFailoverDelay:      []time.Duration{-1, time.Hour}[rnd.IntN(2)],
		KeySharedUnblockingInterval:      []time.Duration{-1, time.Hour}[rnd.IntN(2)],
		SubscriptionKeySharedHashRanges:  rnd.IntN(2) == 0,

		SubscriptionKeySharedConsistentHashingReplicaPoints: 1 + rnd.IntN(20),
		KeySharedLookAheadMsgInReplayThresholdPerConsumer:   []int{-1, 5, 50}[rnd.IntN(3)],
	}
	if rnd.IntN(4) == 0 {
		o.MaxUnackedMessagesPerSubscription = 40
	}
	o.DispatchRatePerSubscription, o.DispatchThrottlingOnlyOfBacklog = someRate(rnd), rnd.IntN(3) == 0
	return o
}

// configure changes what can be changed at run time: the options, the limit that is shared with others, and the topic's rate.
func (r *randomRun) configure() {
	n := someOptions(r.rnd)
	n.EnsureDefaults()
	n.MaxUnackedMessagesPerBroker = []int{0, 20, 100, 300}[r.rnd.IntN(4)]
	o := r.s.opts.with(&n)
	o.DispatchRatePerTopic = someRate(r.rnd)
	r.note("configure %+v", o)
	r.limit.Set(o)
	r.shared = changed(r.shared, o.DispatchRatePerTopic)
	r.s.configure(&o, r.shared)
}

// earn lets time pass for a limit.
func (l *RateLimit) earn(d time.Duration) {
	l.messages.empty.Add(-int64(d))
	l.bytes.empty.Add(-int64(d))
}

// someRate is a rate that is reached within a run, or none.
func someRate(rnd *rand.Rand) (r MaxRate) {
	if rnd.IntN(3) == 0 {
		r.Messages = 1 + rnd.Int64N(500)
	}
	if rnd.IntN(4) == 0 {
		r.Bytes = 1 + rnd.Int64N(20_000)
	}
	return r
}

// share makes the subscription one of several under a limit.
func (r *randomRun) share(l *UnackedLimit) {
	r.limit = l
	r.s.setUpBrokerShare(l)
	r.s.broker.onFree = func() { r.freed = true }
}

func (r *randomRun) chooseKind() {
	r.kind = SubType(r.rnd.IntN(5))
	if r.kind > KeyShared {
		r.kind = KeyShared // twice as often as others
	}
	r.policy = KeyPolicy{Sticky: r.rnd.IntN(4) == 0, OutOfOrder: r.rnd.IntN(6) == 0}
}

func (r *randomRun) single() bool { return r.kind == Exclusive || r.kind == Failover }

func (r *randomRun) run() {
	for range 200 {
		r.step()
		r.observe()
		if r.t.Failed() {
			for _, h := range r.history[max(0, len(r.history)-40):] {
				r.t.Log(h)
			}
			return
		}
	}
	r.finish()
}

func (r *randomRun) note(format string, args ...any) {
	r.history = append(r.history, fmt.Sprintf(format, args...))
}

func (r *randomRun) step() {
	m := r.any()
	switch n := r.rnd.IntN(100); {
	case n < 20:
		r.publish(1 + r.rnd.IntN(10))
	case n < 28:
		r.join()
	case n < 32 && m != nil:
		r.leave(m)
	case n < 52 && m != nil:
		r.flow(m, 1+r.rnd.IntN(30))
	case n < 75 && m != nil:
		r.ack(m)
	case n < 78 && m != nil:
		r.ackPart(m)
	case n < 80 && m != nil:
		r.ackLate(m)
	case n < 85 && m != nil:
		r.redeliver(m)
	case n < 89 && m != nil:
		m.sink.blocked = !m.sink.blocked
		r.note("blocked %d %v", m.c.ID, m.sink.blocked)
		if !m.sink.blocked {
			m.c.Resume()
		}
	case n < 90 && m != nil && r.rnd.IntN(3) == 0:
		r.seek(m)
	case n < 91:
		r.load()
	case n < 92 && r.rnd.IntN(2) == 0:
		r.configure()
	case n < 92:
		r.f.failing += r.rnd.IntN(2)
		r.f.partial = r.rnd.IntN(4)
	default:
		r.note("complete")
		r.f.complete()
	}
	r.fire(func() bool { return r.rnd.IntN(2) == 0 })
}

// fire lets timers run that are due: they cannot do it themselves, since this run is one task.
func (r *randomRun) fire(due func() bool) {
	if t := r.s.read.retry; t != nil && due() && t.Stop() {
		r.s.read.onRetry.Run()
	}
	if t := r.s.takeover.timer; t != nil && due() && t.Stop() {
		r.note("takeover")
		r.s.takeover.due = time.Time{}
		r.s.takeover.onTimer.Run()
	}
	if k := r.s.keys; k != nil && k.timer != nil && due() && k.timer.Stop() {
		r.note("drained")
		k.onDrained.Run()
	}
	if r.s.rates.waiting() && due() {
		r.note("tokens")
		r.s.rates.stop()
		for _, l := range []*RateLimit{r.s.rates.own, r.s.rates.shared} {
			if l != nil {
				l.earn(l.Wait(time.Now()))
			}
		}
		r.s.rates.onTimer.Run()
	}
	if len(r.s.delays.heap) > 0 && due() {
		r.come()
	}
	if r.s.read.yielded {
		r.s.read.onYield.Run()
	}
	if r.freed && due() {
		r.freed = false
		r.s.brokerFreed()
	}
}

// come makes the time of the first delayed entries come.
func (r *randomRun) come() {
	d := &r.s.delays
	first := d.heap[0].millis()
	for i := range d.heap {
		if e := &d.heap[i]; e.millis() == first { // they stay the first, in their order
			e.due = 1<<16 | uint64(keyHash(e.due))
			r.early[int(e.at.Entry)] = false
		}
	}
	r.note("time is %d", first)
	if d.timer != nil && d.timer.Stop() {
		d.onTimer.Run()
	}
}

// load changes what other subscriptions have of the limit.
func (r *randomRun) load() {
	n := r.rnd.Int64N(1+r.limit.limit.Load()) - r.others
	r.note("others %+d", n)
	r.others += n
	r.limit.add(n)
}

// seek moves the subscription, which closes all consumers. What lies before the place counts as acknowledged.
func (r *randomRun) seek(m *model) {
	to := r.rnd.IntN(len(r.f.log) + 1)
	r.note("seek %d to %d", m.c.ID, to)
	m.c.Seek(r.f.at(to), func(error) {})
	for _, o := range r.consumers {
		if !slices.Contains(o.sink.events, fmt.Sprintf("c: close consumer %d", o.c.ID)) {
			r.t.Errorf("consumer %d was not told of the seek", o.c.ID)
		}
	}
	r.gone, r.consumers = append(r.gone, r.consumers...), nil
	clear(r.acked)
	clear(r.once)
	for i := range to {
		r.acked[i] = true
	}
	r.keys.restore()
}

func (r *randomRun) any() *model {
	if len(r.consumers) == 0 {
		return nil
	}
	return r.consumers[r.rnd.IntN(len(r.consumers))]
}

func (r *randomRun) publish(n int) {
	r.note("publish %d at %d", n, len(r.f.log))
	for range n {
		i := len(r.f.log)
		size := int32(0)
		if r.rnd.IntN(2) == 0 {
			size = 1 + r.rnd.Int32N(12)
		}
		r.batch[i] = max(1, size)
		key := r.keys.publish(i, r.rnd)
		due := int64(0)
		if r.delaying && r.rnd.IntN(4) == 0 {
			due = farFuture + r.rnd.Int64N(1000)
			r.early[i] = true
		}
		r.f.add(delayedPayload(r.t, key, uint64(i), size, due))
	}
	r.f.unpark()
}

func (r *randomRun) join() { r.joinWith(r.ranges()) }

// ranges are some that a sticky consumer may ask for.
func (r *randomRun) ranges() []KeyRange {
	const part = keyHashes / 8
	from, to := r.rnd.Int32N(8), r.rnd.Int32N(8)
	return []KeyRange{{min(from, to) * part, (max(from, to)+1)*part - 1}}
}

func (r *randomRun) joinWith(ranges []KeyRange) {
	r.ids++
	m := &model{sink: newFakeSink(r.t, "c"), pending: map[int]bool{}, last: -1}
	r.s.connect(SubscribeRequest{
		Type: r.kind, ConsumerID: r.ids, ConsumerName: fmt.Sprint(r.rnd.IntN(100)), Sink: m.sink,
		PriorityLevel: r.rnd.Int32N(2), Durable: true, Keys: r.policy, KeyRanges: ranges,
	}, func(c *Consumer, err error) { m.c = c })
	if m.c != nil {
		r.note("join %d", m.c.ID)
		r.consumers = append(r.consumers, m)
	}
}

func (r *randomRun) leave(m *model) {
	r.note("leave %d", m.c.ID)
	r.consumers = slices.DeleteFunc(r.consumers, func(o *model) bool { return o == m })
	m.c.Close(nil)
	r.gone = append(r.gone, m)
	r.observe()
	if len(r.consumers) == 0 && r.rnd.IntN(2) == 0 {
		r.chooseKind()
	}
}

func (r *randomRun) flow(m *model, n int) {
	r.note("flow %d %d", m.c.ID, n)
	m.granted += int64(n)
	m.c.Flow(uint32(n))
}

// ack acknowledges some of what m has seen.
func (r *randomRun) ack(m *model) {
	var ps []ledger.Position
	for _, p := range pendingOf(m) {
		if r.rnd.IntN(2) == 0 {
			ps = append(ps, r.f.at(p))
		}
	}
	if len(ps) == 0 {
		return
	}
	if r.single() && r.rnd.IntN(2) == 0 {
		to := int(ps[0].Entry)
		r.note("ack %d up to %d", m.c.ID, to)
		for i := range to + 1 {
			r.acked[i] = true
			r.forget(i)
		}
		m.c.Ack(AckRequest{Type: AckCumulative, Positions: ps[:1]})
		return
	}
	r.note("ack %d %v", m.c.ID, ps)
	for _, p := range ps {
		r.acked[int(p.Entry)] = true
		r.forget(int(p.Entry))
	}
	m.c.Ack(AckRequest{Positions: ps})
}

func (r *randomRun) forget(entry int) {
	for _, m := range r.consumers {
		delete(m.pending, entry)
	}
}

func (r *randomRun) ackPart(m *model) {
	ps := pendingOf(m)
	if len(ps) == 0 {
		return
	}
	p := ps[r.rnd.IntN(len(ps))]
	bits := []int64{r.rnd.Int64N(1 << r.batch[p])}
	left := and(r.f.parts[p], bits)
	r.note("ack %d part of %d: %v", m.c.ID, p, bits)
	if len(left) == 0 {
		r.acked[p] = true
		r.forget(p)
	}
	m.c.Ack(AckRequest{Positions: []ledger.Position{r.f.at(p)}, AckSets: [][]int64{bits}})
}

// ackLate acknowledges an entry that was given back meanwhile, or whose consumer has left.
func (r *randomRun) ackLate(m *model) {
	var ps []int
	for p := range r.once {
		if !r.acked[p] && !slices.ContainsFunc(r.consumers, func(o *model) bool { return o.pending[p] }) {
			ps = append(ps, p)
		}
	}
	if len(ps) == 0 {
		return
	}
	slices.Sort(ps)
	p := ps[r.rnd.IntN(len(ps))]
	r.note("ack %d late %d", m.c.ID, p)
	r.acked[p] = true
	m.c.Ack(AckRequest{Positions: []ledger.Position{r.f.at(p)}})
}

func (r *randomRun) redeliver(m *model) {
	var ps []ledger.Position
	if r.rnd.IntN(2) == 0 {
		ps = []ledger.Position{}
		for _, p := range pendingOf(m) {
			if r.rnd.IntN(3) == 0 {
				ps = append(ps, r.f.at(p))
			}
		}
	}
	r.note("redeliver %d %v", m.c.ID, ps)
	if r.single() {
		if m.c == r.s.taker() {
			m.last = -1
			clear(m.pending)
		}
	} else {
		for p := range m.pending {
			if ps == nil {
				delete(m.pending, p)
			}
		}
		for _, p := range ps {
			delete(m.pending, int(p.Entry))
		}
	}
	m.c.Redeliver(ps)
}

// pendingOf is what m has seen and not acknowledged, in order, so that runs of one seed are equal.
func pendingOf(m *model) []int { return slices.Sorted(maps.Keys(m.pending)) }

// observe looks at what was delivered since the last time and checks the promises.
func (r *randomRun) observe() {
	if r.s.takeover.serving != r.serving { // whoever is served now starts with what is not acknowledged
		r.serving = r.s.takeover.serving
		for _, m := range r.consumers {
			m.last = -1
		}
	}
	for _, m := range r.consumers {
		before := m.granted - m.got
		for ; m.seen < len(m.sink.order); m.seen++ {
			r.delivered(m, &m.sink.order[m.seen], before)
			before -= int64(m.sink.order[m.seen].Messages)
		}
		if m.c.permits() != m.granted-m.got {
			r.t.Errorf("consumer %d: granted %d, delivered %d, permits %d", m.c.ID, m.granted, m.got, m.c.permits())
		}
		if m.c.unacked < 0 {
			r.t.Errorf("consumer %d: unacked %d", m.c.ID, m.c.unacked)
		}
		if !r.single() && len(m.pending) != m.c.pending.len() {
			r.t.Errorf("consumer %d: %d pending, expected %d", m.c.ID, m.c.pending.len(), len(m.pending))
		}
	}
	for _, m := range r.gone {
		if len(m.sink.order) != m.seen {
			r.t.Errorf("consumer %d got something after it had left", m.c.ID)
		}
	}
	r.observeLimit()
	if !r.s.moving() && r.s.why() == "" && len(r.f.log) > r.f.next {
		r.t.Errorf("stalled")
	}
	if p := r.keys.stalled(r); p >= 0 {
		r.t.Errorf("entry %d could be delivered, and nothing is being read", p)
	}
}

// observeLimit checks that the limit knows what is unacknowledged here, and that nobody waits for it without need.
func (r *randomRun) observeLimit() {
	mine := r.s.share.unacked
	if r.limit.limit.Load() == 0 { // nobody is counted
		mine = 0
	}
	if sum := r.limit.sum.Load(); sum != r.others+mine {
		r.t.Errorf("the limit counts %d, others have %d and this subscription %d", sum, r.others, mine)
	}
	if r.s.broker.held && !r.limit.blocked.Load() && !r.freed {
		r.t.Errorf("waits for a limit that is not reached, and will not be woken")
	}
}

func (r *randomRun) delivered(m *model, d *Delivery, permits int64) {
	p := int(d.Entry.Position.Entry)
	r.note("  %d got %d x%d r%d", m.c.ID, p, d.Messages, d.Redelivery)
	if permits <= 0 {
		r.t.Errorf("consumer %d got entry %d with %d permits", m.c.ID, p, permits)
	}
	m.got += int64(d.Messages)
	if r.acked[p] {
		r.t.Errorf("entry %d delivered after it was acknowledged", p)
	}
	if r.early[p] && !r.single() {
		r.t.Errorf("entry %d delivered before its time", p)
	}
	if r.kind == KeyShared {
		r.keys.delivered(r, m, p)
	}
	if r.single() {
		if p <= m.last && m.c == r.serving {
			r.t.Errorf("entry %d after %d", p, m.last)
		}
		if m.c != r.s.active || m.c != r.serving {
			r.t.Errorf("entry %d to consumer %d, which is not the active one, or not yet", p, m.c.ID)
		}
		for e := m.last + 1; e < p; e++ {
			if !r.acked[e] {
				r.t.Errorf("entry %d after %d: %d is skipped", p, m.last, e)
			}
		}
		m.last = p
	} else {
		for _, o := range r.consumers {
			if o.pending[p] {
				r.t.Errorf("entry %d is at consumer %d already", p, o.c.ID)
			}
		}
	}
	m.pending[p], r.once[p] = true, true
}

// finish lets one consumer take and acknowledge everything.
func (r *randomRun) finish() {
	for len(r.consumers) > 0 {
		r.leave(r.consumers[0])
	}
	r.f.failing = 0
	r.limit.add(-r.others)
	r.others = 0
	r.joinWith([]KeyRange{{0, keyHashes - 1}})
	m := r.consumers[0]
	for round := 0; r.f.Backlog() > 0 && !r.t.Failed(); round++ {
		if round > 10_000 {
			r.t.Errorf("%d entries are left: %s", r.f.Backlog(), r.s.why())
			return
		}
		r.flow(m, 50)
		for r.f.complete() {
		}
		r.fire(func() bool { return true })
		r.observe()
		for len(m.pending) > 0 && !r.t.Failed() {
			r.ack(m)
			r.observe()
		}
	}
	m.c.Close(nil)
	for r.f.complete() {
	}
	if n := r.f.owner.refs.Load(); n != 0 {
		r.t.Errorf("%d payload references left", n)
	}
	if n := len(r.s.again.counts) + len(r.f.parts) + r.s.again.replay.len() + len(r.s.delays.heap); n != 0 {
		r.t.Errorf("%d entries are remembered after all were acknowledged", n)
	}
	if k := r.s.keys; k != nil {
		if held, queues := k.states.count(); held+k.wait.len()+queues > 0 {
			r.t.Errorf("%d holders, %d entries that wait, %d queues after all were acknowledged", held, k.wait.len(), queues)
		}
	}
}
