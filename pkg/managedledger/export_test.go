package managedledger

// Drop gives back what a managed ledger holds, as the end of its process would.
func Drop(m *ManagedLedger) {
	if m.live() {
		m.end(stateClosed)
	}
}

// CheckInvariants panics in invariants builds when the cursor is not what it should be.
func (c *Cursor) CheckInvariants() { c.checkInvariants() }

// ParkNow parks a Read that has found nothing, and reports whether it stays parked. The Read is taken back.
func ParkNow(c *Cursor) bool {
	c.park()
	parked := c.reader.phase == readWaiting
	c.waiting.Store(false)
	c.reader.phase = readIdle
	return parked
}
