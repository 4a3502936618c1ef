package managedledger

// Drop gives back what a managed ledger holds, as the end of its process would.
func Drop(m *ManagedLedger) {
	if m.live() {
		m.end(stateClosed)
	}
}
