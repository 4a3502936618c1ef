package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// stall is one way for frames in one root to get stuck between a throttle reason and the memory limit.
type stall struct {
	memoryFirst bool   // the memory of others is released before the reason clears
	frames      uint64 // SENDs behind A in its root; each of them throttles again
	part        int    // bytes of another SEND behind them, whose rest comes later
	end         string // of the connection, after the first step of the drain: "" (it stays), "client" or "broker"
}

func (s stall) String() string {
	order := "reason-first"
	if s.memoryFirst {
		order = "memory-first"
	}
	return fmt.Sprintf("%s/frames=%d/part=%d/end=%s", order, s.frames, s.part, s.end)
}

// Whatever stops a connection behind A, whichever of that and the memory limit clears first, whether the frames behind A
// stop it again, whether the last of them is complete, and whether the connection ends in between: the frames that were
// read are delivered, in order and once; nothing more is read before the memory is free; and in the end nothing is kept.
func TestStalls(t *testing.T) {
	for _, memoryFirst := range []bool{false, true} {
		for _, frames := range []uint64{1, 4} {
			for _, part := range []int{0, 2, 30} {
				for _, end := range []string{"", "client", "broker"} {
					if end != "" && (frames == 1 || part != 30) {
						continue // the most is in the queue with the others
					}
					s := stall{memoryFirst, frames, part, end}
					t.Run(s.String(), func(t *testing.T) {
						eachReason(t, func(g *stage, r *reason) { s.run(g, r) })
					})
				}
			}
		}
	}
}

func (s stall) run(g *stage, r *reason) {
	first := r.next()
	var read [][]byte
	for i := range s.frames {
		read = append(read, sendFrame(g.t, 1, first+i, "b"))
	}
	last := first + s.frames - 1 // that is there as a whole
	var later []byte
	if s.part > 0 {
		whole := sendFrame(g.t, 1, last+1, "c")
		read, later = append(read, whole[:s.part]), whole[s.part:]
		last++
	}
	later = append(later, sendFrame(g.t, 1, last+1, "d")...)
	r.begun(g, read...)
	g.s.memory.changed(pressure)
	if s.memoryFirst {
		g.s.memory.changed(-pressure)
	}
	if _, held := g.throttles(); !held {
		g.t.Fatal("reads are free, though B keeps memory")
	}
	g.push(later)
	g.wants("stopped", r.ids...)
	r.clear(g)
	if s.end != "" {
		s.ends(g, last)
		return
	}
	if !s.memoryFirst {
		r.drainHeld(g, last)
		for range 3 {
			r.clear(g)
		}
		g.wants("reads are held", all(last)...)
		g.s.memory.changed(-pressure)
	}
	for i := 0; i < 60 && len(g.stored()) < int(last+2); i++ {
		elapse(time.Second)
	}
	g.wants("D", all(last+1)...)
	g.idle()
}

// ends closes the connection while it drains. What has been answered is a prefix of what was sent.
func (s stall) ends(g *stage, last uint64) {
	if s.end == "broker" {
		g.onLoop(func() { g.c.ec.Close(errReplaced) })
	}
	_ = g.conn.Close()
	elapse(20 * time.Second)
	if got := g.stored(); len(got) > int(last)+2 || !slices.Equal(got, all(last + 1)[:len(got)]) {
		g.t.Errorf("receipts %v", got)
	}
	if !s.memoryFirst {
		g.s.memory.changed(-pressure)
		elapse(20 * time.Second)
	}
	g.onLoop(func() {
		if !g.c.closed {
			g.t.Error("not closed")
		}
	})
	g.idle()
	g.join().publish(1, 0, "x") // the loop serves others
}
