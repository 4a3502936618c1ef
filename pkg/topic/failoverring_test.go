package topic

import (
	"fmt"
	"testing"
)

// ringOracle is the ring as Pulsar's sources describe it: a sorted map of points, of which a later consumer takes over
// one that is taken; the topic belongs to the first point at its own place or behind it.
func ringOracle(topic string, names []string) string {
	owner := map[uint32]string{}
	for _, n := range names {
		for i := range 100 {
			owner[murmur32([]byte(n+fmt.Sprint(i)))&0x7fffffff] = n
		}
	}
	at := murmur32([]byte(topic)) & 0x7fffffff
	first, next := uint32(1<<32-1), uint32(1<<32-1)
	for p := range owner {
		first = min(first, p)
		if p >= at {
			next = min(next, p)
		}
	}
	if next == 1<<32-1 {
		return owner[first]
	}
	return owner[next]
}

func active(o Options, topic string, partition int, names ...string) string {
	s := &subscription{topic: &Topic{text: topic}, kind: Failover, partition: partition, opts: &o}
	var cs []*Consumer
	for _, n := range names {
		cs = append(cs, &Consumer{Name: n, distance: ringDistance(topic, n)})
	}
	return s.nextActive(cs).Name
}

// Topics without partitions, and partitions if the setting says so, go to the next consumer on the ring; other
// partitions by their number.
func TestNextActive(t *testing.T) {
	names := []string{"a", "b", "c", "consumer-4", "e"}
	count := map[string]int{}
	for i := range 300 {
		name := fmt.Sprint("persistent://public/default/t", i)
		want := ringOracle(name, names)
		same(t, name, active(Options{}, name, -1, names...), want)
		count[want]++
		part := fmt.Sprint("persistent://public/default/p-partition-", i)
		same(t, part, active(Options{}, part, i, names...), names[i%5])
		same(t, part+" on the ring", active(Options{ActiveConsumerFailoverConsistentHashing: true}, part, i, names...), ringOracle(part, names))
	}
	for _, n := range names {
		if count[n] < 30 {
			t.Errorf("%q is active on %d of 300 topics", n, count[n])
		}
	}
}
