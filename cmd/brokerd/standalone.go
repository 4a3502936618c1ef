package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"geminga/cmd/internal/daemon"
	"geminga/pkg/bookie"
)

// standaloneCommand runs bookies and a broker in one process. The data directories are prepared at the first start;
// afterwards their number is fixed.
func standaloneCommand(ctx context.Context, args []string) error {
	conf, _, data, report, err := parseConfig("brokerd standalone", args)
	if err != nil {
		return err
	}
	if given := conf.metadataURL; given != "" {
		return fmt.Errorf("metadataStoreUrl is %q, but standalone has its own bookies: use brokerd run", given)
	}
	s, err := newServer(conf, report)
	if err != nil {
		return err
	}
	if err := s.openStandalone(ctx, data); err != nil {
		return errors.Join(err, s.close())
	}
	return daemon.Finish(s.log, "brokerd", s.wait(ctx), s.close)
}

func (s *server) openStandalone(ctx context.Context, data string) error {
	if err := s.openTelemetry(); err != nil {
		return err
	}
	members, err := prepare(data, s.conf)
	if err != nil {
		return err
	}
	for _, m := range members {
		b, err := bookie.Open(ctx, bookie.Options{
			DataDir: filepath.Join(data, m.ID), ListenAddress: m.Address,
			ReplicationFactor: len(members), Journal: s.conf.journalOf(m.ID), Logger: s.log, MeterProvider: s.tele.MeterProvider(),
		})
		if err != nil {
			return fmt.Errorf("embedded %s: %w", m.ID, err)
		}
		s.bookies = append(s.bookies, b)
	}
	return s.openBroker(ctx, addresses(members))
}

// prepare makes the data directories of the embedded bookies unless they are there.
func prepare(data string, conf *config) ([]bookie.Member, error) {
	var members []bookie.Member
	for i := range conf.standaloneCount {
		members = append(members, bookie.Member{
			ID: fmt.Sprintf("bookie-%d", i+1), Address: fmt.Sprintf("127.0.0.1:%d", conf.standalonePort+i),
		})
	}
	present, err := filepath.Glob(filepath.Join(data, "bookie-*"))
	if err != nil {
		return nil, err
	}
	if len(present) > 0 {
		if len(present) != len(members) {
			return nil, fmt.Errorf("%s holds %d bookies (%s), the setting standaloneBookies says %d: their number is decided at the first start",
				data, len(present), strings.Join(present, ", "), len(members))
		}
		return members, nil
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	for _, m := range members {
		_, err := bookie.Init(bookie.InitOptions{DataDir: filepath.Join(data, m.ID), BookieID: m.ID, ClusterID: "standalone", Metadata: members})
		if err != nil {
			return nil, err
		}
	}
	return members, nil
}

func addresses(members []bookie.Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.Address)
	}
	return out
}

// journalOf are the journal's options of an embedded bookie: with a directory of their own, each gets its part of it.
func (c *config) journalOf(id string) bookie.JournalOptions {
	j := bookie.JournalOptions{SegmentSize: int64(c.journalMB) << 20, NoSync: c.journalNoSync, Buffered: c.journalBuffered, WriteTimeout: c.journalTimeout}
	if c.journalDir != "" {
		j.Dir = filepath.Join(c.journalDir, id)
	}
	return j
}
