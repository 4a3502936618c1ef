package topic

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
)

// Env is what a topic is given to live with.
type Env struct {
	// Ledger is the environment of the managed ledger. Its Executor is the topic's; its Listener is set by Open.
	Ledger        managedledger.Env
	LedgerOptions managedledger.Options
	Options       Options
	Subscriptions *executor.Pool // where subscriptions live
	Names         *NameSource    // of producers without a name; shared by the topics of a broker
	Unacked       *UnackedLimit  // shared by the topics of a broker; nil: no limit
	// Lost is called on the topic's executor, once at most, when the topic can go on no longer: another owner has taken
	// it or its log failed. Its producers and consumers have been closed; the broker forgets the topic.
	Lost    func(*Topic, error)
	Logger  *slog.Logger // nil: discarded
	Metrics *Metrics     // nil: not measured
}

// NameSource makes names of producers that are unique in the cluster. Any goroutine.
type NameSource struct {
	prefix string
	next   atomic.Uint64
}

// NewNameSource returns a source whose prefix must be unique among all broker processes that ever run in the cluster,
// for example broker id and incarnation.
func NewNameSource(prefix string) *NameSource { return &NameSource{prefix: prefix} }

// Next returns a name.
func (s *NameSource) Next() string {
	return s.prefix + "-" + strconv.FormatUint(s.next.Add(1), 10)
}

type topicState uint8

const (
	opening topicState = iota
	running
	draining // no new sends; those in flight are being answered
	ending   // subscriptions and log are being closed
	ended
)

// Topic is an owned topic: its producers, its log and its subscriptions. All methods on its executor, unless they say
// otherwise.
//
//	opening ──▶ running ──Close──▶ draining ──all sends answered──▶ ending ──cursors, log closed──▶ ended
//	                └─────────Lost: nothing completes any more────────▲
type Topic struct {
	name protocol.TopicName
	text string
	key  string
	env  Env
	opts *Options // in force, see Configure; never changed, only replaced
	exec *executor.Executor
	log  messageLog

	state     topicState
	producers map[string]*Producer
	access    access
	outboxes  map[Sink]*outbox
	slots     map[string]*slot
	consumers atomic.Int32 // of all subscriptions
	rate      *RateLimit   // of dispatch, shared by the subscriptions; nil: no limit
	dedup     *dedup       // nil: off
	pub       publishing
	numbering numbering
	closing   closing
	use       use
}

// Open recovers or creates the topic with its durable subscriptions; one that is not persistent begins with nothing. done comes on the topic's executor, never inline.
// managedledger.ErrLost in the error says that a newer owner exists.
func Open(env Env, name protocol.TopicName, done func(*Topic, error)) {
	env.Options.EnsureDefaults()
	env.LedgerOptions.EnsureDefaults()
	if env.Logger == nil {
		env.Logger = slog.New(slog.DiscardHandler)
	}
	if env.Metrics == nil {
		env.Metrics = noMetrics()
	}
	t := &Topic{
		name:      name,
		text:      name.String(),
		key:       Key(name),
		env:       env,
		opts:      &env.Options,
		exec:      env.Ledger.Executor,
		producers: make(map[string]*Producer),
		outboxes:  make(map[Sink]*outbox),
		slots:     make(map[string]*slot),
		rate:      newDispatchLimit(env.Options.DispatchRatePerTopic),
	}
	t.env.Logger = env.Logger.With("topic", t.text)
	t.env.Ledger.Listener = listener{t}
	if !name.IsPersistent() {
		t.log = newTransient(t)
		t.exec.PostFunc(func() { t.opened(done) })
		return
	}
	managedledger.Open(t.env.Ledger, t.key, env.LedgerOptions, func(m *managedledger.ManagedLedger, err error) {
		if err != nil {
			done(nil, fmt.Errorf("open %s: %w", t.text, err))
			return
		}
		t.log = m
		t.recover(done)
	})
}

// Key is the metadata key of a topic.
func Key(n protocol.TopicName) string {
	return metadata.TopicKey(n.Tenant, n.NamespaceName().Local(), n.Domain, n.Local)
}

// recover loads what publishing needs and opens the durable cursors; then the topic is running.
func (t *Topic) recover(done func(*Topic, error)) {
	then := func(err error) {
		if err != nil {
			t.abortOpen(err, done)
			return
		}
		t.recoverSubscriptions(done)
	}
	t.recoverDedup(func(err error) {
		if err != nil {
			then(err)
			return
		}
		t.recoverNumbering(then)
	})
}

func (t *Topic) recoverSubscriptions(done func(*Topic, error)) {
	names := t.log.Cursors()
	missing := len(names)
	if missing == 0 {
		t.opened(done)
		return
	}
	var failed error
	for _, name := range names {
		t.openSlot(name, true, ledger.Latest, func(err error) {
			if err != nil && failed == nil {
				failed = err
			}
			if missing--; missing > 0 {
				return
			}
			if failed != nil {
				t.abortOpen(failed, done)
				return
			}
			t.opened(done)
		})
	}
}

func (t *Topic) opened(done func(*Topic, error)) {
	if err := t.closing.lost; err != nil {
		t.abortOpen(err, done)
		return
	}
	t.state = running
	done(t, nil)
}

// abortOpen closes what is open, then reports why.
func (t *Topic) abortOpen(cause error, done func(*Topic, error)) {
	t.Close(func(error) { done(nil, fmt.Errorf("open %s: %w", t.text, cause)) })
}

// Name returns the topic's name. Any goroutine.
func (t *Topic) Name() protocol.TopicName { return t.name }

// Executor returns the topic's executor. Any goroutine.
func (t *Topic) Executor() *executor.Executor { return t.exec }

// LastConfirmed returns the position of the last readable entry. Any goroutine.
func (t *Topic) LastConfirmed() ledger.Position { return t.log.LastConfirmed() }

// Idle reports that nothing is connected and nothing is in flight.
func (t *Topic) Idle() bool {
	return len(t.producers) == 0 && t.pub.pending.len() == 0 && !t.hasConsumers()
}

// ready returns why the topic takes no requests.
func (t *Topic) ready() error {
	t.exec.AssertCurrent()
	if t.state != running {
		return fmt.Errorf("%s: %w", t.text, ErrNotReady)
	}
	return nil
}

// listener keeps the methods that the managed ledger calls out of Topic's own.
type listener struct{ t *Topic }

func (l listener) Completed(ops []managedledger.Op, first ledger.Position) { l.t.completed(ops, first) }
func (l listener) Lost(err error)                                          { l.t.lost(err) }
