package broker

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// A topic that is not persistent delivers to who is connected, is named in lists of its kind, and leaves nothing behind.
func TestTransientTopic(t *testing.T) {
	s, cluster := start(t)
	const topicName = "non-persistent://public/default/t"
	p := connect(t, s)
	p.producer(topicName, 1, "")
	p.publish(1, 0, "nobody is there")
	p.subscribe(subscribing{topic: topicName, name: "s", id: 7})
	p.flow(7, 10)
	for i, body := range []string{"a", "b"} {
		p.write(sendFrame(t, 1, uint64(i+1), body))
		got, want := []pulsarpb.BaseCommand_Type{}, []pulsarpb.BaseCommand_Type{pulsarpb.BaseCommand_SEND_RECEIPT, pulsarpb.BaseCommand_MESSAGE}
		for range want {
			cmd, _, err := p.frame()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, cmd.GetType())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v", body, got)
		}
	}
	for mode, want := range map[pulsarpb.CommandGetTopicsOfNamespace_Mode][]string{
		pulsarpb.CommandGetTopicsOfNamespace_PERSISTENT:     nil,
		pulsarpb.CommandGetTopicsOfNamespace_NON_PERSISTENT: {topicName},
		pulsarpb.CommandGetTopicsOfNamespace_ALL:            {topicName},
	} {
		p.send(&pulsarpb.BaseCommand{
			Type: pulsarpb.BaseCommand_GET_TOPICS_OF_NAMESPACE.Enum(),
			GetTopicsOfNamespace: &pulsarpb.CommandGetTopicsOfNamespace{
				RequestId: p.id(), Namespace: proto.String("public/default"), Mode: mode.Enum(),
			},
		})
		got := p.expect(pulsarpb.BaseCommand_GET_TOPICS_OF_NAMESPACE_RESPONSE).GetTopicsOfNamespaceResponse.GetTopics()
		if !slices.Equal(got, want) {
			t.Errorf("%v: %q", mode, got)
		}
	}
	noCreate := subscribing{topic: topicName + "2", name: "s", id: 8}.command(p.id())
	noCreate.Subscribe.ForceTopicCreation = proto.Bool(false)
	p.lookup(topicName + "2")
	if got := p.fails(noCreate).GetError(); got != pulsarpb.ServerError_TopicNotFound {
		t.Errorf("%v", got)
	}
	if left := recordsLeft(t, cluster.Client()); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Administrators see topics that are not persistent while they are open, and can end them.
func TestTransientTopicDirectory(t *testing.T) {
	s, _ := start(t)
	d, ctx, n := s.Directory(), t.Context(), parse(t, "non-persistent://public/default/t")
	if _, err := d.TopicStats(ctx, n); !errors.Is(err, ErrNoSuchTopic) {
		t.Errorf("before its first use: %v", err)
	}
	p := connect(t, s)
	p.producer(n.String(), 1, "")
	p.publish(1, 0, "a")
	if st, err := d.TopicStats(ctx, n); err != nil || st.MsgInCounter != 1 {
		t.Errorf("%d messages, %v", st.MsgInCounter, err)
	}
	if _, err := d.ReadEntry(ctx, n, 0, 0); !errors.Is(err, topic.ErrNoEntry) {
		t.Errorf("an entry: %v", err)
	}
	if err := d.DeleteTopic(ctx, n, false); !errors.Is(err, topic.ErrInUse) {
		t.Errorf("deleted in use: %v", err)
	}
	if err := d.DeleteTopic(ctx, n, true); err != nil {
		t.Fatal(err)
	}
	p.expect(pulsarpb.BaseCommand_CLOSE_PRODUCER)
	if _, err := d.TopicStats(ctx, n); !errors.Is(err, ErrNoSuchTopic) {
		t.Errorf("after its end: %v", err)
	}
}
