package broker

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"geminga/pkg/eventloop"
)

// FrameMemoryMode is what the broker does about the memory that request frames keep
// (inProgressRequestFrameMemoryLimitEnabled).
type FrameMemoryMode uint8

const (
	// FrameMemoryAuto counts, and limits once memory runs short.
	FrameMemoryAuto FrameMemoryMode = iota
	// FrameMemoryDisabled does nothing.
	FrameMemoryDisabled
	// FrameMemoryTracking counts.
	FrameMemoryTracking
	// FrameMemoryEnabled counts and limits.
	FrameMemoryEnabled
)

// ParseFrameMemoryMode reads the names of the modes; false is AUTO, true is ENABLED.
func ParseFrameMemoryMode(s string) (FrameMemoryMode, error) {
	switch strings.ToUpper(s) {
	case "AUTO", "FALSE":
		return FrameMemoryAuto, nil
	case "ENABLED", "TRUE":
		return FrameMemoryEnabled, nil
	case "TRACKING":
		return FrameMemoryTracking, nil
	case "DISABLED":
		return FrameMemoryDisabled, nil
	}
	return 0, fmt.Errorf("%q is none of DISABLED, TRACKING, AUTO, ENABLED", s)
}

// String returns the name that ParseFrameMemoryMode reads.
func (m FrameMemoryMode) String() string {
	return [...]string{"AUTO", "DISABLED", "TRACKING", "ENABLED"}[m]
}

// frameMemory limits the memory that request frames keep. A small frame that waits for storage keeps the whole root that
// it was received in; so whole roots are counted, each once, from the first frame kept in it to the last release, on
// whatever goroutine.
//
//	           ┌──────────── inactive ◀───────────┐
//	AUTO: use ≥ 85 % and n > 1.5 L        AUTO: use < 65 %         n: bytes kept, L: the limit
//	           └─▶ active, reads free ────────────┤                use: roots in use, of the budget
//	                  n > L │   ▲ n ≤ L/2         │
//	                        ▼   │                 │
//	               active, reads held ────────────┘
//
// ENABLED is always active; TRACKING, and L ≤ 0, never. DISABLED has no account at all, so that a root's first and last
// reference cost what they cost anyway; what is counted at the time of the change is counted down by and by.
//
// Held reads stop sockets only. What was read goes on, so the memory is released and the releases free the reads; nobody
// polls. (The alternative, one more reason in conn.throttles, stops the frames that keep the memory, for ever.)
//
// Steady path: one atomic addition and one comparison per root. The thresholds of the comparison follow the state, which
// changes under the lock. No change is missed:
//
//	releaser                          whoever changes the state, locked
//	1 used -= size                    a store thresholds
//	2 compare used with below         b load used, and look again if that changes the state
//
// If 2 compares with the old threshold, it came before a, hence 1 before b. The same holds for charges and above.
type frameMemory struct {
	used                     atomic.Int64
	above, below             atomic.Int64 // a charge beyond above, a release down to below may change the state
	activateFrom, leaveBelow atomic.Int64 // of roots in use; AUTO only
	throttled                atomic.Bool

	inUse   func() int64 // bytes of roots in use
	notify  func()       // throttled has changed; called without the lock, on any goroutine
	account eventloop.Account
	mu      struct {
		sync.Mutex
		mode   FrameMemoryMode
		limit  int64
		budget int64
		active bool
	}
}

func (m *frameMemory) init(o *Admission, inUse func() int64, notify func()) {
	m.inUse, m.notify = inUse, notify
	m.account.Changed = m.changed
	m.mu.mode, m.mu.limit, m.mu.budget = o.FrameMemory, o.MaxPublishBuffer, o.MaxDirectMemory
	m.publish()
}

// accountFor returns what roots are charged to in a mode.
func (m *frameMemory) accountFor(mode FrameMemoryMode) *eventloop.Account {
	if mode == FrameMemoryDisabled {
		return nil
	}
	return &m.account
}

// changed is called by the first and the last frame kept in a root.
func (m *frameMemory) changed(delta int64) {
	n := m.used.Add(delta)
	if delta > 0 {
		if n <= m.above.Load() || m.inUse() < m.activateFrom.Load() {
			return
		}
	} else if n > m.below.Load() {
		if leave := m.leaveBelow.Load(); leave == 0 || m.inUse() >= leave {
			return
		}
	}
	m.update(func() {})
}

// configure changes the mode and the limit.
func (m *frameMemory) configure(f func(mode *FrameMemoryMode, limit *int64)) {
	m.update(func() {
		before := m.mu.mode
		f(&m.mu.mode, &m.mu.limit)
		if m.mu.mode != before {
			m.mu.active = false
		}
	})
}

// update makes a change and brings the state in line with what is counted.
func (m *frameMemory) update(change func()) {
	m.mu.Lock()
	was := m.throttled.Load()
	change()
	m.publish()
	for m.step(m.used.Load()) {
		m.publish()
	}
	now := m.throttled.Load()
	m.mu.Unlock()
	if now != was {
		m.notify()
	}
}

// step moves along the edges of the picture and reports whether it did. The lock is held.
func (m *frameMemory) step(n int64) bool {
	active, throttled := m.mu.active, m.throttled.Load()
	limit, budget := m.mu.limit, m.mu.budget
	switch {
	case limit <= 0 || m.mu.mode == FrameMemoryDisabled || m.mu.mode == FrameMemoryTracking:
		active = false
	case m.mu.mode == FrameMemoryEnabled:
		active = true
	case active:
		active = m.inUse() >= percent(budget, 65)
	default:
		active = budget > 0 && n > limit+limit/2 && m.inUse() >= percent(budget, 85)
	}
	switch {
	case !active || n <= limit/2:
		throttled = false
	case n > limit:
		throttled = true
	}
	if active == m.mu.active && throttled == m.throttled.Load() {
		return false
	}
	m.mu.active = active
	m.throttled.Store(throttled)
	return true
}

// publish stores the thresholds of the present state. The lock is held.
func (m *frameMemory) publish() {
	above, below := int64(math.MaxInt64), int64(-1)
	var activateFrom, leaveBelow int64
	limit := m.mu.limit
	switch auto := m.mu.mode == FrameMemoryAuto; {
	case limit <= 0 || m.mu.mode == FrameMemoryDisabled || m.mu.mode == FrameMemoryTracking:
	case auto && !m.mu.active:
		if m.mu.budget > 0 {
			above, activateFrom = limit+limit/2, percent(m.mu.budget, 85)
		}
	case auto:
		leaveBelow = percent(m.mu.budget, 65)
		fallthrough
	default:
		if m.throttled.Load() {
			below = limit / 2
		} else {
			above = limit
		}
	}
	m.above.Store(above)
	m.below.Store(below)
	m.activateFrom.Store(activateFrom)
	m.leaveBelow.Store(leaveBelow)
}

// percent rounds up.
func percent(of, n int64) int64 { return (of/100)*n + (of%100*n+99)/100 }

// holder makes a loop hold or free its reads. It is posted once for any number of changes and does what is right when it
// runs.
type holder struct {
	memory *frameMemory
	loop   *eventloop.Loop
	posted atomic.Bool
}

// Run is called on the loop.
func (h *holder) Run() {
	h.posted.Store(false)
	if h.memory.throttled.Load() {
		h.loop.HoldReads()
	} else {
		h.loop.FreeReads()
	}
}

// holdAtOnce spares a loop that is reading what it would read until its holder runs: every other socket that is ready, a
// share of each. A change back that is under way runs behind it.
func (m *frameMemory) holdAtOnce(l *eventloop.Loop) {
	if m.throttled.Load() {
		l.HoldReads()
	}
}

func (h *holder) post() {
	if h.posted.CompareAndSwap(false, true) {
		h.loop.Post(h)
	}
}

// notifyLoops tells every loop that reads are to be held or freed.
func (s *Server) notifyLoops() {
	for _, st := range s.states {
		st.holder.post()
	}
}
