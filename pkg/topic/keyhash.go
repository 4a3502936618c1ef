package topic

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"strconv"

	"geminga/pkg/protocol"
)

// keyHashes is how many hashes of keys there are. Ranges of hashes, as clients name them, lie in [0, keyHashes).
const keyHashes = 1 << 16

// keyHash is the hash of a key as Key_Shared subscriptions see it: keys with equal hashes are one key to them.
type keyHash uint16

// hashKey is the low half of murmur3_32 with seed 0. Clients choose ranges by it, so it can never change.
func hashKey(key []byte) keyHash { return keyHash(murmur32(key)) }

func murmur32(b []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*c1, 15) * c2 }
	var h uint32
	n := uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h ^= mix(binary.LittleEndian.Uint32(b))
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	var tail uint32
	for i := len(b) - 1; i >= 0; i-- {
		tail = tail<<8 | uint32(b[i])
	}
	h ^= mix(tail)
	h ^= n
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// keyHasher finds the key of an entry. It holds scratch memory only.
type keyHasher struct{ buf []byte }

// noKey stands for the key of an entry whose metadata does not parse.
const noKey = "NONE_KEY"

// hash returns the hash of the ordering key, else the partition key (bytes, when it is Base64 text), else of
// "producer-sequence", which spreads messages without a key and keeps the chunks of one together. A batch has the key
// that its producer wrote into the metadata of the whole.
func (h *keyHasher) hash(md *protocol.Metadata) keyHash {
	switch {
	case md.OrderingKey != nil:
		return hashKey(md.OrderingKey)
	case md.PartitionKey != nil && md.KeyBase64:
		if key, err := base64.StdEncoding.AppendDecode(h.buf[:0], md.PartitionKey); err == nil {
			h.buf = key
			return hashKey(key)
		}
		fallthrough
	case md.PartitionKey != nil:
		return hashKey(md.PartitionKey)
	}
	h.buf = append(h.buf[:0], md.ProducerName...)
	h.buf = append(h.buf, '-')
	h.buf = strconv.AppendUint(h.buf, md.SequenceID, 10)
	return hashKey(h.buf)
}

// none returns the hash for an entry that does not parse.
func (h *keyHasher) none() keyHash {
	h.buf = append(h.buf[:0], noKey...)
	return hashKey(h.buf)
}
