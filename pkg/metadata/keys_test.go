package metadata

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	topic := TopicKey("public", "default", "persistent", "orders-partition-0")
	for got, want := range map[string]string{
		topic:                        "/topics/public/default/persistent/orders-partition-0",
		CursorKey(topic, "my sub/x"): "/cursors/public/default/persistent/orders-partition-0/my%20sub%2Fx",
		CursorPrefix(topic):          "/cursors/public/default/persistent/orders-partition-0/",
		DedupKey(topic):              "/dedup/public/default/persistent/orders-partition-0",
		OwnerKey("a", "b", "0x00000000_0x40000000"): "/owners/a/b/0x00000000_0x40000000",
		BookieKey("bk-1:3181"):                      "/bookies/bk-1:3181",
		GroupKey(12):                                "/groups/12",
		TopicKey("t", "n", "persistent", "100%/ü"):  "/topics/t/n/persistent/100%25%2F%C3%BC",
		TopicKey("", "", "", ""):                    "/topics/%/%/%/%",
		SettingKey("a/b c"):                         "/settings/a%2Fb%20c",
		DedupKey("/topics/a/b"):                     "/dedup/%raw/%2Ftopics%2Fa%2Fb",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := validateKey(got); err != nil {
			t.Error(err)
		}
	}
	if sub, ok := CursorName(CursorKey(topic, "my sub/x")); !ok || sub != "my sub/x" {
		t.Errorf("cursor name %q %t", sub, ok)
	}
	if name, ok := SettingName(SettingKey("a/b c")); !ok || name != "a/b c" {
		t.Errorf("setting name %q %t", name, ok)
	}
	if _, ok := SettingName(TenantKey("a")); ok {
		t.Error("a tenant is a setting")
	}
}

// Random names, picked to hurt: no two lists of names share a key, no key is in the prefix of another list, and names come back.
func TestNamesNeitherCollideNorEscape(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pieces := []string{"", "/", "%", "%2F", "..", "a", "ab", "b", " ", "\x00", "\xff", "%raw", "/topics/", "ü", "~"}
	name := func() string {
		var b strings.Builder
		for range rng.IntN(3) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		return b.String()
	}
	seen := map[string][5]string{}
	for range 20_000 {
		n := [5]string{name(), name(), name(), name(), name()}
		topic := TopicKey(n[0], n[1], n[2], n[3])
		cursor := CursorKey(topic, n[4])
		for _, key := range []string{topic, cursor, OwnerKey(n[0], n[1], n[2])} {
			if err := validateKey(key); err != nil {
				t.Fatal(err)
			}
		}
		if other, ok := seen[cursor]; ok && other != n {
			t.Fatalf("%q and %q share %s", n, other, cursor)
		}
		seen[cursor] = n
		a, b, c, d, ok := ParseTopicKey(topic)
		if !ok || [5]string{a, b, c, d, n[4]} != n {
			t.Fatalf("%q comes back as %q %q %q %q %t", n, a, b, c, d, ok)
		}
		if sub, ok := CursorName(cursor); !ok || sub != n[4] {
			t.Fatalf("%q comes back as %q %t", n[4], sub, ok)
		}
		m := [5]string{name(), name(), name(), name(), ""}
		if [4]string(m[:4]) != [4]string(n[:4]) && strings.HasPrefix(cursor, CursorPrefix(TopicKey(m[0], m[1], m[2], m[3]))) {
			t.Fatalf("%s is below the topic %q", cursor, m)
		}
		if (m[0] != n[0] || m[1] != n[1] || m[2] != n[2]) && strings.HasPrefix(topic, TopicPrefix(m[0], m[1], m[2])) {
			t.Fatalf("%s is below the namespace %q", topic, m)
		}
	}
}

func TestUnescapeTakesOnlyWhatEscapeMakes(t *testing.T) {
	for _, bad := range []string{"", "%2", "%zz", "%2f", "%61", "a/b", "%%", "ü", " "} {
		if s, ok := Unescape(bad); ok {
			t.Errorf("%q unescapes to %q", bad, s)
		}
	}
}
