package bookie

import (
	"sync"
	"time"
)

const (
	// complainEvery is how often the same thing is worth a line in the log.
	complainEvery = time.Minute
	// maxComplaints bounds what is remembered; beyond it all is forgotten, and said again.
	maxComplaints = 256
)

// complaints says which of many equal complaints are to be written. The zero value is ready for use.
type complaints struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due returns whether a text is to be written now.
func (c *complaints) due(now time.Time, text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, said := c.last[text]; said && now.Sub(at) < complainEvery {
		return false
	}
	if c.last == nil || len(c.last) >= maxComplaints {
		c.last = map[string]time.Time{}
	}
	c.last[text] = now
	return true
}
