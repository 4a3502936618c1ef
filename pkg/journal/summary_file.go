package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"geminga/pkg/vfs"
)

const summarySuffix = ".sum"

func (s *segments) summaryPath(segment uint64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%012d%s", segment, summarySuffix))
}

// sealed is the summary of a segment that was sealed.
type sealed struct {
	segment uint64
	whole   []byte
}

// writeSummary writes the summary of a segment. It is not synced, since it is checked when it is read; what fails
// leaves none.
func (s *segments) writeSummary(sum sealed) error {
	path := s.summaryPath(sum.segment)
	if err := s.removeSummary(sum.segment); err != nil {
		return err
	}
	f, err := s.fs.Create(path)
	if err != nil {
		return fmt.Errorf("journal: make %s: %w", path, err)
	}
	_, err = f.WriteAt(sum.whole, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("journal: write %s: %w", path, errors.Join(err, s.fs.Remove(path)))
	}
	return nil
}

func (s *segments) removeSummary(segment uint64) error {
	err := s.fs.Remove(s.summaryPath(segment))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readSummary returns the summary of a segment, nil if there is none that holds.
func (s *segments) readSummary(number uint64, h *segmentHeader) (*summaryReader, error) {
	f, err := s.fs.Open(s.summaryPath(number))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: open the summary of segment %d: %w", number, err)
	}
	b, err := readAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("journal: read the summary of segment %d: %w", number, err)
	}
	return newSummaryReader(b, h), nil
}

func readAll(f vfs.File) ([]byte, error) {
	size, err := f.Size()
	if err != nil || size > maxSegmentSize {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}
