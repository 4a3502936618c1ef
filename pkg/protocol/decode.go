package protocol

import (
	"google.golang.org/protobuf/encoding/protowire"

	"geminga/rpc/pulsarpb"
)

// required counts the required fields seen, one bit each.
type required uint8

func (r *required) saw(bit uint, ok bool) {
	if ok {
		*r |= 1 << bit
	}
}

// Send is the command in front of a published message.
type Send struct {
	ProducerID        uint64
	SequenceID        uint64
	HighestSequenceID uint64 // 0 when absent
	TxnLeast, TxnMost uint64
	NumMessages       int32
	IsChunk           bool
	Marker            bool
	InTxn             bool // both transaction ids are there
}

// Decode reads a SEND from Frame.Body.
//
//nolint:revive // one case for each field of the message
func (s *Send) Decode(body []byte) error {
	*s = Send{NumMessages: 1}
	var req required
	var txn required
	dup := false
	f := fields{b: body}
	for f.next() {
		switch f.num {
		case 1:
			req.saw(0, f.setU64(&s.ProducerID))
		case 2:
			req.saw(1, f.setU64(&s.SequenceID))
		case 3:
			f.setI32(&s.NumMessages)
		case 4:
			txn.saw(0, f.setU64(&s.TxnLeast))
		case 5:
			txn.saw(1, f.setU64(&s.TxnMost))
		case 6:
			f.setU64(&s.HighestSequenceID)
		case 7:
			f.setBool(&s.IsChunk)
		case 8:
			f.setBool(&s.Marker)
		case 9: // the id a shadow topic copies; we have none, but what is malformed is refused
			if raw, ok := f.bytes(); ok {
				if dup || !validMessageID(raw, 0) {
					return badCommand("SEND message_id")
				}
				dup = true
			}
		}
	}
	if f.bad || req != 0b11 {
		return badCommand("SEND")
	}
	s.InTxn = txn == 0b11
	return nil
}

// Flow gives a consumer permits.
type Flow struct {
	ConsumerID uint64
	Permits    uint32
}

// Decode reads a FLOW from Frame.Body.
func (c *Flow) Decode(body []byte) error {
	*c = Flow{}
	var req required
	f := fields{b: body}
	for f.next() {
		switch f.num {
		case 1:
			req.saw(0, f.setU64(&c.ConsumerID))
		case 2:
			req.saw(1, f.setU32(&c.Permits))
		}
	}
	if f.bad || req != 0b11 {
		return badCommand("FLOW")
	}
	return nil
}

// MessageID names an entry, or one message of a batch. Ledger and Entry are unsigned as on the wire.
type MessageID struct {
	Ledger, Entry uint64
	Partition     int32 // -1 when absent
	BatchIndex    int32 // -1 when absent
	BatchSize     int32
	AckSet        []int64 // a set bit means not acknowledged
}

// Ack acknowledges messages. One Ack serves many Decode calls: its slices are reused, so they hold until the next one.
type Ack struct {
	ConsumerID        uint64
	RequestID         uint64
	TxnLeast, TxnMost uint64
	Type              pulsarpb.CommandAck_AckType
	ValidationError   pulsarpb.CommandAck_ValidationError
	HasRequestID      bool
	HasValidation     bool
	InTxn             bool
	MessageIDs        []MessageID

	sets []int64 // the ack sets of all ids, one after the other
}

// Decode reads an ACK from Frame.Body.
//
//nolint:revive // one case for each field of the message
func (a *Ack) Decode(body []byte) error {
	*a = Ack{MessageIDs: a.MessageIDs[:0], sets: a.sets[:0]}
	var req, txn required
	f := fields{b: body}
	for f.next() {
		switch f.num {
		case 1:
			req.saw(0, f.setU64(&a.ConsumerID))
		case 2:
			req.saw(1, a.setType(&f))
		case 3:
			raw, ok := f.bytes()
			if ok && !a.addID(raw) {
				return badCommand("ACK message_id")
			}
		case 4:
			var v int32
			if f.setI32(&v) {
				a.ValidationError, a.HasValidation = pulsarpb.CommandAck_ValidationError(v), true
			}
		case 5:
			if raw, ok := f.bytes(); ok && !validKeyLong(raw) {
				return badCommand("ACK properties")
			}
		case 6:
			txn.saw(0, f.setU64(&a.TxnLeast))
		case 7:
			txn.saw(1, f.setU64(&a.TxnMost))
		case 8:
			a.HasRequestID = f.setU64(&a.RequestID) || a.HasRequestID
		}
	}
	if f.bad || req != 0b11 {
		return badCommand("ACK")
	}
	a.InTxn = txn == 0b11
	return nil
}

// setType takes the two types there are. The generated code takes any number; nobody could say what to do with it.
func (a *Ack) setType(f *fields) bool {
	v, ok := f.varint()
	t := pulsarpb.CommandAck_AckType(int32(v))
	if !ok || t < pulsarpb.CommandAck_Individual || t > pulsarpb.CommandAck_Cumulative {
		return false
	}
	a.Type = t
	return true
}

func (a *Ack) addID(raw []byte) bool {
	start := len(a.sets)
	id, sets, ok := decodeMessageID(raw, a.sets, 0)
	if !ok {
		return false
	}
	a.sets = sets
	if len(sets) > start {
		id.AckSet = sets[start:len(sets):len(sets)]
	}
	a.MessageIDs = append(a.MessageIDs, id)
	return true
}

// maxNesting bounds first_chunk_message_id inside first_chunk_message_id; no client nests at all.
const maxNesting = 16

// decodeMessageID reads a MessageIdData. The ack set is appended to sets; the caller makes id.AckSet of it.
func decodeMessageID(raw []byte, sets []int64, depth int) (MessageID, []int64, bool) {
	id := MessageID{Partition: -1, BatchIndex: -1}
	var req required
	chunk := false
	f := fields{b: raw}
	for f.next() {
		switch f.num {
		case 1:
			req.saw(0, f.setU64(&id.Ledger))
		case 2:
			req.saw(1, f.setU64(&id.Entry))
		case 3:
			f.setI32(&id.Partition)
		case 4:
			f.setI32(&id.BatchIndex)
		case 5:
			var ok bool
			if sets, ok = appendInts(sets, &f); !ok {
				return id, sets, false
			}
		case 6:
			f.setI32(&id.BatchSize)
		case 7:
			if nested, ok := f.bytes(); ok {
				if chunk || !validMessageID(nested, depth+1) {
					return id, sets, false
				}
				chunk = true
			}
		}
	}
	return id, sets, !f.bad && req == 0b11
}

// appendInts adds a repeated int64 field, packed or not.
func appendInts(to []int64, f *fields) ([]int64, bool) {
	if v, ok := f.varint(); ok {
		return append(to, int64(v)), true
	}
	raw, ok := f.bytes()
	for ok && len(raw) > 0 {
		v, n := protowire.ConsumeVarint(raw)
		if n < 0 {
			return to, false
		}
		to, raw = append(to, int64(v)), raw[n:]
	}
	return to, true
}

// validMessageID checks a MessageIdData that nobody wants to read. It takes no memory for ack sets.
func validMessageID(raw []byte, depth int) bool {
	if depth > maxNesting {
		return false
	}
	var req required
	chunk := false
	f := fields{b: raw}
	for f.next() {
		switch f.num {
		case 1, 2:
			req.saw(uint(f.num-1), f.wt == protowire.VarintType)
		case 5:
			if packed, ok := f.bytes(); ok && !validVarints(packed) {
				return false
			}
		case 7:
			if nested, ok := f.bytes(); ok {
				if chunk || !validMessageID(nested, depth+1) {
					return false
				}
				chunk = true
			}
		}
	}
	return !f.bad && req == 0b11
}

func validVarints(b []byte) bool {
	for len(b) > 0 {
		_, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

func validKeyLong(raw []byte) bool {
	var req required
	f := fields{b: raw}
	for f.next() {
		switch f.num {
		case 1:
			req.saw(0, f.wt == protowire.BytesType)
		case 2:
			req.saw(1, f.wt == protowire.VarintType)
		}
	}
	return !f.bad && req == 0b11
}
