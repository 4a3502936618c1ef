package invariant_test

import (
	"errors"
	"testing"

	"geminga/pkg/invariant"
)

func caught(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err, _ = r.(error)
		}
	}()
	f()
	return nil
}

func TestBrokenPanicsInEveryBuild(t *testing.T) {
	err := caught(func() { invariant.Broken("%d references", -1) })
	var v invariant.Violation
	if !errors.As(err, &v) || v != "broken invariant: -1 references" {
		t.Fatalf("got %v", err)
	}
}

func TestAssertPanicsInInvariantsBuildsOnly(t *testing.T) {
	if err := caught(func() { invariant.Assert(true, "fine") }); err != nil {
		t.Fatal(err)
	}
	err := caught(func() { invariant.Assert(false, "last %d", 7) })
	if (err != nil) != invariant.Enabled {
		t.Fatalf("enabled %v, got %v", invariant.Enabled, err)
	}
}

func TestAssertCostsNoAllocation(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { invariant.Assert(true, "constant") }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestGoroutine(t *testing.T) {
	var g invariant.Goroutine
	g.Check("no owner yet")
	g.Own()
	g.Check("own state")
	if g.Owns() != invariant.Enabled {
		t.Error("the owner does not own")
	}
	failed := make(chan error)
	go func() { failed <- caught(func() { g.Check("state") }) }()
	if err := <-failed; (err != nil) != invariant.Enabled {
		t.Errorf("from another goroutine: %v", err)
	}
}
