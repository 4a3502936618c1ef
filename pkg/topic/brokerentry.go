package topic

import (
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/protocol"
)

// numbering gives entries what the broker knows of them, before they are stored: the time, and the index of their last
// message among all that the topic has ever stored. Indexes are given in the order of the log and each once: what is not
// stored is lost with the topic's owner, and the next owner goes on behind the last entry.
type numbering struct {
	next uint64 // index of the next message
}

// numbers reports that entries are given broker entry metadata.
func (t *Topic) numbers() bool {
	o := t.opts
	return t.name.IsPersistent() && (o.AppendBrokerTimestamp || o.AppendIndex)
}

// number puts broker entry metadata in front of what is to be stored. The entries are copied, into memory of the batch.
func (t *Topic) number(ops []managedledger.Op) {
	size := 0
	for i := range ops {
		if !ops[i].Barrier {
			size += protocol.BrokerEntrySize + len(ops[i].Payload.Data)
		}
	}
	buf := make([]byte, 0, size)
	o := t.opts
	front := protocol.BrokerEntry{Timestamp: uint64(time.Now().UnixMilli()), HasTimestamp: o.AppendBrokerTimestamp, HasIndex: o.AppendIndex}
	for i := range ops {
		if ops[i].Barrier {
			continue
		}
		t.numbering.next += uint64(ops[i].Messages)
		front.Index = t.numbering.next - 1
		start := len(buf)
		buf = protocol.AppendBrokerEntry(buf, front)
		buf = append(buf, ops[i].Payload.Data...)
		ops[i].Payload = ledger.Payload{Data: buf[start:len(buf):len(buf)]}
	}
}

// recoverNumbering goes on behind the last entry. Where that has no index, because it is older than the setting, counting
// begins with it.
func (t *Topic) recoverNumbering(done func(error)) {
	last := t.log.LastConfirmed()
	if !t.numbers() || !t.opts.AppendIndex || last.Entry == ledger.NoEntry {
		done(nil)
		return
	}
	t.readEntry(last, func(payload []byte) {
		var section protocol.Section
		var entry protocol.BrokerEntry
		if section.Parse(payload) == nil && entry.Parse(section.BrokerEntry) == nil && entry.HasIndex {
			t.numbering.next = entry.Index + 1
		}
	}, done)
}

// readEntry reads one entry, of which look may keep nothing. done on the topic's executor.
func (t *Topic) readEntry(at ledger.Position, look func(payload []byte), done func(error)) {
	t.log.OpenCursor(managedledger.CursorOptions{
		Name: t.env.Names.Next(), Initial: at, Inclusive: true, Executor: t.exec,
	}, func(c *managedledger.Cursor, err error) {
		if err != nil {
			done(err)
			return
		}
		c.ReadAt([]ledger.Position{at}, func(entries []ledger.Entry, err error) {
			for i := range entries {
				look(entries[i].Payload.Data)
				entries[i].Payload.Release()
			}
			c.Close(func(error) { done(err) })
		})
	})
}
