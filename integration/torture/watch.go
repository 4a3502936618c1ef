package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Watch looks at a broker from outside. It needs pprofEnabled, to have garbage collected before memory is compared.
type Watch struct {
	PID   int
	HTTP  string // host:port of the web service
	Topic string // persistent://…
}

// State is what a broker holds at a moment, after a garbage collection.
type State struct {
	Goroutines  int
	Descriptors int
	Heap        int64 // bytes of live objects
	RSS         int64
	Clients     int // producers and consumers of the topic
}

func (s State) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, heap %.1f MiB, RSS %.1f MiB, %d producers and consumers",
		s.Goroutines, s.Descriptors, float64(s.Heap)/(1<<20), float64(s.RSS)/(1<<20), s.Clients)
}

// Bounds are how much more than before may be left: caches of the runtime, connections of the test itself.
type Bounds struct {
	Goroutines, Descriptors int
	Heap, RSS               int64
}

// Now reads the state.
func (w Watch) Now(ctx context.Context) (State, error) {
	var s State
	if err := w.get(ctx, "/debug/pprof/heap?gc=1", func(*http.Response) error { return nil }); err != nil {
		return s, err
	}
	metrics, err := w.Metrics(ctx)
	if err != nil {
		return s, err
	}
	s.Goroutines, s.Heap = int(metrics["go_goroutines"]), int64(metrics["go_memstats_heap_alloc_bytes"])
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.PID))
	if err != nil {
		return s, err
	}
	s.Descriptors = len(files)
	if s.RSS, err = RSS(w.PID); err != nil || w.Topic == "" {
		return s, err
	}
	path := "/admin/v2/" + strings.Replace(w.Topic, "://", "/", 1) + "/stats"
	err = w.get(ctx, path, func(r *http.Response) error {
		var stats struct {
			Publishers    []struct{}
			Subscriptions map[string]struct{ Consumers []struct{} }
		}
		err := json.NewDecoder(r.Body).Decode(&stats)
		s.Clients = len(stats.Publishers)
		for _, sub := range stats.Subscriptions {
			s.Clients += len(sub.Consumers)
		}
		return err
	})
	return s, err
}

// Settled waits until the broker is as it was before, or ctx ends; then it says what is left over.
func (w Watch) Settled(ctx context.Context, before State, b Bounds) (State, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := w.Now(ctx)
		if err == nil && s.Goroutines <= before.Goroutines+b.Goroutines && s.Descriptors <= before.Descriptors+b.Descriptors &&
			s.Heap <= before.Heap+b.Heap && s.RSS <= before.RSS+b.RSS && s.Clients <= before.Clients {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("left over: %v; before: %v; %w", s, before, err)
		case <-tick.C:
		}
	}
}

// Metrics reads all figures of the broker; of those with labels, the sum.
func (w Watch) Metrics(ctx context.Context) (map[string]float64, error) {
	out := map[string]float64{}
	err := w.get(ctx, "/metrics", func(r *http.Response) error {
		lines := bufio.NewScanner(r.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			name, value, ok := strings.Cut(lines.Text(), " ")
			if at := strings.LastIndexByte(lines.Text(), '}'); at >= 0 {
				name, value = lines.Text()[:strings.IndexByte(lines.Text(), '{')], lines.Text()[at+1:]
			}
			if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && ok {
				out[name] += v
			}
		}
		return lines.Err()
	})
	return out, err
}

func (w Watch) get(ctx context.Context, path string, read func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.HTTP+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no connection of ours is counted
	r, err := client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, r.Status)
	}
	return read(r)
}

// RSS returns the resident memory of a process.
func RSS(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
