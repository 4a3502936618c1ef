package main

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestRefusedConnections walks a broker through life, death and restart in virtual time; it is asked about every 100 ms.
func TestRefusedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer error
		r := reach{dial: func(string) error { return answer }}
		ask := func(d time.Duration) (refuses bool) {
			for end := time.Now().Add(d); !time.Now().After(end); time.Sleep(100 * time.Millisecond) {
				refuses = r.refuses("a")
				synctest.Wait()
			}
			return refuses
		}
		if ask(2 * time.Second) {
			t.Error("a broker that answers counts as dead")
		}
		answer = errors.New("i/o timeout")
		if ask(5 * time.Second) {
			t.Error("silence counts as a refusal")
		}
		answer = syscall.ECONNREFUSED
		if ask(refusedFor - 100*time.Millisecond) {
			t.Error("a broker that is only shutting down counts as dead")
		}
		if !ask(time.Second) {
			t.Error("a broker that refuses does not count as dead")
		}
		answer = nil
		if ask(time.Second) {
			t.Error("a broker that is back counts as dead")
		}
	})
}

// TestOldRefusalsAreForgotten: nobody asked for a while, and the broker may have come back meanwhile.
func TestOldRefusalsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reach{dial: func(string) error { return syscall.ECONNREFUSED }}
		for range 30 {
			r.refuses("a")
			time.Sleep(100 * time.Millisecond)
		}
		if !r.refuses("a") {
			t.Fatal("not refused after three seconds")
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		if r.refuses("a") {
			t.Error("an answer of a minute ago counts")
		}
		synctest.Wait()
	})
}
