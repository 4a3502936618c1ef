package journal

import (
	"log/slog"
	"sync"

	"geminga/pkg/vfs"
)

// preparer makes the next segment while the current one is being filled, so that the writer finds it ready, and writes
// the summaries of those that are full.
//
// One request is under way at a time. The writer asks when a segment is half full, and takes the answer when it is
// full; after an error it asks again.
type preparer struct {
	segs   *segments
	ask    chan uint64
	answer chan prepared
	sums   chan sealed
	ended  chan struct{}
	log    *slog.Logger

	asked bool // writer's: an answer is due
}

type prepared struct {
	number uint64
	file   vfs.File
	err    error
}

func newPreparer(segs *segments, log *slog.Logger) *preparer {
	return &preparer{
		segs: segs, ask: make(chan uint64, 1), answer: make(chan prepared, 1), sums: make(chan sealed, 1),
		ended: make(chan struct{}), log: log,
	}
}

func (p *preparer) start(wg *sync.WaitGroup) { wg.Go(p.run) }

func (p *preparer) run() {
	defer close(p.ended)
	for {
		select {
		case number, more := <-p.ask:
			if !more {
				return
			}
			file, err := p.segs.prepare(number)
			p.answer <- prepared{number: number, file: file, err: err}
		case sum := <-p.sums:
			p.keep(sum)
		}
	}
}

// keep writes a summary. What fails costs time at the next start only.
func (p *preparer) keep(sum sealed) {
	if err := p.segs.writeSummary(sum); err != nil {
		p.log.Warn("journal cannot summarise a segment", "segment", sum.segment, "err", err)
	}
}

// summarise has a summary written, if there is time for it. Writer only.
func (p *preparer) summarise(sum sealed) {
	select {
	case p.sums <- sum:
	default:
	}
}

// want asks for a segment. Writer only.
func (p *preparer) want(number uint64) {
	if !p.asked {
		p.asked = true
		p.ask <- number
	}
}

// take waits for the segment, or for stop. Writer only.
func (p *preparer) take(number uint64, stop <-chan struct{}) (prepared, bool) {
	p.want(number)
	select {
	case got := <-p.answer:
		p.asked = false
		return got, true
	case <-stop:
		return prepared{}, false
	}
}

// close ends the goroutine once it is done with what it was asked for, and closes a file that nobody took. Writer only.
func (p *preparer) close() {
	close(p.ask)
}

// leftover closes a prepared file that was never taken. Only after the goroutine has ended.
func (p *preparer) leftover() error {
	select {
	case got := <-p.answer:
		if got.file != nil {
			return got.file.Close()
		}
	default:
	}
	return nil
}
