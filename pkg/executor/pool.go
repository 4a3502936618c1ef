package executor

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// Options of a Pool.
type Options struct {
	Name    string // prefix of the executors' names
	Threads int    // number of executors; 0 means one per GOMAXPROCS
}

// EnsureDefaults fills in what is not set.
func (o *Options) EnsureDefaults() {
	if o.Name == "" {
		o.Name = "executor"
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
}

// Pool is a fixed set of Executors.
type Pool struct {
	executors []*Executor
	next      atomic.Uint32
}

// NewPool starts the executors.
func NewPool(o Options) *Pool {
	o.EnsureDefaults()
	p := &Pool{executors: make([]*Executor, o.Threads)}
	for i := range p.executors {
		p.executors[i] = New(fmt.Sprintf("%s-%d", o.Name, i))
	}
	return p
}

// For returns the executor that the key is bound to: always the same one in this process and in others with as many
// threads.
func (p *Pool) For(key string) *Executor {
	// FNV-1a, then a finalizer, because the low bits of FNV alone are weak for keys that differ in the last byte.
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return p.executors[h%uint64(len(p.executors))]
}

// Next returns the executors in turn.
func (p *Pool) Next() *Executor {
	return p.executors[int(p.next.Add(1)-1)%len(p.executors)]
}

// Executors returns all of them. The slice must not be changed.
func (p *Pool) Executors() []*Executor { return p.executors }

// Close closes one executor after the other and waits for them. Whoever lets executors of one Pool post to each other
// sees to it that this has ended before: a task posted to an executor that is closed already is discarded.
func (p *Pool) Close() {
	for _, e := range p.executors {
		e.Close()
	}
}
