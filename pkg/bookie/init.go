package bookie

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"geminga/pkg/vfs"
)

// InitOptions say what a new data directory becomes.
type InitOptions struct {
	DataDir     string
	MetadataDir string // default DataDir/metadata
	FS          vfs.FS // default the real disk

	BookieID  string   // unique in the cluster, for ever: a bookie that lost its disk comes back under another id
	ClusterID string   // the same for all bookies; empty: a new one is drawn, which only a cluster of one can use
	Metadata  []Member // of the metadata group, the same list for all bookies: 1, 3 or 5
}

// Init makes a data directory, once in the life of a bookie. It is the only way a metadata group comes into being, and
// it refuses a directory that holds anything: a group that was bootstrapped again over lost state would elect a
// leader that knows nothing.
//
// It is not atomic, but cluster.json is written last: after a crash the directory is not initialized and not empty,
// and a person decides.
func Init(o InitOptions) (clusterID string, err error) {
	if o.FS == nil {
		o.FS = vfs.Disk{}
	}
	setDefault(&o.MetadataDir, filepath.Join(o.DataDir, "metadata"))
	if o.ClusterID == "" {
		if o.ClusterID, err = newID(); err != nil {
			return "", err
		}
		if len(o.Metadata) > 1 {
			return "", errors.New("init: a cluster of several bookies needs a cluster id that all of them are given")
		}
	}
	instance, err := newID()
	if err != nil {
		return "", err
	}
	c := &clusterJSON{
		Format: clusterFormat, ClusterID: o.ClusterID, BookieID: o.BookieID, Instance: instance, Metadata: o.Metadata,
	}
	if err := c.validate(); err != nil {
		return "", fmt.Errorf("init: %w", err)
	}
	if o.DataDir == "" {
		return "", errors.New("init: no data directory given")
	}
	if err := refuseState(o); err != nil {
		return "", err
	}
	if err := o.FS.MkdirAll(o.DataDir); err != nil {
		return "", fmt.Errorf("init: %w", err)
	}
	if c.isMember() {
		if err := bootstrapMetadata(o.MetadataDir, c); err != nil {
			return "", fmt.Errorf("init: metadata group: %w", err)
		}
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", err
	}
	return c.ClusterID, writeFile(o.FS, filepath.Join(o.DataDir, clusterFile), append(b, '\n'))
}

// refuseState fails when anything is there already. lost+found is what a fresh volume has.
func refuseState(o InitOptions) error {
	names, err := o.FS.List(o.DataDir)
	if err != nil && !isNotExist(err) {
		return fmt.Errorf("init: %w", err)
	}
	for _, name := range names {
		if name == clusterFile {
			return fmt.Errorf("init: %w: %s belongs to a bookie already; start it without init", ErrExistingState, o.DataDir)
		}
		if name != "lost+found" {
			return fmt.Errorf("init: %w: %s holds %q", ErrExistingState, o.DataDir, name)
		}
	}
	entries, err := os.ReadDir(o.MetadataDir)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("init: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("init: %w: %s holds %q", ErrExistingState, o.MetadataDir, entries[0].Name())
	}
	return nil
}

func newID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(b[:]), nil
}
