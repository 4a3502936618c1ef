package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// neutral are the values that clients send for policies that are not set and cannot be left out. Of all others null, or a
// list or an object without anything in it, says so.
var neutral = map[string]any{
	"deleted": false, "encryption_required": false, "schema_validation_enforced": false, "offload_threshold": -1.0,
	"offload_threshold_in_seconds": -1.0, "subscription_auth_mode": "None", "schema_compatibility_strategy": "UNDEFINED",
}

// namespacePolicies are those policies of a namespace that are enforced. All is what is stored.
type namespacePolicies struct {
	bundles int // 0: the broker's number
	all     map[string]json.RawMessage
}

// parsePolicies reads what a namespace is to be made with: a JSON object, null or nothing. A policy that nothing here
// enforces is ErrPolicyNotSupported: an administrator who sets it relies on it.
func parsePolicies(text []byte, cluster string) (p namespacePolicies, err error) {
	fields := map[string]json.RawMessage{}
	if len(text) > 0 && json.Unmarshal(text, &fields) != nil {
		return p, ErrBadPolicies
	}
	p.all = map[string]json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var v any
		if json.Unmarshal(fields[name], &v) != nil {
			return p, ErrBadPolicies
		}
		if says, ok := neutral[name]; asksNothing(v) || ok && v == says {
			continue
		}
		if err := p.take(name, fields[name], cluster); err != nil {
			return p, err
		}
	}
	return p, nil
}

// take keeps a policy that is set.
func (p *namespacePolicies) take(name string, text json.RawMessage, cluster string) error {
	switch name {
	case fieldBundles:
		var b struct {
			NumBundles int      `json:"numBundles"`
			Boundaries []string `json:"boundaries,omitempty"`
		}
		if json.Unmarshal(text, &b) != nil || b.NumBundles < 0 || b.NumBundles > maxBundles {
			return ErrBadPolicies
		}
		if len(b.Boundaries) > 0 && (b.NumBundles != 1 || !slices.Equal(b.Boundaries, []string{"0x00000000", "0xffffffff"})) {
			return fmt.Errorf("boundaries of bundles: %w", ErrPolicyNotSupported)
		}
		p.bundles = b.NumBundles
	case fieldPublishRate:
		rates := map[string]publishRate{}
		if json.Unmarshal(text, &rates) != nil {
			return ErrBadPolicies
		}
		for other := range rates {
			if other != cluster {
				return fmt.Errorf("%s of cluster %q: %w", name, other, ErrPolicyNotSupported)
			}
		}
	case "replication_clusters":
		var clusters []string
		if json.Unmarshal(text, &clusters) != nil {
			return ErrBadPolicies
		}
		if !slices.Equal(clusters, []string{cluster}) {
			return fmt.Errorf("replication to clusters %q: %w", clusters, ErrPolicyNotSupported)
		}
		return nil // where else
	default:
		return fmt.Errorf("%s: %w", name, ErrPolicyNotSupported)
	}
	p.all[name] = text
	return nil
}

// asksNothing reports that a value is null, or has nothing but such values in it.
func asksNothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !asksNothing(e) })
	case map[string]any:
		for _, e := range v {
			if !asksNothing(e) {
				return false
			}
		}
		return true
	}
	return false
}
