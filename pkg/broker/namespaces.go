package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
)

// Outcomes of changes to tenants and namespaces, for the admin API, in Pulsar's words, which its clients print and test.
//
//nolint:staticcheck // the words
var (
	ErrNoTenant          = errors.New("Tenant does not exist")
	ErrTenantExists      = errors.New("Tenant already exist")
	ErrNoNamespace       = errors.New("Namespace does not exist")
	ErrNamespaceExists   = errors.New("Namespace already exists")
	ErrNamespaceNotEmpty = errors.New("Cannot delete non empty namespace")
	ErrBadPolicies       = errors.New("policies must be a JSON object")
	// ErrPolicyNotSupported says that nothing here enforces a policy.
	ErrPolicyNotSupported = errors.New("this policy is not supported, so it cannot be set")
)

// A namespace need not be made: it is there from the first use of a topic in it. Its record, then, holds the number of its
// bundles; one that an administrator makes has those policies too that are enforced (parsePolicies). A namespace that is
// deleted leaves its record with a mark, and its owner records: the epochs of bundles must go on, should it come back.

// namespaceRecord is the value of a NamespaceKey. Fields that are not known are kept.
type namespaceRecord struct {
	version int64
	fields  map[string]json.RawMessage
}

const (
	fieldBundles  = "bundles"
	fieldPolicies = "policies"
	fieldDeleted  = "deleted"
)

func decodeNamespace(item metadata.Item) (namespaceRecord, error) {
	r := namespaceRecord{item.Version, map[string]json.RawMessage{}}
	if item.Version == 0 {
		return r, nil
	}
	if err := json.Unmarshal(item.Value, &r.fields); err != nil {
		return r, fmt.Errorf("%w: namespace record: %w", errMetadata, err)
	}
	return r, nil
}

func (r *namespaceRecord) exists() bool { return r.version != 0 && r.fields[fieldDeleted] == nil }

func (d Directory) get(ctx context.Context, key string) (metadata.Item, error) {
	item, err := await(ctx, "read "+key, func(done func(metadata.Item, error)) { d.server.opts.Store.Get(key, done) })
	if err != nil {
		err = fmt.Errorf("%w: %w", errMetadata, err)
	}
	return item, err
}

// put writes a key that has the version; conflict is the error when it has another one.
func (d Directory) put(ctx context.Context, key string, version int64, value any, conflict error) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	out, err := await(ctx, "write "+key, func(done func(metadata.Outcome, error)) {
		d.server.opts.Store.Commit(metadata.Txn{}.If(key, version).Then(metadata.Put(key, b)), done)
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errMetadata, err)
	case errors.Is(out.Err, metadata.ErrBadVersion):
		return conflict
	}
	return out.Err
}

func (d Directory) namespace(ctx context.Context, ns protocol.NamespaceName) (namespaceRecord, error) {
	item, err := d.get(ctx, metadata.NamespaceKey(ns.Tenant, ns.Local()))
	if err != nil {
		return namespaceRecord{}, err
	}
	return decodeNamespace(item)
}

// CreateNamespace makes a namespace with policies, a JSON object or nothing. ErrPolicyNotSupported, if one of them would not
// be enforced.
func (d Directory) CreateNamespace(ctx context.Context, ns protocol.NamespaceName, policies []byte) error {
	p, err := parsePolicies(policies, d.server.opts.ClusterName)
	if err != nil {
		return err
	}
	tenants, err := d.Tenants(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(tenants, ns.Tenant) {
		return ErrNoTenant
	}
	r, err := d.namespace(ctx, ns)
	switch {
	case err != nil:
		return err
	case r.exists():
		return ErrNamespaceExists
	}
	delete(r.fields, fieldDeleted)
	delete(r.fields, fieldPolicies)
	if len(p.all) > 0 {
		if r.fields[fieldPolicies], err = json.Marshal(p.all); err != nil {
			return err
		}
	}
	if p.bundles > 0 && r.fields[fieldBundles] == nil {
		r.fields[fieldBundles] = json.RawMessage(strconv.Itoa(p.bundles))
	}
	return d.put(ctx, metadata.NamespaceKey(ns.Tenant, ns.Local()), r.version, r.fields, ErrNamespaceExists)
}

// DeleteNamespace removes a namespace that has no topics.
func (d Directory) DeleteNamespace(ctx context.Context, ns protocol.NamespaceName) error {
	r, err := d.namespace(ctx, ns)
	switch {
	case err != nil:
		return err
	case !r.exists():
		return ErrNoNamespace
	}
	topics, err := await(ctx, "topics of "+ns.String(), func(done func([]string, error)) { d.server.listTopics(ns, done) })
	switch {
	case err != nil:
		return err
	case len(topics) > 0:
		return ErrNamespaceNotEmpty
	}
	delete(r.fields, fieldPolicies)
	r.fields[fieldDeleted] = json.RawMessage("true")
	return d.put(ctx, metadata.NamespaceKey(ns.Tenant, ns.Local()), r.version, r.fields, ErrNoNamespace)
}

// NamespacePolicies returns the policies that a namespace was made with, as a JSON object.
func (d Directory) NamespacePolicies(ctx context.Context, ns protocol.NamespaceName) ([]byte, error) {
	r, err := d.namespace(ctx, ns)
	switch {
	case err != nil:
		return nil, err
	case !r.exists():
		return nil, ErrNoNamespace
	case r.fields[fieldPolicies] == nil:
		return []byte("{}"), nil
	}
	return r.fields[fieldPolicies], nil
}

// Namespaces returns the namespaces of a tenant.
func (d Directory) Namespaces(ctx context.Context, tenant string) ([]string, error) {
	tenants, err := d.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(tenants, tenant) {
		return nil, ErrNoTenant
	}
	names, err := d.list(ctx, metadata.NamespacePrefix(tenant), func(item metadata.Item) bool {
		r, err := decodeNamespace(item)
		return err == nil && r.exists()
	})
	for i := range names {
		names[i] = tenant + "/" + names[i]
	}
	return names, err
}

// defaultTenant is there from the beginning.
const defaultTenant = "public"

// Tenants returns all tenants: those that were made, and those that have namespaces because somebody uses topics there.
func (d Directory) Tenants(ctx context.Context) ([]string, error) {
	all := func(metadata.Item) bool { return true }
	made, err := d.list(ctx, metadata.TenantsPrefix, all)
	if err != nil {
		return nil, err
	}
	used, err := d.list(ctx, metadata.NamespacesPrefix, all)
	if err != nil {
		return nil, err
	}
	names := append(append(made, used...), defaultTenant)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// CreateTenant makes a tenant. What it may do is kept and not looked at yet.
func (d Directory) CreateTenant(ctx context.Context, tenant string, info []byte) error {
	if _, err := protocol.ParseNamespaceName(tenant + "/default"); err != nil {
		return err
	}
	if len(info) == 0 || string(info) == "null" {
		info = []byte("{}")
	}
	if json.Unmarshal(info, &struct{}{}) != nil {
		return ErrBadPolicies
	}
	tenants, err := d.Tenants(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(tenants, tenant) {
		return ErrTenantExists
	}
	return d.put(ctx, metadata.TenantKey(tenant), 0, json.RawMessage(info), ErrTenantExists)
}

// list returns the first parts of the keys below a prefix, each once, in order.
func (d Directory) list(ctx context.Context, prefix string, take func(metadata.Item) bool) ([]string, error) {
	items, err := await(ctx, "list "+prefix, func(done func([]metadata.Item, error)) { d.server.opts.Store.List(prefix, done) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMetadata, err)
	}
	names := []string{}
	for i := range items {
		if name, ok := firstPart(items[i].Key[len(prefix):]); ok && take(items[i]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func firstPart(rest string) (string, bool) {
	part, _, _ := strings.Cut(rest, "/")
	return metadata.Unescape(part)
}
