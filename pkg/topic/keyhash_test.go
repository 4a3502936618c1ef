package topic

import (
	"encoding/base64"
	"testing"

	"geminga/pkg/protocol"
)

// Hashes that clients in other languages compute, too.
func TestKeyHash(t *testing.T) {
	for key, want := range map[string]keyHash{
		"key-shared-0": 30051, "key-shared-1": 9321, "key-shared-2": 34195, "key1": 293, "key2": 14772, "key3": 60248,
	} {
		if got := hashKey([]byte(key)); got != want {
			t.Errorf("%q: %d, expected %d", key, got, want)
		}
	}
	// Reference values of the algorithm for each length of the tail.
	for text, want := range map[string]uint32{
		"": 0, "a": 0x3c2569b2, "ab": 0x9bbfd75f, "abc": 0xb3dd93fa, "abcd": 0x43ed676a, "hello, world": 0x149bbb7f,
		"The quick brown fox jumps over the lazy dog": 0x2e4ff723,
	} {
		if got := murmur32([]byte(text)); got != want {
			t.Errorf("%q: %#x, expected %#x", text, got, want)
		}
	}
}

// The ordering key comes before the partition key, which may be Base64 text; then producer and sequence id.
func TestKeyOfMessage(t *testing.T) {
	var h keyHasher
	b64 := []byte(base64.StdEncoding.EncodeToString([]byte("key2")))
	for _, x := range []struct {
		name string
		md   protocol.Metadata
		want string
	}{
		{"ordering key", protocol.Metadata{OrderingKey: []byte("key1"), PartitionKey: []byte("key2")}, "key1"},
		{"partition key", protocol.Metadata{PartitionKey: []byte("key2"), ProducerName: []byte("p")}, "key2"},
		{"base64", protocol.Metadata{PartitionKey: b64, KeyBase64: true}, "key2"},
		{"not base64 after all", protocol.Metadata{PartitionKey: []byte("key2!"), KeyBase64: true}, "key2!"},
		{"empty", protocol.Metadata{PartitionKey: []byte{}}, ""},
		{"none", protocol.Metadata{ProducerName: []byte("p"), SequenceID: 71}, "p-71"},
	} {
		if got := h.hash(&x.md); got != hashKey([]byte(x.want)) {
			t.Errorf("%s: %d, expected the hash of %q", x.name, got, x.want)
		}
	}
}
