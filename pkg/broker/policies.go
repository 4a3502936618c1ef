package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// neutral returns the value that clients send for a policy that is not set and cannot be left out. Of all others null, or
// a list or an object without anything in it, says so.
func neutral(name string) any {
	switch name {
	case "deleted", "encryption_required", "schema_validation_enforced":
		return false
	case "offload_threshold", "offload_threshold_in_seconds":
		return -1.0
	case "subscription_auth_mode":
		return "None"
	case "schema_compatibility_strategy":
		return "UNDEFINED"
	}
	return nil
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
		if asksNothing(v) || v == neutral(name) {
			continue
		}
		if err := p.take(name, fields[name], cluster); err != nil {
			return p, err
		}
	}
	return p, nil
}

// take keeps a policy that is set.
func (p *namespacePolicies) take(name string, text json.RawMessage, cluster string) (err error) {
	switch name {
	case fieldBundles:
		p.bundles, err = bundlesIn(text)
	case fieldPublishRate:
		err = onlyRatesOf(cluster, text)
	case "replication_clusters":
		return onlyCluster(cluster, text) // and not kept: where else
	case "auth_policies":
		return onlyAnonymous(text) // and not kept: they are all there is
	default:
		err = fmt.Errorf("%s: %w", name, ErrPolicyNotSupported)
	}
	p.all[name] = text
	return err
}

// bundlesIn reads a number of bundles. Which hashes each has cannot be chosen.
func bundlesIn(text json.RawMessage) (int, error) {
	var b struct {
		NumBundles int      `json:"numBundles"`
		Boundaries []string `json:"boundaries"`
	}
	if json.Unmarshal(text, &b) != nil || b.NumBundles < 0 || b.NumBundles > maxBundles {
		return 0, ErrBadPolicies
	}
	if len(b.Boundaries) > 0 && (b.NumBundles != 1 || !slices.Equal(b.Boundaries, []string{"0x00000000", "0xffffffff"})) {
		return 0, fmt.Errorf("boundaries of bundles: %w", ErrPolicyNotSupported)
	}
	return b.NumBundles, nil
}

func onlyRatesOf(cluster string, text json.RawMessage) error {
	rates := map[string]publishRate{}
	if json.Unmarshal(text, &rates) != nil {
		return ErrBadPolicies
	}
	for other := range rates {
		if other != cluster {
			return fmt.Errorf("%s of cluster %q: %w", fieldPublishRate, other, ErrPolicyNotSupported)
		}
	}
	return nil
}

func onlyCluster(cluster string, text json.RawMessage) error {
	var clusters []string
	if json.Unmarshal(text, &clusters) != nil {
		return ErrBadPolicies
	}
	if !slices.Equal(clusters, []string{cluster}) {
		return fmt.Errorf("replication to clusters %q: %w", clusters, ErrPolicyNotSupported)
	}
	return nil
}

// onlyAnonymous takes a grant of everything to the role of clients that nobody has authenticated: without authentication
// all are. Any other would protect nothing.
func onlyAnonymous(text json.RawMessage) error {
	fields := map[string]any{}
	if json.Unmarshal(text, &fields) != nil {
		return ErrBadPolicies
	}
	for name, v := range fields {
		if grants, ok := v.(map[string]any); ok && name == "namespace_auth" && len(grants) == 1 {
			actions, _ := grants["anonymous"].([]any)
			if slices.Contains(actions, any("produce")) && slices.Contains(actions, any("consume")) {
				continue
			}
		}
		if !asksNothing(v) {
			return fmt.Errorf("auth_policies: %w", ErrPolicyNotSupported)
		}
	}
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
