package broker

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Policies that are enforced are kept, those that are not set are left out, and all others are refused by name.
func TestPolicies(t *testing.T) {
	for text, want := range map[string]string{
		``:                             "",
		`null`:                         "",
		`{}`:                           "",
		`{"bundles":null}`:             "",
		`{"bundles":{"numBundles":3}}`: "bundles",
		`{"auth_policies":{"namespace_auth":{"anonymous":["produce","consume"]}}}`:                                                                "",
		`{"bundles":{"numBundles":1,"boundaries":["0x00000000","0xffffffff"]},"publishMaxMessageRate":{"here":{"publishThrottlingRateInMsg":5}}}`: "bundles publishMaxMessageRate",
		`{"deleted":false,"encryption_required":false,"offload_threshold":-1,"subscription_auth_mode":"None","max_consumers_per_topic":null,` +
			`"auth_policies":{"namespace_auth":{},"topicAuth":{}},"backlog_quota_map":{},"replication_clusters":["here"]}`: "",
	} {
		p, err := parsePolicies([]byte(text), "here")
		if got := strings.Join(slices.Sorted(maps.Keys(p.all)), " "); err != nil || got != want {
			t.Errorf("%s: keeps %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]error{
		`[]`:                            ErrBadPolicies,
		`{"bundles":7}`:                 ErrBadPolicies,
		`{"bundles":{"numBundles":-1}}`: ErrBadPolicies,
		`{"publishMaxMessageRate":7}`:   ErrBadPolicies,
		`{"replication_clusters":7}`:    ErrBadPolicies,
		`{"bundles":{"numBundles":2,"boundaries":["0x00000000","0x10000000","0xffffffff"]}}`: ErrPolicyNotSupported,
		`{"publishMaxMessageRate":{"there":{"publishThrottlingRateInMsg":5}}}`:               ErrPolicyNotSupported,
		`{"replication_clusters":["here","there"]}`:                                          ErrPolicyNotSupported,
		`{"deduplicationEnabled":true}`:                                                      ErrPolicyNotSupported,
		`{"deduplicationEnabled":false}`:                                                     ErrPolicyNotSupported, // the broker's setting may say true
		`{"max_consumers_per_topic":0}`:                                                      ErrPolicyNotSupported,
		`{"retention_policies":{"retentionTimeInMinutes":5,"retentionSizeInMB":0}}`:          ErrPolicyNotSupported,
		`{"auth_policies":{"namespace_auth":{"anonymous":["produce"]}}}`:                     ErrPolicyNotSupported,
		`{"auth_policies":{"namespace_auth":{"anonymous":["produce","consume"],"me":[]}}}`:   ErrPolicyNotSupported,
		`{"auth_policies":{"namespace_auth":{"me":["produce"]}}}`:                            ErrPolicyNotSupported,
		`{"encryption_required":true}`:                                                       ErrPolicyNotSupported,
		`{"x":1}`:                                                                            ErrPolicyNotSupported,
	} {
		_, err := parsePolicies([]byte(text), "here")
		if !errors.Is(err, want) || want == ErrPolicyNotSupported && !strings.Contains(text, strings.TrimSuffix(strings.Fields(err.Error())[0], ":")) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}
