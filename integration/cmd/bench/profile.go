package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"geminga/integration/harness"
)

// profile fetches profiles of the daemons into dir, unless it is empty: of CPU time while the measurement runs, and what
// they have allocated meanwhile. The returned func waits for them.
func profile(dir string, d daemons) func() {
	var wg sync.WaitGroup
	if dir != "" {
		for _, p := range append([]*harness.Proc{d.broker}, d.bookies...) {
			for what, suffix := range map[string]string{"profile": ".prof", "allocs": ".allocs.prof"} {
				wg.Go(func() {
					if err := fetchProfile(p, what, filepath.Join(dir, p.Name+suffix)); err != nil {
						fmt.Fprintln(os.Stderr, "profile:", err)
					}
				})
			}
		}
	}
	return wg.Wait
}

func fetchProfile(p *harness.Proc, what, path string) error {
	resp, err := http.Get("http://" + p.HTTP + "/debug/pprof/" + what + "?seconds=5")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadFrom(resp.Body)
	return err
}
