package bookie

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"geminga/pkg/ledger"
)

// layerOf makes a layer in memory of runs that come by ledger and first entry.
func layerOf(each func(add func(ledger.ID, run) error) error) (*layer, error) {
	var b bytes.Buffer
	w := newLayerWriter(&b)
	if err := errors.Join(each(w.add), w.finish()); err != nil {
		return nil, err
	}
	return openLayer("", bytes.NewReader(b.Bytes()), int64(b.Len()))
}

// salvaged returns a layer in memory of those blocks that are whole.
func (l *layer) salvaged() (*layer, error) {
	return layerOf(func(add func(ledger.ID, run) error) error {
		to := inOrder{add: add}
		for number := range l.dir {
			if b, err := l.read(number, nil); err == nil {
				to.block(b)
			}
		}
		return nil
	})
}

// inOrder adds the runs of blocks to a layer, but for those that are out of order.
type inOrder struct {
	add    func(ledger.ID, run) error
	some   bool
	before key
}

func (o *inOrder) block(b []byte) {
	for d := decodeBlock(b); d.next(); {
		at := key{d.ledger, d.run.first}
		if o.some && !o.before.less(at) {
			continue
		}
		if o.add(d.ledger, d.run) == nil { // into memory: is never an error
			o.some, o.before = true, at
		}
	}
}

// salvageFile does the same for a file whose directory cannot be read: blocks lie one behind the other, and each ends where
// the checksum of its runs is. It ends at the first that is damaged: where the next one begins is not known then.
func salvageFile(src io.ReaderAt, size int64) (*layer, error) {
	all := make([]byte, size)
	n, err := src.ReadAt(all, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	rest := all[:n]
	return layerOf(func(add func(ledger.ID, run) error) error {
		to := inOrder{add: add}
		for {
			b, ok := cutBlock(rest)
			if !ok {
				return nil
			}
			to.block(b)
			rest = rest[len(b)+blockTrailer:]
		}
	})
}

// cutBlock finds the end of a block: behind a run, where its checksum is.
func cutBlock(b []byte) ([]byte, bool) {
	sum, at := uint32(0), 0
	d := decodeBlock(b[:min(len(b), maxBlock)])
	for d.next() {
		end := min(len(b), maxBlock) - len(d.b)
		sum, at = crc32.Update(sum, castagnoli, b[at:end]), end
		if len(b) >= at+blockTrailer && binary.BigEndian.Uint32(b[at:]) == sum {
			return b[:at], true
		}
	}
	return nil, false
}
