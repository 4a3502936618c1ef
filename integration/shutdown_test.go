package integration

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

// TestShutdownWhileBookiesAreSilent: a broker with a message under way is told to stop while bookies hang: all of them, or
// most of those that have the topic's ledger, when the metadata still answers. It says that topics are not handed over and
// ends in order, well before its limit. The message gets to the next owner when the bookies go on.
func TestShutdownWhileBookiesAreSilent(t *testing.T) {
	all := func(_ context.Context, _ *testing.T, c *harness.Cluster, _ string) []*harness.Proc { return c.Bookies }
	for _, silent := range []struct {
		name   string
		which  func(context.Context, *testing.T, *harness.Cluster, string) []*harness.Proc
		serves bool // the metadata
		says   string
	}{
		{"all", all, false, "Bookies do not answer"},
		{"ledgers", mostOfGroup, true, "Ledgers do not answer"},
	} {
		t.Run(silent.name, func(t *testing.T) {
			ctx := deadline(t, 2*time.Minute)
			c := startCluster(t, harness.Options{
				// The topic waits for its group, instead of going on in another one.
				Bookies: 5, Brokers: 1, BrokerSets: []string{"ledgerStallTimeoutMillis=600000", "brokerShutdownTimeoutMs=60000"},
			})
			topic, broker := topicName(t), c.Brokers[0]
			client := newClient(t, c.URLs[0])
			producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, SendTimeout: -1}))
			must[pulsar.MessageID](t)(producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("before")}))
			stopped := silent.which(ctx, t, c, topic)
			signal(t, syscall.SIGSTOP, stopped)
			if silent.serves { // the metadata may have to elect another leader
				if err := broker.WaitReady(ctx); err != nil {
					t.Fatal(err)
				}
			}
			sent := sendUntilSilent(ctx, t, producer)
			if err := broker.Term(30 * time.Second); err != nil {
				t.Errorf("exit: %v", err)
			}
			waitLog(ctx, t, broker, silent.says)
			waitLog(ctx, t, broker, "brokerd has stopped")
			signal(t, syscall.SIGCONT, stopped)
			restart(ctx, t, broker)
			select {
			case err := <-sent:
				if err != nil {
					t.Errorf("the message under way: %v", err)
				}
			case <-ctx.Done():
				t.Error("the message under way got no answer")
			}
		})
	}
}

// sendUntilSilent sends messages until one is not answered within a second, since processes stop a while after the signal.
// It returns where that answer will come.
func sendUntilSilent(ctx context.Context, t *testing.T, producer pulsar.Producer) <-chan error {
	t.Helper()
	for {
		sent := make(chan error, 1)
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte("under way")}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { sent <- err })
		select {
		case err := <-sent:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Second):
			return sent
		}
	}
}

// mostOfGroup are two of the three bookies that have the topic's open ledger.
func mostOfGroup(ctx context.Context, t *testing.T, c *harness.Cluster, topic string) (out []*harness.Proc) {
	t.Helper()
	group := must[uint32](t)(c.GroupOf(ctx, topic))
	for _, p := range c.Bookies {
		in := func(g harness.Group) bool { return g.Group == group }
		if slices.ContainsFunc(must[[]harness.Group](t)(harness.Groups(ctx, p)), in) {
			out = append(out, p)
		}
	}
	return out[:2]
}

func signal(t *testing.T, s syscall.Signal, ps []*harness.Proc) {
	t.Helper()
	for _, p := range ps {
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}
