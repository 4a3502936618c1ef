package topic

import (
	"fmt"
	"time"

	"geminga/pkg/managedledger"
)

// Stats are what the administrator sees of a topic, in Pulsar's names.
type Stats struct {
	MsgRateIn           float64                       `json:"msgRateIn"`
	MsgThroughputIn     float64                       `json:"msgThroughputIn"`
	MsgRateOut          float64                       `json:"msgRateOut"`
	MsgThroughputOut    float64                       `json:"msgThroughputOut"`
	BytesInCounter      int64                         `json:"bytesInCounter"`
	MsgInCounter        int64                         `json:"msgInCounter"`
	BytesOutCounter     int64                         `json:"bytesOutCounter"`
	MsgOutCounter       int64                         `json:"msgOutCounter"`
	AverageMsgSize      float64                       `json:"averageMsgSize"`
	StorageSize         int64                         `json:"storageSize"`
	DeduplicationStatus string                        `json:"deduplicationStatus"`
	Publishers          []PublisherStats              `json:"publishers"`
	Subscriptions       map[string]*SubscriptionStats `json:"subscriptions"`
	Ledger              managedledger.Stats           `json:"-"`
}

// PublisherStats are of one producer.
type PublisherStats struct {
	AccessMode      string            `json:"accessMode"`
	ProducerID      uint64            `json:"producerId"`
	ProducerName    string            `json:"producerName"`
	MsgRateIn       float64           `json:"msgRateIn"`
	MsgThroughputIn float64           `json:"msgThroughputIn"`
	AverageMsgSize  float64           `json:"averageMsgSize"`
	Address         string            `json:"address"`
	ConnectedSince  string            `json:"connectedSince"`
	ClientVersion   string            `json:"clientVersion"`
	Metadata        map[string]string `json:"metadata"`
}

// SubscriptionStats are of one subscription. BlockedOn and WhyIdle are ours: why the
// backlog does not move, in a word (Reason) and in a sentence.
type SubscriptionStats struct {
	Type                             string          `json:"type"`
	ActiveConsumerName               string          `json:"activeConsumerName,omitempty"`
	IsDurable                        bool            `json:"isDurable"`
	MsgRateOut                       float64         `json:"msgRateOut"`
	MsgThroughputOut                 float64         `json:"msgThroughputOut"`
	MsgRateRedeliver                 float64         `json:"msgRateRedeliver"`
	BytesOutCounter                  int64           `json:"bytesOutCounter"`
	MsgOutCounter                    int64           `json:"msgOutCounter"`
	MsgBacklog                       int64           `json:"msgBacklog"`
	UnackedMessages                  int64           `json:"unackedMessages"`
	BlockedSubscriptionOnUnackedMsgs bool            `json:"blockedSubscriptionOnUnackedMsgs"`
	MsgInReplay                      int             `json:"msgInReplay"`
	MsgDelayed                       int             `json:"msgDelayed"`
	MsgDropCounter                   int64           `json:"msgDropCounter,omitempty"`
	KeySharedMode                    string          `json:"keySharedMode,omitempty"`
	AllowOutOfOrderDelivery          bool            `json:"allowOutOfOrderDelivery"`
	DrainingHashesCount              int             `json:"drainingHashesCount"`
	DrainingHashesClearedTotal       int64           `json:"drainingHashesClearedTotal"`
	BlockedOn                        Reason          `json:"blockedOn,omitempty"`
	WhyIdle                          string          `json:"whyIdle,omitempty"`
	Consumers                        []ConsumerStats `json:"consumers"`
}

// ConsumerStats are of one consumer.
type ConsumerStats struct {
	ConsumerName                 string            `json:"consumerName"`
	MsgRateOut                   float64           `json:"msgRateOut"`
	MsgThroughputOut             float64           `json:"msgThroughputOut"`
	MsgRateRedeliver             float64           `json:"msgRateRedeliver"`
	MessageAckRate               float64           `json:"messageAckRate"`
	BytesOutCounter              int64             `json:"bytesOutCounter"`
	MsgOutCounter                int64             `json:"msgOutCounter"`
	AvailablePermits             int64             `json:"availablePermits"`
	UnackedMessages              int64             `json:"unackedMessages"`
	AvgMessagesPerEntry          int               `json:"avgMessagesPerEntry"`
	BlockedConsumerOnUnackedMsgs bool              `json:"blockedConsumerOnUnackedMsgs"`
	KeyHashRanges                []string          `json:"keyHashRanges,omitempty"`
	DrainingHashesCount          int               `json:"drainingHashesCount"`
	LastConsumedFlowTimestamp    int64             `json:"lastConsumedFlowTimestamp"`
	LastConsumedTimestamp        int64             `json:"lastConsumedTimestamp"`
	LastAckedTimestamp           int64             `json:"lastAckedTimestamp"`
	Address                      string            `json:"address"`
	ConnectedSince               string            `json:"connectedSince"`
	ClientVersion                string            `json:"clientVersion"`
	Metadata                     map[string]string `json:"metadata"`
}

// Stats gathers figures from the topic and its subscriptions. done on the topic's executor.
func (t *Topic) Stats(done func(Stats)) {
	t.exec.AssertCurrent()
	now := time.Now()
	rate := t.pub.in.read(now)
	st := &Stats{
		MsgRateIn: rate.Messages, MsgThroughputIn: rate.Bytes,
		BytesInCounter: t.pub.in.bytes, MsgInCounter: t.pub.in.messages,
		AverageMsgSize:      mean(t.pub.in.bytes, t.pub.in.messages),
		DeduplicationStatus: "Disabled",
		Publishers:          make([]PublisherStats, 0, len(t.producers)),
		Subscriptions:       make(map[string]*SubscriptionStats),
		Ledger:              t.log.Stats(),
	}
	st.StorageSize = st.Ledger.Bytes
	if t.dedup != nil {
		st.DeduplicationStatus = "Enabled"
	}
	for _, p := range t.producers {
		st.Publishers = append(st.Publishers, p.stats(now))
	}
	waiting := 1
	finish := func() {
		if waiting--; waiting == 0 {
			done(*st)
		}
	}
	for name, s := range t.slots {
		if s.state != slotOpen {
			continue
		}
		waiting++
		s.sub.exec.PostFunc(func() {
			sub := s.sub.stats(now)
			t.exec.PostFunc(func() {
				st.add(name, sub)
				finish()
			})
		})
	}
	finish()
}

func (st *Stats) add(name string, s *SubscriptionStats) {
	st.Subscriptions[name] = s
	st.MsgRateOut += s.MsgRateOut
	st.MsgThroughputOut += s.MsgThroughputOut
	st.BytesOutCounter += s.BytesOutCounter
	st.MsgOutCounter += s.MsgOutCounter
}

func (p *Producer) stats(now time.Time) PublisherStats {
	rate := p.in.read(now)
	return PublisherStats{
		AccessMode: p.AccessMode.String(), ProducerID: p.ID, ProducerName: p.Name,
		MsgRateIn: rate.Messages, MsgThroughputIn: rate.Bytes, AverageMsgSize: mean(p.in.bytes, p.in.messages),
		Address: p.Address, ConnectedSince: p.ConnectedSince.Format(time.RFC3339Nano),
		ClientVersion: p.ClientVersion, Metadata: p.Metadata,
	}
}

func (s *subscription) stats(now time.Time) *SubscriptionStats {
	rate := s.counts.out.read(now)
	st := &SubscriptionStats{
		Type: s.kind.String(), IsDurable: s.durable,
		MsgRateOut: rate.Messages, MsgThroughputOut: rate.Bytes,
		MsgRateRedeliver: s.counts.redelivered.read(now).Messages,
		BytesOutCounter:  s.counts.out.bytes, MsgOutCounter: s.counts.out.messages,
		UnackedMessages: s.share.unacked, BlockedSubscriptionOnUnackedMsgs: s.share.blocked,
		MsgInReplay: s.again.replay.len(), MsgDelayed: len(s.delays.heap), MsgDropCounter: s.dropped.Load(),
		Consumers: make([]ConsumerStats, 0, len(s.consumers)),
	}
	st.BlockedOn = s.whyIdle()
	st.WhyIdle = st.BlockedOn.Text()
	if !s.ended {
		st.MsgBacklog = s.cursor.Backlog()
	}
	if s.active != nil {
		st.ActiveConsumerName = s.active.Name
	}
	for _, c := range s.consumers {
		st.Consumers = append(st.Consumers, c.stats(now))
	}
	if s.keys != nil {
		s.keys.stats(st, s.consumers)
	}
	return st
}

// stats adds how the keys are shared. Consumers in st are in the order of cs.
func (k *keyed) stats(st *SubscriptionStats, cs []*Consumer) {
	st.KeySharedMode = "AUTO_SPLIT"
	if k.policy.Sticky {
		st.KeySharedMode = "STICKY"
	}
	st.AllowOutOfOrderDelivery, st.DrainingHashesClearedTotal = k.policy.OutOfOrder, k.cleared
	st.MsgInReplay += k.wait.len() + len(k.taken)
	draining := map[*Consumer]int{}
	k.states.each(func(h keyHash, has keyState) {
		if has.n > 0 && k.spans.owner(h) != has.by {
			draining[has.by]++
			st.DrainingHashesCount++
		}
	})
	for i, c := range cs {
		st.Consumers[i].DrainingHashesCount = draining[c]
		k.spans.each(c, func(r KeyRange) {
			st.Consumers[i].KeyHashRanges = append(st.Consumers[i].KeyHashRanges, fmt.Sprintf("[%d, %d]", r.Start, r.End))
		})
	}
}

func (c *Consumer) stats(now time.Time) ConsumerStats {
	rate := c.counts.out.read(now)
	return ConsumerStats{
		ConsumerName: c.Name, MsgRateOut: rate.Messages, MsgThroughputOut: rate.Bytes,
		MsgRateRedeliver: c.counts.redelivered.read(now).Messages,
		MessageAckRate:   c.counts.acked.read(now).Messages,
		BytesOutCounter:  c.counts.out.bytes, MsgOutCounter: c.counts.out.messages,
		AvailablePermits: c.permits(), UnackedMessages: c.unacked,
		AvgMessagesPerEntry: int(c.average.value + 0.5), BlockedConsumerOnUnackedMsgs: c.blocked,
		LastConsumedFlowTimestamp: millis(c.counts.lastFlow),
		LastConsumedTimestamp:     millis(c.counts.lastOut),
		LastAckedTimestamp:        millis(c.counts.lastAck),
		Address:                   c.Address, ConnectedSince: c.ConnectedSince.Format(time.RFC3339Nano),
		ClientVersion: c.ClientVersion, Metadata: c.Metadata,
	}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func mean(sum, n int64) float64 {
	if n == 0 {
		return 0
	}
	return float64(sum) / float64(n)
}
