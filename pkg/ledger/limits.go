package ledger

// Limits bounds one read. The first entry is always given, however large it is.
type Limits struct {
	Entries int // most entries, at least 1
	Bytes   int // most payload bytes
}
