package broker

import (
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

func (p *peer) seek(consumer uint64, to *pulsarpb.MessageIdData) *pulsarpb.BaseCommand {
	return &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SEEK.Enum(),
		Seek: &pulsarpb.CommandSeek{ConsumerId: &consumer, RequestId: p.id(), MessageId: to},
	}
}

// A client that seeks is told to subscribe again before it gets its SUCCESS; then it reads from there.
func TestSeek(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	var ids []*pulsarpb.MessageIdData
	for i := range 5 {
		ids = append(ids, p.publish(1, uint64(i), fmt.Sprint(i)))
	}
	p.subscribe(subscribing{topic: name(1), name: "time", id: 9, latest: true})
	for at, first := range map[uint64]string{0: "0", 1: "0", 2: ""} { // all were published at 1
		cmd := p.seek(9, nil)
		cmd.Seek.MessagePublishTime = &at
		p.send(cmd)
		p.expect(pulsarpb.BaseCommand_CLOSE_CONSUMER)
		p.expect(pulsarpb.BaseCommand_SUCCESS)
		p.subscribe(subscribing{topic: name(1), name: "time", id: 9, latest: true})
		if first == "" {
			continue
		}
		p.flow(9, 1)
		if _, body := p.receive(); body != first {
			t.Errorf("time %d: %s instead of %s", at, body, first)
		}
	}
	latest := &pulsarpb.MessageIdData{LedgerId: proto.Uint64(math.MaxInt64), EntryId: proto.Uint64(math.MaxInt64)}
	earliest := &pulsarpb.MessageIdData{LedgerId: proto.Uint64(math.MaxUint64), EntryId: proto.Uint64(math.MaxUint64)}
	for _, transient := range []bool{false, true} {
		sub := subscribing{topic: name(1), name: fmt.Sprint("s", transient), id: 7, latest: true, transient: transient}
		p.subscribe(sub)
		for _, x := range []struct {
			to    *pulsarpb.MessageIdData
			first string
		}{{ids[2], "2"}, {earliest, "0"}, {latest, ""}} {
			p.send(p.seek(7, x.to))
			p.expect(pulsarpb.BaseCommand_CLOSE_CONSUMER)
			p.expect(pulsarpb.BaseCommand_SUCCESS)
			p.subscribe(sub)
			p.flow(7, 1)
			if x.first == "" {
				continue
			}
			if _, body := p.receive(); body != x.first {
				t.Errorf("%s instead of %s", body, x.first)
			}
		}
		p.succeeds(&pulsarpb.BaseCommand{
			Type:          pulsarpb.BaseCommand_CLOSE_CONSUMER.Enum(),
			CloseConsumer: &pulsarpb.CommandCloseConsumer{ConsumerId: proto.Uint64(7), RequestId: p.id()},
		})
	}
	if got := p.fails(p.seek(7, earliest)).GetError(); got != pulsarpb.ServerError_MetadataError {
		t.Errorf("closed consumer: %v", got)
	}
	p.subscribe(subscribing{topic: name(1), name: "s", id: 7})
	if got := p.fails(p.seek(7, nil)).GetError(); got != pulsarpb.ServerError_NotAllowedError {
		t.Errorf("nowhere: %v", got)
	}
}
