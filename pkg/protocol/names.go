package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Domains of topics.
const (
	Persistent    = "persistent"
	NonPersistent = "non-persistent"
)

const (
	defaultTenant    = "public"
	defaultNamespace = "default"
	partitionSuffix  = "-partition-"
	maxNameSize      = 1000 // names become metadata keys, where escaping may triple them; clients send what they like
)

// NamespaceName is tenant/namespace, or tenant/cluster/namespace in the form that Pulsar 1 had.
type NamespaceName struct {
	Tenant    string
	Cluster   string // "" in today's names
	Namespace string
}

// ParseNamespaceName parses and checks a name as Pulsar does: parts of letters, digits and -=:._ .
func ParseNamespaceName(s string) (NamespaceName, error) {
	parts := strings.Split(s, "/")
	var n NamespaceName
	switch len(parts) {
	case 2:
		n = NamespaceName{Tenant: parts[0], Namespace: parts[1]}
	case 3:
		n = NamespaceName{Tenant: parts[0], Cluster: parts[1], Namespace: parts[2]}
		if n.Cluster == "" {
			return NamespaceName{}, fmt.Errorf("%w %q: the cluster is empty", ErrBadNamespace, clip(s))
		}
	default:
		return NamespaceName{}, fmt.Errorf("%w %q: expected tenant/namespace", ErrBadNamespace, clip(s))
	}
	for _, part := range parts {
		if part == "" || !validEntity(part) || len(s) > maxNameSize {
			return NamespaceName{}, fmt.Errorf("%w %q: expected tenant/namespace of letters, digits and -=:._",
				ErrBadNamespace, clip(s))
		}
	}
	return n, nil
}

// String returns tenant/namespace.
func (n NamespaceName) String() string {
	if n.Cluster != "" {
		return n.Tenant + "/" + n.Cluster + "/" + n.Namespace
	}
	return n.Tenant + "/" + n.Namespace
}

// Local is the part behind the tenant, one path segment or two.
func (n NamespaceName) Local() string {
	if n.Cluster != "" {
		return n.Cluster + "/" + n.Namespace
	}
	return n.Namespace
}

// TopicName is a checked name of a topic or of one partition of it. Values are comparable.
type TopicName struct {
	Domain    string // Persistent or NonPersistent
	Tenant    string
	Cluster   string // "" in today's names
	Namespace string
	Local     string // with the partition's suffix, if any; may contain slashes in names with a cluster
	Partition int    // -1: not a partition
}

// ParseTopicName parses a full name (domain://tenant/namespace/topic) or a short one: topic alone is in public/default,
// tenant/namespace/topic is persistent.
func ParseTopicName(s string) (TopicName, error) {
	if len(s) > maxNameSize || !utf8.ValidString(s) {
		return TopicName{}, fmt.Errorf("%w %q: longer than %d bytes or not UTF-8", ErrBadTopicName, clip(s), maxNameSize)
	}
	domain, rest, full := strings.Cut(s, "://")
	if !full {
		domain = Persistent
		switch strings.Count(s, "/") {
		case 0:
			rest = defaultTenant + "/" + defaultNamespace + "/" + s
		case 2, 3:
			rest = s
		default:
			return TopicName{}, fmt.Errorf("%w %q: expected topic or tenant/namespace/topic", ErrBadTopicName, clip(s))
		}
	}
	if domain != Persistent && domain != NonPersistent {
		return TopicName{}, fmt.Errorf("%w %q: unknown domain %q", ErrBadTopicName, clip(s), clip(domain))
	}
	return parseRest(s, domain, rest)
}

func parseRest(s, domain, rest string) (TopicName, error) {
	t := TopicName{Domain: domain}
	switch parts := strings.SplitN(rest, "/", 4); len(parts) {
	case 3:
		t.Tenant, t.Namespace, t.Local = parts[0], parts[1], parts[2]
	case 4:
		t.Tenant, t.Cluster, t.Namespace, t.Local = parts[0], parts[1], parts[2], parts[3]
	default:
		return TopicName{}, fmt.Errorf("%w %q: expected domain://tenant/namespace/topic", ErrBadTopicName, clip(s))
	}
	if t.Local == "" {
		return TopicName{}, fmt.Errorf("%w %q: the topic is empty", ErrBadTopicName, clip(s))
	}
	if _, err := ParseNamespaceName(rest[:len(rest)-len(t.Local)-1]); err != nil {
		return TopicName{}, fmt.Errorf("%w %q: %w", ErrBadTopicName, clip(s), err)
	}
	t.Partition = partitionOf(t.Local)
	return t, nil
}

// String returns the full name.
func (t TopicName) String() string {
	return t.Domain + "://" + t.NamespaceName().String() + "/" + t.Local
}

// NamespaceName is the namespace the topic is in.
func (t TopicName) NamespaceName() NamespaceName {
	return NamespaceName{Tenant: t.Tenant, Cluster: t.Cluster, Namespace: t.Namespace}
}

// IsPersistent reports whether messages are stored.
func (t TopicName) IsPersistent() bool { return t.Domain == Persistent }

// Partitioned is the name without the suffix of the partition.
func (t TopicName) Partitioned() TopicName {
	if t.Partition < 0 {
		return t
	}
	t.Local, t.Partition = t.Local[:strings.LastIndex(t.Local, partitionSuffix)], -1
	return t
}

// WithPartition is the name of the i-th partition of a topic that is no partition itself.
func (t TopicName) WithPartition(i int) TopicName {
	t.Local, t.Partition = t.Local+partitionSuffix+strconv.Itoa(i), i
	return t
}

// partitionOf returns the number behind "-partition-", or -1: "x-partition-01" and "x-partition--1" are ordinary names.
func partitionOf(local string) int {
	i := strings.LastIndex(local, partitionSuffix)
	if i < 0 {
		return -1
	}
	digits := local[i+len(partitionSuffix):]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return -1
	}
	return int(n)
}

func validEntity(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '-', c == '=', c == ':', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// clip keeps error texts and log lines short.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
