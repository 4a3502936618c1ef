package protocol

import (
	"errors"
	"strings"
	"testing"
)

func TestParseTopicName(t *testing.T) {
	for _, c := range []struct {
		in, full, ns string
		partition    int
	}{
		{"t", "persistent://public/default/t", "public/default", -1},
		{"a/b/t", "persistent://a/b/t", "a/b", -1},
		{"a/c/b/t", "persistent://a/c/b/t", "a/c/b", -1},
		{"persistent://a/b/t", "persistent://a/b/t", "a/b", -1},
		{"non-persistent://a/b/t", "non-persistent://a/b/t", "a/b", -1},
		{"persistent://a/c/b/t", "persistent://a/c/b/t", "a/c/b", -1},
		{"persistent://a/c/b/t/u//v", "persistent://a/c/b/t/u//v", "a/c/b", -1},
		{"t-partition-5", "persistent://public/default/t-partition-5", "public/default", 5},
		{"t-partition-05", "persistent://public/default/t-partition-05", "public/default", -1},
		{"t-partition--1", "persistent://public/default/t-partition--1", "public/default", -1},
		{"t-partition-x", "persistent://public/default/t-partition-x", "public/default", -1},
		{"t-partition-1-partition-2", "persistent://public/default/t-partition-1-partition-2", "public/default", 2},
		{"t-partition-99999999999", "persistent://public/default/t-partition-99999999999", "public/default", -1},
		{"a-=:._Z/b/Ünïcode spaces ?%&", "persistent://a-=:._Z/b/Ünïcode spaces ?%&", "a-=:._Z/b", -1},
	} {
		got, err := ParseTopicName(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if got.String() != c.full || got.NamespaceName().String() != c.ns || got.Partition != c.partition {
			t.Errorf("%q: %q in %q, partition %d", c.in, got, got.NamespaceName(), got.Partition)
		}
		again, err := ParseTopicName(got.String())
		if err != nil || again != got {
			t.Errorf("%q: String does not parse back: %+v, %v", c.in, again, err)
		}
		if p := got.Partitioned(); got.Partition >= 0 && (p.WithPartition(got.Partition) != got || p.Partition != -1) {
			t.Errorf("%q: partitioned %+v", c.in, p)
		}
	}
}

func TestParseTopicNameRefuses(t *testing.T) {
	for _, in := range []string{
		"", "/", "a/b", "a/b/", "a/b/c/d/e", "://a/b/c", "persistent://", "persistent://a", "persistent://a/b",
		"persistent://a/b/", "persistent:///b/t", "persistent://a//t", "persistent://a//b/t", "other://a/b/t",
		"PERSISTENT://a/b/t", "persistent://a b/c/t", "persistent://a/b?c/t", "a\xff", strings.Repeat("x", maxNameSize+1),
	} {
		if got, err := ParseTopicName(in); !errors.Is(err, ErrBadTopicName) {
			t.Errorf("%q: %+v, %v", clip(in), got, err)
		} else if len(err.Error()) > 600 {
			t.Errorf("%q: error of %d bytes", clip(in), len(err.Error()))
		}
	}
}

func TestParseNamespaceName(t *testing.T) {
	for _, in := range []string{"a/b", "a/c/b", "public/default"} {
		if got, err := ParseNamespaceName(in); err != nil || got.String() != in {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "a", "a/", "/b", "a//b", "a/b/c/d", "a/b c", "ä/b"} {
		if got, err := ParseNamespaceName(in); !errors.Is(err, ErrBadNamespace) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func FuzzTopicName(f *testing.F) {
	for _, s := range []string{"t", "a/b/t", "persistent://a/b/t-partition-7", "persistent://a/c/b/t/u", "x://y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseTopicName(s)
		if err != nil {
			return
		}
		again, err := ParseTopicName(n.String())
		if err != nil || again != n {
			t.Fatalf("%q → %+v → %+v, %v", s, n, again, err)
		}
	})
}
