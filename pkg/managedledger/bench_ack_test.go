package managedledger_test

import (
	"fmt"
	"testing"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// BenchmarkReceipt acknowledges every second entry with a receipt, one after the other, behind some holes: the time and
// the bytes stored for each. With whole states only, 100,000 holes would take 300 kB each.
func BenchmarkReceipt(b *testing.B) {
	for _, holes := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("holes=%dk", holes/1000), func(b *testing.B) {
			p := newPath(b, 1000, false)
			defer p.close()
			c := p.durable(b)
			receipt := make(chan struct{})
			done := func(error) { receipt <- struct{}{} }
			next, added := ledger.EntryID(1), ledger.EntryID(0)
			ack := func(done func(error)) {
				if next >= added {
					b.StopTimer()
					p.once()
					added += 1000
					b.StartTimer()
				}
				p.ps = append(p.ps[:0], ledger.Position{Ledger: 1, Entry: next})
				next += 2
				on(p.sub, func() { c.Delete(p.ps, done) })
			}
			for range holes {
				ack(nil)
			}
			before := p.bookies.records
			b.ReportAllocs()
			for b.Loop() {
				ack(done)
				<-receipt
			}
			b.ReportMetric(float64(p.bookies.records-before)/float64(b.N), "B/receipt")
		})
	}
}

// durable opens a durable cursor.
func (p *path) durable(tb testing.TB) *managedledger.Cursor {
	ready := make(chan *managedledger.Cursor, 1)
	on(p.exec, func() {
		o := managedledger.CursorOptions{Name: "d", Durable: true, Initial: ledger.Earliest, Executor: p.sub}
		p.ml.OpenCursor(o, func(c *managedledger.Cursor, err error) {
			if err != nil {
				tb.Error(err)
			}
			ready <- c
		})
	})
	return <-ready
}
