package eventloop_test

import (
	"bytes"
	"errors"
	"testing"

	"geminga/pkg/eventloop"
	"geminga/pkg/invariant"
)

func TestSizeClasses(t *testing.T) {
	lastClass, lastSize := 0, 0
	for n := 0; n <= 10<<20; n += 1 + n/37 {
		class, size := eventloop.ClassOf(n)
		if size < n || n > 256 && size-n > n/4+1 {
			t.Fatalf("%d bytes in a root of %d", n, size)
		}
		if class < lastClass || (class == lastClass) != (size == lastSize) && lastSize != 0 {
			t.Fatalf("%d: class %d of %d after class %d of %d", n, class, size, lastClass, lastSize)
		}
		if c, s := eventloop.ClassOf(size); c != class || s != size {
			t.Fatalf("class of its own size %d: %d of %d, want %d", size, c, s, class)
		}
		lastClass, lastSize = class, size
	}
	for _, n := range []int{1 << 10, 16 << 10, 1 << 20, 8 << 20} {
		if _, size := eventloop.ClassOf(n); size != n {
			t.Errorf("%d is rounded up to %d", n, size)
		}
	}
}

func broken(f func()) bool {
	var v invariant.Violation
	func() {
		defer func() { _ = recover() }()
		defer func() {
			if e, ok := recover().(error); ok && !errors.As(e, &v) {
				panic(e)
			}
		}()
		f()
	}()
	return v != ""
}

func TestRootReferences(t *testing.T) {
	var p eventloop.Pool
	r := p.Get(1000)
	if r.Cap() != 1024 || p.Live() != 1 {
		t.Fatalf("%d bytes, %d live", r.Cap(), p.Live())
	}
	r.Retain()
	r.Release()
	copy(r.Bytes(), "content")
	kept := r.Bytes()
	r.Release()
	if p.Live() != 0 {
		t.Errorf("%d live", p.Live())
	}
	if invariant.Enabled && !bytes.Equal(kept, bytes.Repeat([]byte{0xDB}, 1024)) {
		t.Error("a released root is not poisoned")
	}
	if !broken(r.Retain) {
		t.Error("retain after the last release passed")
	}
	var q eventloop.Pool
	s := q.Get(1)
	s.Release()
	if !broken(s.Release) {
		t.Error("second release passed")
	}
}

func TestDefaultLoops(t *testing.T) {
	want := map[int]int{1: 2, 2: 4, 3: 6, 4: 8, 5: 8, 7: 8, 8: 8, 16: 8, 17: 8, 18: 9, 32: 16, 64: 32, 128: 64}
	for n := 1; n <= 128; n++ {
		got := eventloop.DefaultLoops(n)
		if w, ok := want[n]; ok && got != w {
			t.Errorf("%d processors: %d loops, want %d", n, got, w)
		}
		if got != min(2*n, max(8, n/2)) {
			t.Errorf("%d processors: %d loops", n, got)
		}
	}
}

func TestValidateReportsAll(t *testing.T) {
	o := eventloop.Options{Loops: -1, RootStart: 100, HighWater: 10, LowWater: 20, MaxConns: -1}
	o.EnsureDefaults()
	err := o.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, s := range []string{"loops", "root sizes", "water marks", "limit"} {
		if !bytes.Contains([]byte(err.Error()), []byte(s)) {
			t.Errorf("%q not in %v", s, err)
		}
	}
	var d eventloop.Options
	d.EnsureDefaults()
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
}
