package managedledger

// ring holds the ops that have not completed, in order. It grows by doubling and is reused, so that an op costs no
// allocation once the ring has its usual size.
//
//	   completed         stored or on the way            not sent yet
//	─────────────────┬────────────────────────────┬───────────────────────┬──────
//	               head                         sent                    tail
type ring struct {
	ops              []Op // length a power of two
	head, sent, tail uint64
}

const ringSize = 16 // to begin with

func (r *ring) len() int { return int(r.tail - r.head) }

func (r *ring) at(i uint64) *Op { return &r.ops[i&uint64(len(r.ops)-1)] }

func (r *ring) push(op *Op) {
	if r.len() == len(r.ops) {
		r.grow()
	}
	*r.at(r.tail) = *op
	r.tail++
}

func (r *ring) grow() {
	ops := make([]Op, max(ringSize, 2*len(r.ops)))
	for i := r.head; i != r.tail; i++ {
		ops[i&uint64(len(ops)-1)] = *r.at(i)
	}
	r.ops = ops
}

// span returns ops from i on, at most up to end, as far as they lie side by side.
func (r *ring) span(i, end uint64) []Op {
	at := i & uint64(len(r.ops)-1)
	return r.ops[at:min(at+end-i, uint64(len(r.ops)))]
}

// pop forgets the first n ops and gives their payloads back.
func (r *ring) pop(n int) {
	for range n {
		op := r.at(r.head)
		op.Payload.Release()
		*op = Op{}
		r.head++
	}
	if r.sent < r.head {
		r.sent = r.head
	}
}
