package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"geminga/integration/harness"
)

// profile fetches CPU profiles of the daemons into dir while the measurement runs, unless dir is empty. The returned
// func waits for them.
func profile(dir string, d daemons) func() {
	var wg sync.WaitGroup
	if dir != "" {
		for _, p := range append([]*harness.Proc{d.broker}, d.bookies...) {
			wg.Go(func() {
				if err := fetchProfile(p, filepath.Join(dir, p.Name+".prof")); err != nil {
					fmt.Fprintln(os.Stderr, "profile:", err)
				}
			})
		}
	}
	return wg.Wait
}

func fetchProfile(p *harness.Proc, path string) error {
	resp, err := http.Get("http://" + p.HTTP + "/debug/pprof/profile?seconds=5")
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
