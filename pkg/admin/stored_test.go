package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// What broker.Directory has.
var (
	_ Stored     = broker.Directory{}
	_ Namespaces = broker.Directory{}
)

// keeper notes what it is asked to do.
type keeper struct {
	fakeBroker
	asked []string
	fail  error
}

func (k *keeper) note(format string, args ...any) error {
	k.asked = append(k.asked, fmt.Sprintf(format, args...))
	return k.fail
}

func (k *keeper) DeleteTopic(_ context.Context, n protocol.TopicName, force bool) error {
	return k.note("delete %s %t", n.Local, force)
}

func (k *keeper) DeletePartitions(_ context.Context, n protocol.TopicName, remove func(protocol.TopicName) error) error {
	return errors.Join(k.note("delete partitions of %s", n.Local), remove(n.WithPartition(0)))
}

func (k *keeper) Subscriptions(_ context.Context, n protocol.TopicName) ([]string, error) {
	return nil, k.note("subscriptions of %s", n.Local)
}

func (k *keeper) DeleteSubscription(_ context.Context, n protocol.TopicName, sub string, force bool) error {
	return k.note("delete %s of %s %t", sub, n.Local, force)
}

func (k *keeper) ReadEntry(_ context.Context, _ protocol.TopicName, ledger, entry int64) (broker.StoredEntry, error) {
	return broker.StoredEntry{
		Ledger: ledger, Entry: entry, ProducerName: "p", PublishTime: 1_700_000_000_123, Batch: 2, PartitionKey: "k",
		Properties: map[string]string{"a": "b\n"}, Body: []byte("body"), Compression: "LZ4",
	}, k.fail
}

func (k *keeper) Tenants(context.Context) ([]string, error) {
	return []string{"public"}, k.note("tenants")
}

func (k *keeper) CreateTenant(_ context.Context, tenant string, info []byte) error {
	return k.note("tenant %s %s", tenant, info)
}

func (k *keeper) Namespaces(_ context.Context, tenant string) ([]string, error) {
	return []string{tenant + "/default"}, k.note("namespaces of %s", tenant)
}

func (k *keeper) CreateNamespace(_ context.Context, ns protocol.NamespaceName, policies []byte) error {
	return k.note("namespace %s %s", ns, policies)
}

func (k *keeper) NamespacePolicies(context.Context, protocol.NamespaceName) ([]byte, error) {
	return []byte(`{"x":1}`), k.note("policies")
}

func (k *keeper) DeleteNamespace(_ context.Context, ns protocol.NamespaceName) error {
	return k.note("delete namespace %s", ns)
}

func TestChanges(t *testing.T) {
	k := &keeper{}
	h := newHandler(t, brokerOptions(k))
	const orders = "/admin/v2/persistent/public/default/orders"
	for _, c := range []struct {
		method, path, body string
		fail               error
		code               int
		want, asked        string
	}{
		{"DELETE", orders, "", nil, 204, "", "delete orders false"},
		{"DELETE", orders + "?force=true", "", nil, 204, "", "delete orders true"},
		{"DELETE", orders, "", topic.ErrInUse, 412, `{"reason":"topic has connected`, "delete orders false"},
		{"DELETE", orders, "", broker.ErrNoSuchTopic, 404, `{"reason":`, "delete orders false"},
		{"DELETE", orders + "/partitions?force=true", "", nil, 204, "", "delete partitions of orders, delete orders-partition-0 true"},
		{"GET", orders + "/subscriptions", "", nil, 200, "[]", "subscriptions of orders"},
		{"DELETE", orders + "/subscription/a%2Fb", "", nil, 204, "", "delete a/b of orders false"},
		{"DELETE", orders + "/subscription/s", "", topic.ErrConsumerBusy, 412, `{"reason":`, "delete s of orders false"},
		{"GET", orders + "/ledger/x/entry/0", "", nil, 412, `{"reason":"ledger and entry`, ""},
		{"GET", orders + "/ledger/1/entry/-1", "", nil, 412, `{"reason":`, ""},
		{"GET", orders + "/ledger/1/entry/0", "", topic.ErrNoEntry, 404, `{"reason":`, ""},
		{"GET", "/admin/v2/tenants", "", nil, 200, `["public"]`, "tenants"},
		{"PUT", "/admin/v2/tenants/acme", "{}", nil, 204, "", "tenant acme {}"},
		{"GET", "/admin/v2/namespaces/acme", "", nil, 200, `["acme/default"]`, "namespaces of acme"},
		{"GET", "/admin/v2/namespaces/acme", "", broker.ErrNoTenant, 404, `{"reason":"Tenant does not exist"}`, "namespaces of acme"},
		{"PUT", "/admin/v2/namespaces/acme/x", "null", nil, 204, "", "namespace acme/x null"},
		{"PUT", "/admin/v2/namespaces/acme/x", "", broker.ErrNamespaceExists, 409, `{"reason":`, "namespace acme/x "},
		{"PUT", "/admin/v2/namespaces/acme/x", strings.Repeat(" ", maxBody+1), nil, 400, `{"reason":`, ""},
		{"PUT", "/admin/v2/namespaces/acme/x$", "", nil, 412, `{"reason":`, ""},
		{"GET", "/admin/v2/namespaces/acme/x", "", nil, 200, `{"x":1}`, "policies"},
		{"DELETE", "/admin/v2/namespaces/acme/x", "", nil, 204, "", "delete namespace acme/x"},
		{"DELETE", "/admin/v2/namespaces/acme/x", "", broker.ErrNamespaceNotEmpty, 409, `{"reason":"Cannot delete non empty namespace"}`, "delete namespace acme/x"},
	} {
		k.asked, k.fail = nil, c.fail
		got, body := do(h, c.method, c.path, c.body)
		if got != c.code || !strings.Contains(body, c.want) || (c.want == "" && body != "") || strings.Join(k.asked, ", ") != c.asked {
			t.Errorf("%s %.80s: %d %s, asked %q\nwant %d %s, %q", c.method, c.path, got, body, k.asked, c.code, c.want, c.asked)
		}
	}
	plain := newHandler(t, brokerOptions(plainBroker{}))
	for path, method := range map[string]string{orders: "DELETE", "/admin/v2/tenants": "GET", "/admin/v2/namespaces/a/b": "PUT"} {
		if got, body := do(plain, method, path, ""); got != 501 {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
}

// The headers are those that Pulsar's admin clients read.
func TestEntry(t *testing.T) {
	h := newHandler(t, brokerOptions(&keeper{}))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/admin/v2/persistent/public/default/orders/ledger/3/entry/4", nil))
	if rec.Code != 200 || rec.Body.String() != "body" {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
	for name, want := range map[string]string{
		"X-Pulsar-Message-ID": "3:4", "X-Pulsar-Publish-Time": "2023-11-14T22:13:20.123Z", "X-Pulsar-Num-Batch-Message": "2",
		"X-Pulsar-Property": `{"a":"b\n"}`, "X-Pulsar-Partition-Key": "k", "X-Pulsar-Event-Time": "", "X-Pulsar-Compression": "LZ4",
		"X-Pulsar-Producer-Name": "p", "X-Pulsar-Sequence-Id": "0",
	} {
		if got := rec.Header().Get(name); got != want {
			t.Errorf("%s: %q instead of %q", name, got, want)
		}
	}
}
