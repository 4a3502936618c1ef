package topic

import "strconv"

// A failover subscription of a partition gives the partition to the consumer at the place partition mod number; that
// spreads the partitions evenly. A topic that is not partitioned has no number, and if the first consumer by name were
// taken there, it would be given all topics that the same consumers subscribe to. So each consumer is at failoverPoints
// points of a ring, and the topic's own place on it says who is next. activeConsumerFailoverConsistentHashing does this
// for partitions too: then fewer of them move when consumers come and go.
//
// Names, points and hash are those of Pulsar: the same consumer is active there.
const (
	failoverPoints = 100
	failoverRing   = 1 << 31 // places
)

// ringDistance is how far behind the topic, along the ring, the nearest point of a consumer is. It never changes, so who
// is next is found by comparing, and nobody has to keep a ring.
func ringDistance(topic, consumer string) int32 {
	at := murmur32([]byte(topic))
	nearest := int32(failoverRing - 1)
	b := []byte(consumer)
	for i := range failoverPoints {
		b = strconv.AppendInt(b[:len(consumer)], int64(i), 10)
		nearest = min(nearest, int32((murmur32(b)-at)%failoverRing))
	}
	return nearest
}

// nextActive chooses among consumers of one priority level, which are in the order of their names; there is at least one.
func (s *subscription) nextActive(cs []*Consumer) *Consumer {
	if s.kind != Failover || s.partition >= 0 && !s.opts.ActiveConsumerFailoverConsistentHashing {
		return cs[max(0, s.partition)%len(cs)]
	}
	next := cs[0]
	for _, c := range cs[1:] {
		if c.distance <= next.distance { // of two at one point the last one has it
			next = c
		}
	}
	return next
}
