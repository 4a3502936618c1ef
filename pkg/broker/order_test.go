package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// Commands in odd orders are answered, or close the connection, and nothing of them stays behind.
func TestOddOrders(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	closeProducer := func(id uint64) *pulsarpb.BaseCommand {
		return &pulsarpb.BaseCommand{
			Type:          pulsarpb.BaseCommand_CLOSE_PRODUCER.Enum(),
			CloseProducer: &pulsarpb.CommandCloseProducer{ProducerId: &id, RequestId: p.id()},
		}
	}
	closeConsumer := func(id uint64) *pulsarpb.BaseCommand {
		return &pulsarpb.BaseCommand{
			Type:          pulsarpb.BaseCommand_CLOSE_CONSUMER.Enum(),
			CloseConsumer: &pulsarpb.CommandCloseConsumer{ConsumerId: &id, RequestId: p.id()},
		}
	}
	if got := p.fails(closeProducer(5)).GetError(); got != pulsarpb.ServerError_UnknownError {
		t.Errorf("closing an unknown producer: %v", got)
	}
	if got := p.fails(closeConsumer(5)).GetError(); got != pulsarpb.ServerError_MetadataError {
		t.Errorf("closing an unknown consumer: %v", got)
	}
	if got := p.fails(producerCommand(name(1), 1, *p.id(), "")).GetError(); got != pulsarpb.ServerError_ServiceNotReady {
		t.Errorf("producer without lookup: %v", got)
	}
	p.flow(5, 10) // nobody's permits
	p.producer(name(1), 1, "a")
	p.send(producerCommand(name(1), 1, *p.id(), "a")) // once more: the same answer
	if got := p.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS).ProducerSuccess.GetProducerName(); got != "a" {
		t.Errorf("name %q", got)
	}
	p.send(producerCommand(name(1), 2, *p.id(), "b")) // closed before it is open
	p.succeeds(closeProducer(2))
	p.send(subscribing{topic: name(1), name: "s", id: 3}.command(p.id()))
	p.succeeds(closeConsumer(3))
	eventually(t, "what was given up is gone", func() bool {
		st, err := s.TopicStats(context.Background(), name(1))
		return err == nil && len(st.Publishers) == 1 && st.Subscriptions["s"] != nil && len(st.Subscriptions["s"].Consumers) == 0
	})
	p.subscribe(subscribing{topic: name(1), name: "s", id: 3})
	p.send(subscribing{topic: name(1), name: "s", id: 3}.command(p.id())) // once more
	p.expect(pulsarpb.BaseCommand_SUCCESS)
	p.write(sendFrame(t, 77, 0, "x")) // a producer that never was
	p.closed()
	eventually(t, "the connection's things are gone", func() bool {
		st, err := s.TopicStats(context.Background(), name(1))
		return err == nil && len(st.Publishers) == 0 && len(st.Subscriptions["s"].Consumers) == 0
	})
}

// succeeds sends a request and waits for its SUCCESS, whatever else was on its way.
func (p *peer) succeeds(cmd *pulsarpb.BaseCommand) {
	p.t.Helper()
	id, _ := requestID(cmd)
	p.send(cmd)
	for {
		got, _, err := p.frame()
		if err != nil {
			p.t.Fatal(err)
		}
		if got.GetType() == pulsarpb.BaseCommand_SUCCESS && got.Success.GetRequestId() == id {
			return
		}
	}
}

// CLOSE_PRODUCER is answered after the receipts of everything sent before it in the same breath.
func TestCloseProducerDrains(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	var b []byte
	for i := range 20 {
		b = append(b, sendFrame(t, 1, uint64(i), "x")...)
	}
	cmd := &pulsarpb.BaseCommand{
		Type:          pulsarpb.BaseCommand_CLOSE_PRODUCER.Enum(),
		CloseProducer: &pulsarpb.CommandCloseProducer{ProducerId: proto.Uint64(1), RequestId: p.id()},
	}
	b, err := protocol.AppendCommand(b, cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.write(b)
	for i := range 20 {
		if got := p.expect(pulsarpb.BaseCommand_SEND_RECEIPT).SendReceipt.GetSequenceId(); got != uint64(i) {
			t.Fatalf("receipt %d instead of %d", got, i)
		}
	}
	p.expect(pulsarpb.BaseCommand_SUCCESS)
}

func TestUnsupported(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.subscribe(subscribing{topic: name(1), name: "s", id: 3})
	for _, cmd := range []*pulsarpb.BaseCommand{
		{Type: pulsarpb.BaseCommand_GET_SCHEMA.Enum(), GetSchema: &pulsarpb.CommandGetSchema{Topic: proto.String("t"), RequestId: proto.Uint64(1002)}},
		{Type: pulsarpb.BaseCommand_NEW_TXN.Enum(), NewTxn: &pulsarpb.CommandNewTxn{RequestId: proto.Uint64(1003)}},
		{Type: pulsarpb.BaseCommand_TC_CLIENT_CONNECT_REQUEST.Enum(), TcClientConnectRequest: &pulsarpb.CommandTcClientConnectRequest{
			RequestId: proto.Uint64(1004), TcId: proto.Uint64(0),
		}},
	} {
		want, _ := requestID(cmd)
		got := p.fails(cmd)
		if got.GetRequestId() != want || got.GetError() != pulsarpb.ServerError_NotAllowedError || got.GetMessage() == "" {
			t.Errorf("%v: %v", cmd, got)
		}
	}
	if got := p.fails(producerCommand("a/b", 1, *p.id(), "")).GetError(); got != pulsarpb.ServerError_InvalidTopicName {
		t.Errorf("%v", got)
	}
	noCreate := subscribing{topic: name(2), name: "s", id: 4}.command(p.id())
	noCreate.Subscribe.ForceTopicCreation = proto.Bool(false)
	p.lookup(name(2))
	if got := p.fails(noCreate).GetError(); got != pulsarpb.ServerError_TopicNotFound {
		t.Errorf("%v", got)
	}
}

// One connection may have only so many sends in flight; then it is not read, until half of them are answered.
func TestPendingLimit(t *testing.T) {
	s, cluster := start(t, func(o *Options) {
		o.MaxPendingPublishRequestsPerConnection = 10
		o.Ledger.LedgerStallTimeout = time.Hour
	})
	p := connect(t, s)
	p.producer(name(1), 1, "")
	for g := range 3 {
		cluster.Hold(ledger.GroupID(g + 1))
	}
	var b []byte
	for i := range 40 {
		b = append(b, sendFrame(t, 1, uint64(i), "x")...)
	}
	p.write(b)
	eventually(t, "the connection is paused", func() bool {
		h := s.topics.serving(name(1))
		return h != nil && h.in.messages.Load() == 10
	})
	for g := range 3 {
		cluster.Release(ledger.GroupID(g + 1))
	}
	for i := range 40 {
		if got := p.expect(pulsarpb.BaseCommand_SEND_RECEIPT).SendReceipt.GetSequenceId(); got != uint64(i) {
			t.Fatalf("receipt %d instead of %d", got, i)
		}
	}
}

// A consumer that does not read is not sent more than the buffers hold, and goes on when it reads again.
func TestSlowConsumer(t *testing.T) {
	s, _ := start(t)
	in, out := connect(t, s), pipe(t, s)
	out.handshake()
	in.producer(name(1), 1, "")
	body := strings.Repeat("x", 10_000)
	const n = 300
	for i := range n {
		in.publish(1, uint64(i), body)
	}
	out.subscribe(subscribing{topic: name(1), name: "s", id: 1})
	out.flow(1, n)
	h := s.topics.serving(name(1))
	eventually(t, "some of it is sent", func() bool { return h.out.messages.Load() > 0 })
	for i := range n {
		if m, _ := out.receive(); m.MessageId.GetEntryId() != uint64(i) {
			t.Fatalf("entry %d instead of %d", m.MessageId.GetEntryId(), i)
		}
	}
}

// A name that is taken is refused while its holder lives, and given when the holder's connection is dead.
func TestExclusiveTakeover(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.ConnectionLivenessCheckTimeout = 100 * time.Millisecond })
	old, next := connect(t, s), connect(t, s)
	old.subscribe(subscribing{topic: name(1), name: "s", id: 1})
	old.producer(name(1), 1, "same")
	next.lookup(name(1))
	ask := subscribing{topic: name(1), name: "s", id: 1}.command(next.id())

	takePlace(t, old, next, ask)
	next.send(producerCommand(name(1), 1, *next.id(), "same"))
	next.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS)

	third := connect(t, s)
	third.send(producerCommand(name(1), 1, *third.id(), "same"))
	next.expect(pulsarpb.BaseCommand_PING)
	next.write(protocol.AppendPong(nil))
	if got := third.expect(pulsarpb.BaseCommand_ERROR).Error.GetError(); got != pulsarpb.ServerError_ProducerBusy {
		t.Errorf("%v", got)
	}
}

// An unload closes producers and consumers, not the connection; they come back, and sends that crossed it do no harm.
func TestUnload(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "mine")
	p.subscribe(subscribing{topic: name(1), name: "s", id: 2})
	p.publish(1, 0, "before")
	if err := s.Unload(context.Background(), name(1)); err != nil {
		t.Fatal(err)
	}
	p.expectBoth(pulsarpb.BaseCommand_CLOSE_PRODUCER, pulsarpb.BaseCommand_CLOSE_CONSUMER)
	p.write(sendFrame(t, 1, 1, "crossed"))
	if got := p.producer(name(1), 1, "mine").GetProducerName(); got != "mine" {
		t.Errorf("%q", got)
	}
	p.publish(1, 1, "after")
	p.subscribe(subscribing{topic: name(1), name: "s", id: 2})
	p.flow(2, 10)
	for _, want := range []string{"before", "after"} {
		if _, body := p.receive(); body != want {
			t.Errorf("%q instead of %q", body, want)
		}
	}
}

func (p *peer) expectBoth(a, b pulsarpb.BaseCommand_Type) {
	p.t.Helper()
	seen := map[pulsarpb.BaseCommand_Type]bool{}
	for !seen[a] || !seen[b] {
		cmd, _, err := p.frame()
		if err != nil || cmd.GetType() != a && cmd.GetType() != b {
			p.t.Fatalf("%v, %v", cmd, err)
		}
		seen[cmd.GetType()] = true
	}
}

// Another broker takes the bundle: this one lets go of its topics, and redirects.
func TestLostTopic(t *testing.T) {
	cluster := bookietest.New(bookietest.Options{})
	members := &fixedMembers{}
	s := startOn(t, cluster, func(o *Options) { o.Members = members })
	p := connect(t, s)
	p.producer(name(1), 1, "mine")
	p.publish(1, 0, "x")
	n, _ := protocol.ParseTopicName(name(1))
	b := s.owners.owned(n)
	if b == nil {
		t.Fatal("not the owner")
	}
	members.set(Member{ID: "other", ServiceURL: "pulsar://other:6650"})
	other := fmt.Sprintf(`{"broker":"other","incarnation":"x","epoch":%d,"serviceUrl":"pulsar://other:6650"}`, b.epoch+1)
	done := make(chan error, 1)
	cluster.Client().Commit(metadata.Txn{}.Then(metadata.Put(b.key, []byte(other))), func(out metadata.Outcome, err error) {
		done <- errors.Join(out.Err, err)
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.expect(pulsarpb.BaseCommand_CLOSE_PRODUCER)
	r := p.lookup(name(1))
	if r.GetResponse() != pulsarpb.CommandLookupTopicResponse_Redirect || r.GetBrokerServiceUrl() != "pulsar://other:6650" {
		t.Errorf("%v", r)
	}
	if got := p.fails(producerCommand(name(1), 1, *p.id(), "")).GetError(); got != pulsarpb.ServerError_ServiceNotReady {
		t.Errorf("%v", got)
	}
}

// A broker that has just started does not take what belongs to others before gossip had time to tell who lives.
func TestMembersSettle(t *testing.T) {
	cluster := bookietest.New(bookietest.Options{})
	a := startOn(t, cluster, func(o *Options) { o.ID = "a" })
	connect(t, a).publishOne(name(1))
	members := &fixedMembers{}
	members.unsettled.Store(true)
	b := connect(t, startOn(t, cluster, func(o *Options) { o.ID, o.Members = "b", members }))
	if r := b.lookup(name(1)); r.GetError() != pulsarpb.ServerError_MetadataError {
		t.Errorf("%v", r)
	}
	members.unsettled.Store(false)
	if r := b.lookup(name(1)); r.GetResponse() != pulsarpb.CommandLookupTopicResponse_Connect {
		t.Errorf("%v", r)
	}
	b.producer(name(1), 1, "")
	b.publish(1, 0, "x")
}

type fixedMembers struct {
	list      atomic.Pointer[[]Member]
	unsettled atomic.Bool
}

func (m *fixedMembers) Settled() bool { return !m.unsettled.Load() }

func (m *fixedMembers) set(list ...Member) { m.list.Store(&list) }

func (m *fixedMembers) Brokers() []Member {
	if list := m.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Two brokers: each topic has one owner, whom both name; the dead one's topics are taken over.
func TestTwoBrokers(t *testing.T) {
	cluster := bookietest.New(bookietest.Options{})
	one, two := &fixedMembers{}, &fixedMembers{}
	a := startOn(t, cluster, func(o *Options) { o.ID, o.Members = "a", one })
	b := startOn(t, cluster, func(o *Options) { o.ID, o.Members = "b", two })
	both := []Member{
		{ID: "a", Incarnation: a.Incarnation(), ServiceURL: a.ServiceURL()},
		{ID: "b", Incarnation: b.Incarnation(), ServiceURL: b.ServiceURL()},
	}
	one.set(both...)
	two.set(both...)
	pa, pb := connect(t, a), connect(t, b)
	owners := map[string]string{}
	for i := range 40 {
		owner := ""
		for _, at := range []struct {
			p    *peer
			self string
		}{{pa, a.ServiceURL()}, {pb, b.ServiceURL()}} {
			r := at.p.lookup(name(i))
			if r.GetResponse() == pulsarpb.CommandLookupTopicResponse_Connect && r.GetBrokerServiceUrl() != at.self {
				t.Fatalf("%v", r)
			}
			if owner != "" && owner != r.GetBrokerServiceUrl() {
				t.Errorf("%s: %s and %s", name(i), owner, r.GetBrokerServiceUrl())
			}
			owner = r.GetBrokerServiceUrl()
		}
		owners[name(i)] = owner
	}
	shares := map[string]int{}
	for _, o := range owners {
		shares[o]++
	}
	if len(shares) != 2 {
		t.Errorf("shares %v", shares)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
	two.set(both[1:]...)
	for i := range 40 {
		if r := pb.lookup(name(i)); r.GetResponse() != pulsarpb.CommandLookupTopicResponse_Connect {
			t.Errorf("%s: %v", name(i), r)
		}
	}
}

// A shutdown answers what is in flight, tells clients to go elsewhere, and gives bundles up.
func TestShutdown(t *testing.T) {
	cluster := bookietest.New(bookietest.Options{})
	s := startOn(t, cluster)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	p.subscribe(subscribing{topic: name(1), name: "s", id: 2})
	for i := range 20 {
		p.write(sendFrame(t, 1, uint64(i), "x"))
	}
	h := s.topics.serving(name(1))
	eventually(t, "all is taken", func() bool { return h.in.messages.Load() == 20 })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	receipts, closed := 0, map[pulsarpb.BaseCommand_Type]bool{}
	for {
		cmd, _, err := p.frame()
		if err != nil {
			break
		}
		if cmd.GetType() == pulsarpb.BaseCommand_SEND_RECEIPT {
			receipts++
		}
		closed[cmd.GetType()] = true
	}
	if receipts != 20 || !closed[pulsarpb.BaseCommand_CLOSE_PRODUCER] || !closed[pulsarpb.BaseCommand_CLOSE_CONSUMER] {
		t.Errorf("%d receipts, %v", receipts, closed)
	}
	again := startOn(t, cluster, func(o *Options) { o.ID = "broker-2" })
	q := connect(t, again)
	q.subscribe(subscribing{topic: name(1), name: "s", id: 2})
	q.flow(2, 100)
	for i := range 20 {
		if m, _ := q.receive(); m.MessageId.GetEntryId() != uint64(i) {
			t.Fatalf("entry %d instead of %d", m.MessageId.GetEntryId(), i)
		}
	}
}

// Lookups say MetadataError while the metadata is away: on ServiceNotReady clients would drop the connection.
func TestLookupErrors(t *testing.T) {
	s, cluster := start(t)
	p := connect(t, s)
	cluster.FailNext(bookietest.Get, 1, ledger.ErrUnknown)
	if r := p.lookup(name(1)); r.GetError() != pulsarpb.ServerError_MetadataError || r.GetMessage() == "" {
		t.Errorf("%v", r)
	}
	cluster.UnknownNext(bookietest.Commit, 1)
	if r := p.lookup(name(1)); r.GetResponse() != pulsarpb.CommandLookupTopicResponse_Connect {
		t.Errorf("after a commit of unknown outcome: %v", r)
	}
	if r := p.lookup("x://y"); r.GetError() != pulsarpb.ServerError_InvalidTopicName {
		t.Errorf("%v", r)
	}
}

// No transient error holds a word that ends a client, and every sentinel has its code.
func TestTransientTexts(t *testing.T) {
	s, _ := start(t)
	for _, err := range []error{
		errNotOwner, errNoOwner, errMetadata, errShuttingDown, errPresent, errMoved, topic.ErrNotReady, topic.ErrConsumerClosed,
		ledger.ErrUnknown, ledger.ErrNoBookies, metadata.ErrBadVersion, context.DeadlineExceeded,
		fmt.Errorf("persistent://a/b/ConsumerBusy-TopicNotFound: %w", topic.ErrNotReady),
	} {
		code := s.codeOf(err)
		if code != pulsarpb.ServerError_ServiceNotReady {
			t.Errorf("%v is %v", err, code)
		}
		for _, w := range fatalWords() {
			if text := s.text(code, err); strings.Contains(text, w) {
				t.Errorf("%q holds %q", text, w)
			}
		}
	}
	for err, want := range map[error]protocol.ServerError{
		topic.ErrProducerBusy: pulsarpb.ServerError_ProducerBusy, topic.ErrConsumerBusy: pulsarpb.ServerError_ConsumerBusy,
		topic.ErrNoSubscription: pulsarpb.ServerError_SubscriptionNotFound, errNoSuchTopic: pulsarpb.ServerError_TopicNotFound,
		protocol.ErrBadTopicName: pulsarpb.ServerError_InvalidTopicName,
	} {
		if got := s.codeOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
}

// A topic that cannot be opened leaves nothing behind: the next request tries anew. Many ask at once, one opening runs.
func TestFailedOpen(t *testing.T) {
	s, cluster := start(t)
	p := connect(t, s)
	p.lookup(name(1))
	cluster.FailNext(bookietest.Create, 1, ledger.ErrNoBookies)
	for i := range 5 {
		p.send(producerCommand(name(1), uint64(i), *p.id(), ""))
	}
	failed := 0
	for range 5 {
		cmd, _, err := p.frame()
		if err != nil {
			t.Fatal(err)
		}
		if cmd.GetType() == pulsarpb.BaseCommand_ERROR {
			failed++
			if cmd.Error.GetError() != pulsarpb.ServerError_ServiceNotReady {
				t.Errorf("%v", cmd)
			}
		}
	}
	t.Logf("%d of 5 failed", failed)
	p.producer(name(1), 9, "")
	p.publish(9, 0, "x")
}

func TestBundleNames(t *testing.T) {
	for count, want := range map[int]string{1: "0x00000000_0xffffffff", 2: "0x80000000_0xffffffff", 4: "0xc0000000_0xffffffff"} {
		found := false
		for i := range 1000 {
			n, _ := protocol.ParseTopicName(name(i))
			found = found || bundleName(n, count) == want
		}
		if !found {
			t.Errorf("no topic is in %s of %d", want, count)
		}
	}
}
