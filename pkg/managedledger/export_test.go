package managedledger

// Drop gives back what a managed ledger holds, as the end of its process would.
func Drop(m *ManagedLedger) {
	if m.live() {
		m.end(stateClosed)
	}
}

// CheckInvariants panics in invariants builds when the cursor is not what it should be.
func (c *Cursor) CheckInvariants() { c.checkInvariants() }
