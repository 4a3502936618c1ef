package bookie

// indexSet is a set of log indexes, dense in places: a bit for each.
type indexSet map[uint64]*[chunkWords]uint64

// weights has a number for each of some log indexes, dense in places: four bytes for each.
type weights map[uint64]*[chunkIndexes]uint32

const (
	chunkIndexes = 1024 // neighbours that are together
	chunkWords   = chunkIndexes / 64
)

func (s indexSet) add(index uint64) {
	c := s[index/chunkIndexes]
	if c == nil {
		c = new([chunkWords]uint64)
		s[index/chunkIndexes] = c
	}
	c[index%chunkIndexes/64] |= 1 << (index % 64)
}

func (s indexSet) has(index uint64) bool {
	c := s[index/chunkIndexes]
	return c != nil && c[index%chunkIndexes/64]&(1<<(index%64)) != 0
}

func (w weights) add(index uint64, n int64) {
	c := w[index/chunkIndexes]
	if c == nil {
		c = new([chunkIndexes]uint32)
		w[index/chunkIndexes] = c
	}
	c[index%chunkIndexes] += uint32(n)
}

// of returns 0 for what was never added.
func (w weights) of(index uint64) int64 {
	if c := w[index/chunkIndexes]; c != nil {
		return int64(c[index%chunkIndexes])
	}
	return 0
}
