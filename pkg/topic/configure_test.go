package topic

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
)

// configure changes options of the open topic and waits until nothing moves.
func (w *world) configure(change func(*Options)) {
	w.t.Helper()
	change(&w.options)
	o := w.options
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		w.t.Fatal(err)
	}
	if w.unacked != nil {
		w.unacked.Set(o)
	}
	w.on(func() { w.topic.Configure(w.options) })
}

// Every option arrives in every subscription that is open, opening or yet to come, or in none: those that change what a
// subscription is, or what was stored, stay.
func TestConfigureArrives(t *testing.T) {
	stay := map[string]bool{
		"WholeBatchesOnly": true, "ActiveConsumerFailoverDelay": true, "ActiveConsumerFailoverConsistentHashing": true,
		"SubscriptionKeySharedHashRanges": true, "SubscriptionKeySharedConsistentHashingReplicaPoints": true,
		"DelayedDeliveryDisabled": true, "DelayedDeliveryTickTime": true, "DelayedDeliveryStrict": true,
		"AppendBrokerTimestamp": true, "AppendIndex": true,
		"BrokerDeduplicationEnabled": true, "BrokerDeduplicationEntriesInterval": true, "BrokerDeduplicationSnapshotInterval": true,
		"BrokerDeduplicationMaxNumberOfProducers": true, "BrokerDeduplicationProducerInactivityTimeout": true,
		"ReadRetryMin": true, "ReadRetryMax": true,
	}
	fields := reflect.TypeFor[Options]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		inWorld(t, func(w *world) {
			w.mustOpen()
			w.mustSubscribe(shared(KeyShared, 1, w.sink()))
			next := w.options
			next.EnsureDefaults()
			switch f := reflect.ValueOf(&next).Elem().Field(i); f.Kind() {
			case reflect.Bool:
				f.SetBool(!f.Bool())
			case reflect.Float64:
				f.SetFloat(f.Float() / 2)
			case reflect.Struct:
				f.Field(0).SetInt(7)
			default:
				f.SetInt(f.Int() + 3)
			}
			w.on(func() {
				w.topic.openSlot("opening", false, ledger.Latest, nil)
				w.topic.Configure(next)
				w.topic.openSlot("later", false, ledger.Latest, nil)
			})
			for sub, slot := range w.topic.slots {
				got := reflect.ValueOf(slot.sub.opts).Elem().Field(i).Interface()
				want := reflect.ValueOf(next).Field(i).Interface()
				if (got == want) == stay[name] {
					t.Errorf("%s of %q: %v, options %v", name, sub, got, want)
				}
				if keys := slot.sub.keys; keys != nil && keys.opts != slot.sub.opts {
					t.Errorf("%s: keys go by other options", name)
				}
			}
			same(t, "subscriptions", len(w.topic.slots), 3)
		})
	}
}

// Rates of dispatch change while a subscription waits for tokens: to higher ones, to lower ones, to none and back; and each
// holds from then on.
func TestConfigureRates(t *testing.T) {
	const bodies = 100
	size := int64(len(payloadOf(t, "p", 1000, 0)))
	for what, set := range map[string]func(*Options, int64){
		"topic":               func(o *Options, r int64) { o.DispatchRatePerTopic.Messages = r },
		"topic, bytes":        func(o *Options, r int64) { o.DispatchRatePerTopic.Bytes = r * size },
		"subscription":        func(o *Options, r int64) { o.DispatchRatePerSubscription.Messages = r },
		"subscription, bytes": func(o *Options, r int64) { o.DispatchRatePerSubscription.Bytes = r * size },
		"both": func(o *Options, r int64) {
			o.DispatchRatePerTopic.Messages, o.DispatchRatePerSubscription.Messages = r, 2*r
		},
	} {
		for _, begin := range []int64{0, 1, 500} {
			t.Run(fmt.Sprintf("%s/%d", what, begin), func(t *testing.T) {
				inWorld(t, func(w *world) {
					set(&w.options, begin)
					w.mustOpen()
					in := &countingSink{lockedSink: w.sink()}
					w.flow(w.mustSubscribe(shared(Shared, 1, in)), 1<<20)
					p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
					if begin == 0 {
						w.configure(func(o *Options) { set(o, 1) })
					}
					w.publishMany(p, 100*bodies, 0)
					for _, rate := range []int64{500, 100, 1000, 20} {
						w.configure(func(o *Options) { set(o, rate) })
						before, _ := in.count()
						<-time.After(3 * time.Second)
						synctest.Wait()
						n, _ := in.count()
						if n -= before; int64(n) < rate*3*95/100 || int64(n) > rate*3*105/100+1 {
							t.Errorf("%d messages in three seconds of %d", n, rate)
						}
					}
					w.configure(func(o *Options) { set(o, 0) })
					if n, _ := in.count(); n != 100*bodies {
						t.Errorf("without a limit %d of %d come", n, 100*bodies)
					}
					w.configure(func(o *Options) { set(o, 500) })
					w.publishMany(p, 1000, 0)
					before, _ := in.count()
					<-time.After(time.Second)
					synctest.Wait()
					if n, _ := in.count(); n-before < 475 || n-before > 525 {
						t.Errorf("a limit that comes back lets %d pass", n-before)
					}
				})
			})
		}
	}
}

// An option of another kind changes nothing about the rates: what was spent stays spent.
func TestConfigureKeepsTokens(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.DispatchRatePerTopic.Messages, w.options.DispatchRatePerSubscription.Messages = 10, 10
		w.mustOpen()
		in := &countingSink{lockedSink: w.sink()}
		w.flow(w.mustSubscribe(shared(Shared, 1, in)), 1<<20)
		w.publishMany(w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()}), 500, 0)
		for i := range 100 {
			w.configure(func(o *Options) { o.DispatcherMaxReadBatchSize = 10 + i })
			<-time.After(10 * time.Millisecond)
		}
		if n, _ := in.count(); n > 11 {
			t.Errorf("%d messages in the first second of 10", n)
		}
	})
}

// Limits of what may be unacknowledged: a raised one, or none, goes on at once, a lowered one blocks until half of it.
func TestConfigureUnacked(t *testing.T) {
	for what, set := range map[string]func(*Options, int){
		"consumer":     func(o *Options, n int) { o.MaxUnackedMessagesPerConsumer = n },
		"subscription": func(o *Options, n int) { o.MaxUnackedMessagesPerSubscription = n },
		"broker": func(o *Options, n int) {
			o.MaxUnackedMessagesPerBroker, o.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked = max(0, n), 0.1
		},
	} {
		for _, kind := range []SubType{Shared, KeyShared} {
			t.Run(fmt.Sprint(what, "/", kind), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.options.DispatcherMaxReadBatchSize = 1
					set(&w.options, 10)
					w.unacked = NewUnackedLimit(w.options)
					w.mustOpen()
					in := w.timedSink()
					c := w.mustSubscribe(shared(kind, 1, in))
					w.flow(c, 1000)
					w.publishMany(w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()}), 200, 0)
					var got []ledger.Position
					count := func(what string, want int) {
						t.Helper()
						for _, m := range in.took() {
							got = append(got, m.at)
						}
						same(t, what, len(got), want)
					}
					limit := func(n int) {
						w.configure(func(o *Options) { set(o, n) })
					}
					ack := func(n int) {
						if err := w.ack(c, AckRequest{Positions: got[:n]}); err != nil {
							t.Fatal(err)
						}
						got = got[n:]
						synctest.Wait()
					}
					count("at the limit", 10)
					limit(15)
					count("raised by less than twice", 15)
					limit(40)
					count("raised", 40)
					limit(20)
					ack(25)
					count("lowered, above half of it", 15)
					ack(5)
					count("at half of it", 20)
					limit(-1)
					count("no limit", 175-5)
					limit(20)
					ack(len(got))
					w.publishMany(w.mustProducer(ProducerRequest{Name: "q", Sink: w.sink()}), 30, 0)
					count("a limit again", 20)
				})
			})
		}
	}
}

// Who is there stays when fewer are allowed, and who comes is counted with them.
func TestConfigureLimits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		for i := range uint64(3) {
			w.mustProducer(ProducerRequest{ID: i, Sink: w.sink()})
			w.mustSubscribe(shared(Shared, i, w.sink()))
		}
		w.configure(func(o *Options) {
			o.MaxProducersPerTopic, o.MaxConsumersPerSubscription, o.MaxSubscriptionsPerTopic = 3, 3, 1
		})
		_, _, err := w.producer(ProducerRequest{ID: 7, Sink: w.sink()})
		fails(t, "producer", err, ErrTooManyProducers)
		_, err = w.subscribe(shared(Shared, 7, w.sink()))
		fails(t, "consumer", err, ErrTooManyConsumers)
		_, err = w.subscribe(durable("other", w.sink()))
		fails(t, "subscription", err, ErrNotAllowed)
		w.configure(func(o *Options) {
			o.MaxProducersPerTopic, o.MaxConsumersPerSubscription, o.MaxSubscriptionsPerTopic, o.MaxConsumersPerTopic = 4, 0, 2, 4
		})
		w.mustProducer(ProducerRequest{ID: 7, Sink: w.sink()})
		w.mustSubscribe(shared(Shared, 7, w.sink()))
		_, err = w.subscribe(durable("other", w.sink()))
		fails(t, "fifth consumer", err, ErrTooManyConsumers)
	})
}

// The size of a read and of a turn change for the next read.
func TestConfigureReads(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		in := w.timedSink()
		c := w.mustSubscribe(shared(Shared, 1, in))
		asked := &askedCursor{cursor: c.sub.cursor}
		w.exec(c.Executor(), func() { c.sub.cursor = asked })
		w.publishMany(w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()}), 5000, 0)
		for _, size := range []int{7, 300, 1} {
			w.configure(func(o *Options) { o.DispatcherMaxReadBatchSize, o.DispatcherMaxReadSizeBytes = size, 1000*size })
			w.flow(c, 1000)
			same(t, "entries of a read", asked.most.Entries, size)
			if asked.most.Bytes > 1000*size {
				t.Errorf("%d bytes", asked.most.Bytes)
			}
			asked.most = ledger.Limits{}
		}
	})
}

// askedCursor notes the largest read.
type askedCursor struct {
	cursor
	most ledger.Limits
}

func (c *askedCursor) Read(limits ledger.Limits, done func([]ledger.Entry, error)) {
	c.most = ledger.Limits{Entries: max(c.most.Entries, limits.Entries), Bytes: max(c.most.Bytes, limits.Bytes)}
	c.cursor.Read(limits, done)
}
