package topic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// TestDedupScript runs testdata/dedup on a topic over bookies in memory. Its commands:
//
//	open [interval=n] [off]     close      crash
//	producer p=<name> [as=<label>] [epoch=n]
//	send p=<label> <seq> | <first>-<highest> | <seq>:<chunk>/<chunks> …
//	hold                        the log answers nothing until…
//	release                     …now
//	log                         sequence ids of what is stored
//	snapshot                    the stored snapshot
func TestDedupScript(t *testing.T) {
	inWorld(t, func(w *world) {
		r := &dedupRig{w: w}
		datadriven.RunTest(t, "testdata/dedup", r.run)
	})
}

type dedupRig struct {
	w         *world
	producers map[string]*Producer
	sinks     map[string]*lockedSink
}

func (r *dedupRig) run(t *testing.T, d *datadriven.TestData) string {
	w := r.w
	switch d.Cmd {
	case "open":
		w.options = Options{BrokerDeduplicationEnabled: !d.HasArg("off")}
		maybe(d, "interval", &w.options.BrokerDeduplicationEntriesInterval)
		r.producers, r.sinks = map[string]*Producer{}, map[string]*lockedSink{}
		if err := w.open(); err != nil {
			return err.Error() + "\n"
		}
	case "close":
		w.close()
	case "crash":
		w.crash()
	case "producer":
		return r.producer(t, d)
	case "send":
		r.send(t, d)
	case "hold":
		w.hold()
	case "release":
		w.release()
	case "log":
		return r.log()
	case "snapshot":
		return r.snapshot()
	default:
		return "unknown command\n"
	}
	return r.receipts()
}

func (r *dedupRig) producer(t *testing.T, d *datadriven.TestData) string {
	var name string
	d.ScanArgs(t, "p", &name)
	label, epoch := name, 0
	if d.HasArg("as") {
		d.ScanArgs(t, "as", &label)
	}
	maybe(d, "epoch", &epoch)
	sink := r.w.sink()
	p, last, err := r.w.producer(ProducerRequest{ID: 1, Name: name, Epoch: uint64(epoch), Sink: sink})
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	r.producers[label], r.sinks[label] = p, sink
	return fmt.Sprintf("last sequence id %d\n", last)
}

func (r *dedupRig) send(t *testing.T, d *datadriven.TestData) {
	var label string
	d.ScanArgs(t, "p", &label)
	p := r.producers[label]
	var batch []Message
	for _, a := range d.CmdArgs[1:] {
		m := Message{Producer: p, Messages: 1}
		md := &pulsarpb.MessageMetadata{ProducerName: proto.String(p.Name), PublishTime: proto.Uint64(1)}
		var chunk, chunks int32
		if n, _ := fmt.Sscanf(a.Key, "%d:%d/%d", &m.SequenceID, &chunk, &chunks); n == 3 {
			m.Chunk = true
			md.ChunkId, md.NumChunksFromMsg = proto.Int32(chunk), proto.Int32(chunks)
		} else if n, _ := fmt.Sscanf(a.Key, "%d-%d", &m.SequenceID, &m.HighestSequenceID); n == 2 {
			md.HighestSequenceId = proto.Uint64(m.HighestSequenceID)
		}
		md.SequenceId = proto.Uint64(m.SequenceID)
		data, err := protocol.AppendSection(nil, md, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Payload = ledger.Payload{Data: data}
		batch = append(batch, m)
	}
	r.w.on(func() { r.w.topic.Publish(batch) })
}

func (r *dedupRig) receipts() string {
	out := ""
	for _, label := range slices.Sorted(maps.Keys(r.sinks)) {
		if text := r.sinks[label].answers(); text != "" {
			out += label + ": " + text + "\n"
		}
	}
	return out
}

// log reads the topic from the beginning.
func (r *dedupRig) log() string {
	w := r.w
	sink := w.sink()
	c := w.mustSubscribe(SubscribeRequest{Subscription: "reader", Start: ledger.Earliest, ConsumerID: 1, Sink: sink})
	w.flow(c, 1000)
	out := strings.Trim(fmt.Sprint(sink.taken()), "[]")
	w.closeConsumer(c)
	return out + "\n"
}

func (r *dedupRig) snapshot() string {
	key := metadata.DedupKey(Key(protocol.TopicName{
		Domain: protocol.Persistent, Tenant: "public", Namespace: "default", Local: "t",
	}))
	it := r.w.cluster.Item(key)
	if it.Version == 0 {
		return "none\n"
	}
	d := newDedup()
	if err := d.decode(it.Value); err != nil {
		return err.Error() + "\n"
	}
	out := fmt.Sprintf("up to entry %d\n", d.snapshot.position.Entry)
	for _, name := range slices.Sorted(maps.Keys(d.producers)) {
		out += fmt.Sprintf("%s: %d\n", name, d.producers[name].persisted.sequence)
	}
	return out
}

func TestSnapshotCodec(t *testing.T) {
	now := time.Unix(1e9, 0)
	d := newDedup()
	d.snapshot.position = ledger.Position{Ledger: 12, Entry: 34}
	for i := range 50 {
		p := d.get(fmt.Sprintf("producer-%d", i))
		p.persisted = mark{int64(i * 1000), whole}
		p.active = now.Add(-time.Duration(i) * time.Second)
	}
	d.get("chunked").persisted = mark{7, 3}
	d.get("chunked").active = now
	d.get("fresh") // nothing stored: not in the snapshot
	b := d.encode(now, 1000)
	got := newDedup()
	if err := got.decode(b); err != nil {
		t.Fatal(err)
	}
	same(t, "position", got.snapshot.position, d.snapshot.position)
	same(t, "producers", len(got.producers), 51)
	for name, p := range got.producers {
		same(t, name, p.persisted, d.producers[name].persisted)
		same(t, name, p.pushed, p.persisted)
		same(t, name, p.active.Unix(), d.producers[name].active.Unix())
	}

	// With too many, those connected and those active lately are kept.
	d.producers["producer-40"].connected = 1
	got = newDedup()
	if err := got.decode(d.encode(now, 3)); err != nil {
		t.Fatal(err)
	}
	equal(t, "kept", slices.Sorted(maps.Keys(got.producers)), []string{"chunked", "producer-0", "producer-40"})

	for cut := range len(b) {
		if newDedup().decode(b[:cut]) == nil {
			t.Fatalf("the first %d bytes are accepted", cut)
		}
	}
	for i := range b {
		c := slices.Clone(b)
		c[i] ^= 0x10
		if newDedup().decode(c) == nil {
			t.Fatalf("a change of byte %d is accepted", i)
		}
	}
}

func TestForgetProducers(t *testing.T) {
	now := time.Unix(1e9, 0)
	d := newDedup()
	d.get("old").active = now.Add(-time.Hour)
	d.get("connected").connected = 1
	d.get("in flight").pushed = mark{1, whole}
	d.get("recent").active = now
	d.forget(now.Add(-time.Minute))
	equal(t, "left", slices.Sorted(maps.Keys(d.producers)), []string{"connected", "in flight", "recent"})
}

// A snapshot that cannot be written is tried again, and none is lost by it.
func TestSnapshotFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = Options{BrokerDeduplicationEnabled: true, BrokerDeduplicationEntriesInterval: 2}
		w.mustOpen()
		r := &dedupRig{w: w}
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.cluster.FailNext("commit", 1, ledger.ErrUnknown)
		w.send(p, 0, 1)
		same(t, "failed", r.snapshot(), "none\n")
		<-time.After(2 * time.Second)
		w.send(p, 2)
		synctest.Wait()
		same(t, "written", r.snapshot(), "up to entry 2\np: 2\n")
	})
}

// TestSequencesOutliveTrimmedLedgers: full ledgers that all subscriptions are behind go, but not before a snapshot covers
// them: a producer that sends again what was stored gets the answer that it is a duplicate.
func TestSequencesOutliveTrimmedLedgers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.BrokerDeduplicationEnabled = true
		w.options.BrokerDeduplicationEntriesInterval = 30
		w.ledgers = managedledger.Options{MaxEntriesPerLedger: 5, MinRolloverTime: 1}
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{ID: 1, Name: "p", Sink: w.sink()})
		for seq := range uint64(42) {
			w.send(p, seq)
		}
		w.on(func() {
			if st := w.topic.log.Stats(); st.Ledgers > 4 || st.Entries < 12 {
				t.Errorf("%d ledgers with %d entries", st.Ledgers, st.Entries)
			}
		})
		w.crash()
		w.mustOpen()
		out := w.sink()
		p = w.mustProducer(ProducerRequest{ID: 1, Name: "p", Sink: out})
		w.send(p, 35, 41)
		same(t, "answers", out.answers(), "35:duplicate 41:duplicate")
	})
}
