package bookie

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// parseHosts reads "a b/r1 c!" into hosts: an id, perhaps a rack, and what is the matter with it: ! dead, - leaving, # full,
// ? not known yet.
func parseHosts(text string) []host {
	var out []host
	for _, word := range strings.Fields(text) {
		h := host{dead: strings.Contains(word, "!"), leaving: strings.Contains(word, "-"), full: strings.Contains(word, "#"), doubtful: strings.Contains(word, "?")}
		h.id, h.rack, _ = strings.Cut(strings.Trim(word, "!-#?"), "/")
		out = append(out, h)
	}
	return out
}

// parseGroups reads "1:abc 2:bcd(a)": replicas, and those on their way out.
func parseGroups(text string) []metadata.GroupInfo {
	var out []metadata.GroupInfo
	for _, word := range strings.Fields(text) {
		var id int
		var rest string
		if _, err := fmt.Sscanf(strings.ReplaceAll(word, ":", " "), "%d %s", &id, &rest); err != nil {
			panic(err)
		}
		replicas, former, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "(")
		g := metadata.GroupInfo{ID: ledger.GroupID(id), Replicas: strings.Split(replicas, "")}
		if former != "" {
			g.Former = strings.Split(former, "")
		}
		out = append(out, g)
	}
	return out
}

func showGroup(g *metadata.GroupInfo) string {
	s := fmt.Sprintf("%d:%s", g.ID, strings.Join(g.Replicas, ""))
	if len(g.Former) > 0 {
		s += "(" + strings.Join(g.Former, "") + ")"
	}
	return s
}

func TestCreateGroups(t *testing.T) {
	for _, c := range []struct {
		name, hosts, members, groups string
		per, rf                      int
		want                         string
	}{
		{"nobody yet", "", "c a b", "", 1, 3, ""},
		{"a member is missing", "a b", "a b c", "", 1, 3, ""},
		{"three", "c a b", "a b c", "", 1, 3, "1:abc 2:bca 3:cab"},
		{"one has not answered yet", "a b c d?", "a b c", "1:abc 2:bca", 1, 3, ""},
		{"one has not answered and leaves", "a b c d?-", "a b c", "1:abc 2:bca", 1, 3, "3:cab"},
		{"nothing left to do", "a b c", "a b c", "1:abc 2:bca 3:cab", 1, 3, ""},
		{"two each", "a b c", "a b c", "", 2, 3, "1:abc 2:bca 3:cab 4:abc 5:bca 6:cab"},
		{"one more each", "a b c", "a b c", "1:abc 2:bca 3:cab", 2, 3, "4:abc 5:bca 6:cab"},
		{"alone", "a", "a", "", 2, 3, "1:a 2:a"},
		{"a fourth comes", "a b c d", "a b c", "1:abc 2:bca 3:cab", 1, 3, "4:dab"},
		{"five members", "a b c d e", "a b c d e", "", 1, 3, "1:abc 2:bcd 3:cde 4:dea 5:eab"},
		{"interrupted", "a b c", "a b c", "1:abc", 1, 3, "2:bca 3:cab"},
		{"dead, leaving and full ones get nothing", "a b! c- d# e f", "a", "", 1, 3, "1:aef 2:efa 3:fae"},
		{"three racks of two", "a/1 b/1 c/2 d/2 e/3 f/3", "a", "", 1, 3, "1:ace 2:bce 3:cea 4:dea 5:eac 6:fac"},
		{"two racks", "a/1 b/1 c/1 d/2", "a", "", 1, 3, "1:adb 2:bdc 3:cda 4:dab"},
		{"a rack that is not known is one of its own", "a/1 b/1 c d", "a", "", 1, 3, "1:acd 2:bcd 3:cda 4:dac"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, g := range newBoard(parseHosts(c.hosts), parseGroups(c.groups)).create(strings.Fields(c.members), c.per, c.rf) {
				got = append(got, showGroup(&g))
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
		})
	}
}

func TestReplace(t *testing.T) {
	const five = "1:abc 2:bcd 3:cde 4:dea 5:eab"
	for _, c := range []struct{ name, hosts, groups, want string }{
		{"all is well", "a b c d e", five, ""},
		{"nowhere to go", "a b c!", "1:abc 2:bca 3:cab", ""},
		{"one is dead", "a! b c d e", five, "1:dbc(a) 4:deb(a)"},
		{"one leaves", "a- b c d e", five, "1:dbc(a) 4:deb(a)"},
		{"the first is dead: who leads least is first", "a! b c d", "1:abc 2:bcd 3:cdb", "1:dbc(a)"},
		{"few at a time", "a! b c d e", "1:dbc(a) 2:bcd 3:cde 4:dec(a) 5:eab", ""},
		{"the next when one is done", "a! b c d e", "1:dbc 2:bcd 3:cde 4:dec(a) 5:eab", "5:ecb(a)"},
		{"a newcomer dies under way", "a! b c d! e", "1:dbc(a)", "1:ebc(ad)"},
		{"one that leaves waits for the change before it", "a- b- c d e", "1:dbc(a)", ""},
		{"a dead one does not wait", "a- b! c d e", "1:dbc(a)", "1:dec(ab)"},
		{"a dead one before one that leaves", "a- b! c d e", "1:abc", "1:adc(b)"},
		{"most are silent", "a! b! c! d e", five, ""},
		{"half are", "a! b! c d", "1:abc", "1:dbc(a)"},
		{"most have gone long ago", "a! b c d v! w! x! y! z!", "1:abc", "1:dbc(a)"},
		{"the full and the leaving take nothing", "a! b c d# e- f", "1:abc", "1:fbc(a)"},
		{"another rack", "a/1! b/2 c/3 d/2 e/3 f/1", "1:abc 2:fde 3:fde", "1:bfc(a)"},
		{"racks before load, load before the rest", "a/1! b/2 c/3 d/1 e/1", "1:abc 2:dbc", "1:ebc(a)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, m := range newBoard(parseHosts(c.hosts), parseGroups(c.groups)).replace() {
				got = append(got, showGroup(&m.info))
				if slices.Contains(m.info.Replicas, m.out) || !slices.Contains(m.info.Replicas, m.in) || !slices.Contains(m.info.Former, m.out) {
					t.Errorf("%s for %s gives %s", m.in, m.out, showGroup(&m.info))
				}
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
		})
	}
}

// However bookies die and leave, a group keeps its number of replicas, no bookie is in it twice, and once nothing changes
// any more no replica is on a bookie that is dead or leaves, as long as there are enough others.
func TestReplaceSettles(t *testing.T) {
	hosts := parseHosts("a/1 b/2 c/3 d/1 e/2 f/3 g")
	groups := newBoard(hosts, nil).create([]string{"a"}, 2, 3)
	for _, gone := range []int{0, 3, 6, 1} {
		hosts[gone].dead, hosts[gone].leaving = gone%2 == 0, gone%2 == 1
		for round := 0; ; round++ {
			moves := newBoard(hosts, groups).replace()
			if len(moves) == 0 {
				break
			}
			if round > 10*len(groups) {
				t.Fatal("it never ends")
			}
			for _, m := range moves {
				at := slices.IndexFunc(groups, func(g metadata.GroupInfo) bool { return g.ID == m.info.ID })
				groups[at] = m.info.Settled()
			}
		}
		for _, g := range groups {
			seen := map[string]bool{}
			for _, r := range g.Replicas {
				h := newBoard(hosts, nil).host(r)
				if seen[r] || h.dead || h.leaving {
					t.Errorf("%s after %s has gone", showGroup(&g), hosts[gone].id)
				}
				seen[r] = true
			}
			if len(g.Replicas) != 3 {
				t.Errorf("%s has not three replicas", showGroup(&g))
			}
		}
	}
}

// A record that cannot be read does not make its id free.
func TestBadGroupRecordStopsPlacement(t *testing.T) {
	good := metadata.Item{Key: metadata.GroupKey(1), Value: []byte(`{"id":1,"replicas":["a"]}`), Version: 1}
	if got, err := groupRecords(map[string]metadata.Item{good.Key: good}); err != nil || len(got) != 1 || got[0].ID != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, value := range map[string]string{"junk": "junk", "another group's": `{"id":3,"replicas":["a"]}`, "nobody's": `{"id":2}`} {
		bad := metadata.Item{Key: metadata.GroupKey(2), Value: []byte(value), Version: 1}
		_, err := groupRecords(map[string]metadata.Item{good.Key: good, bad.Key: bad})
		if !errors.Is(err, errBadGroupRecord) || !strings.Contains(err.Error(), bad.Key) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
