package metadata

import (
	"strconv"
	"strings"

	"geminga/pkg/ledger"
)

// The layout of the keys. Values are JSON unless said.
//
//	/cluster                                          ClusterInfo
//	/counters/ledger                                  decimal text: the ledger ids given out
//	/bookies/<bookie>                                 BookieInfo
//	/bookiemodes/<bookie>                             BookieMode
//	/groups/<group>                                   GroupInfo
//	/owners/<tenant>/<namespace>/<bundle>             OwnerInfo
//	/tenants/<tenant>
//	/namespaces/<tenant>/<namespace>
//	/partitioned/<tenant>/<namespace>/<domain>/<topic>
//	/topics/<tenant>/<namespace>/<domain>/<topic>     managedledger's info: the list of ledgers
//	/cursors/<tenant>/<namespace>/<domain>/<topic>/<subscription>
//	/dedup/<tenant>/<namespace>/<domain>/<topic>
//	/settings/<name>                                  SettingInfo: above what brokers have in their files
//
// Each <part> is escaped (Escape), so it holds no slash and is not empty: the parts of a key can be told apart, no two
// lists of names give one key, and no name reaches out of its prefix. A prefix ends with a slash, so that the topic
// "ab" is not below the prefix of the topic "a".
const (
	ClusterKey       = "/cluster"
	LedgerCounterKey = "/counters/ledger"

	BookiesPrefix     = "/bookies/"
	BookieModesPrefix = "/bookiemodes/"
	GroupsPrefix      = "/groups/"
	OwnersPrefix      = "/owners/"
	TenantsPrefix     = "/tenants/"
	NamespacesPrefix  = "/namespaces/"
	PartitionedPrefix = "/partitioned/"
	TopicsPrefix      = "/topics/"
	CursorsPrefix     = "/cursors/"
	DedupPrefix       = "/dedup/"
	SettingsPrefix    = "/settings/"

	// rawPart marks keys derived from a topic key that is none of TopicKey. Escape never makes it.
	rawPart = "%raw/"
)

// BookieKey is the key of a bookie's BookieInfo.
func BookieKey(id string) string { return BookiesPrefix + Escape(id) }

// BookieModeKey is the key of a bookie's BookieMode.
func BookieModeKey(id string) string { return BookieModesPrefix + Escape(id) }

// GroupKey is the key of a ledger group's GroupInfo.
func GroupKey(id ledger.GroupID) string { return GroupsPrefix + strconv.FormatUint(uint64(id), 10) }

// OwnerKey is the key of the OwnerInfo of a bundle of a namespace.
func OwnerKey(tenant, namespace, bundle string) string {
	return join(OwnersPrefix, tenant, namespace, bundle)
}

// OwnerPrefix is before the OwnerKeys of all bundles of a namespace.
func OwnerPrefix(tenant, namespace string) string { return join(OwnersPrefix, tenant, namespace) + "/" }

// TenantKey is the key of a tenant.
func TenantKey(tenant string) string { return TenantsPrefix + Escape(tenant) }

// NamespaceKey is the key of a namespace.
func NamespaceKey(tenant, namespace string) string { return join(NamespacesPrefix, tenant, namespace) }

// NamespacePrefix is before the NamespaceKeys of all namespaces of a tenant.
func NamespacePrefix(tenant string) string { return join(NamespacesPrefix, tenant) + "/" }

// PartitionedKey is the key that says how many partitions a topic has.
func PartitionedKey(tenant, namespace, domain, topic string) string {
	return join(PartitionedPrefix, tenant, namespace, domain, topic)
}

// PartitionedTopicPrefix is before the PartitionedKeys of all topics of a namespace and domain.
func PartitionedTopicPrefix(tenant, namespace, domain string) string {
	return join(PartitionedPrefix, tenant, namespace, domain) + "/"
}

// TopicKey is the key of a topic's list of ledgers. domain is "persistent". A partition is a topic of its own.
func TopicKey(tenant, namespace, domain, topic string) string {
	return join(TopicsPrefix, tenant, namespace, domain, topic)
}

// TopicPrefix is before the TopicKeys of all topics of a namespace and domain.
func TopicPrefix(tenant, namespace, domain string) string {
	return join(TopicsPrefix, tenant, namespace, domain) + "/"
}

// ParseTopicKey takes a TopicKey apart.
func ParseTopicKey(key string) (tenant, namespace, domain, topic string, ok bool) {
	rest, ok := strings.CutPrefix(key, TopicsPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 {
		return "", "", "", "", false
	}
	for i, p := range parts {
		if parts[i], ok = Unescape(p); !ok {
			return "", "", "", "", false
		}
	}
	return parts[0], parts[1], parts[2], parts[3], true
}

// CursorKey is the key of a subscription's cursor.
func CursorKey(topicKey, subscription string) string {
	return CursorPrefix(topicKey) + Escape(subscription)
}

// CursorPrefix is before the CursorKeys of all subscriptions of a topic.
func CursorPrefix(topicKey string) string { return CursorsPrefix + below(topicKey) + "/" }

// CursorName returns the subscription of a CursorKey.
func CursorName(key string) (string, bool) {
	if !strings.HasPrefix(key, CursorsPrefix) {
		return "", false
	}
	return Unescape(key[strings.LastIndexByte(key, '/')+1:])
}

// DedupKey is the key of a topic's deduplication snapshot.
func DedupKey(topicKey string) string { return DedupPrefix + below(topicKey) }

// SettingKey is the key of a setting that the cluster has stored for all brokers.
func SettingKey(name string) string { return SettingsPrefix + Escape(name) }

// SettingName returns the name of a SettingKey.
func SettingName(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, SettingsPrefix)
	if !ok {
		return "", false
	}
	return Unescape(rest)
}

// below is the part of a topic's key after its prefix. A key that is not made by TopicKey is taken as one name.
func below(topicKey string) string {
	if rest, ok := strings.CutPrefix(topicKey, TopicsPrefix); ok && strings.Count(rest, "/") == 3 {
		return rest
	}
	return rawPart + Escape(topicKey)
}

func join(prefix string, parts ...string) string {
	var b strings.Builder
	b.WriteString(prefix)
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(Escape(p))
	}
	return b.String()
}
