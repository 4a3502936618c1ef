package bookie

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"

	"geminga/pkg/vfs"
)

// clusterFile is in every data directory. It is written once.
const clusterFile = "cluster.json"

// lockFile is locked by the process that works with the data directory.
const lockFile = "lock"

// clusterFormat is the version of the file and of all that is in the directory: 2 since the metadata's log has checksums and
// snapshots have layers. Nothing converts directories of version 1: there was no release with it.
const clusterFormat = 2

// Member names a bookie of the metadata group.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"`
}

// clusterJSON is the content of clusterFile.
type clusterJSON struct {
	Format    int      `json:"format"`
	ClusterID string   `json:"clusterId"`
	BookieID  string   `json:"bookieId"`
	Instance  string   `json:"instance"` // drawn by Init: tells a wiped or swapped disk from the one that was registered
	Metadata  []Member `json:"metadata"`
}

// identity is who this bookie is.
type identity struct {
	clusterID string
	bookieID  string
	instance  string
}

func (c *clusterJSON) identity() identity {
	return identity{clusterID: c.ClusterID, bookieID: c.BookieID, instance: c.Instance}
}

func (c *clusterJSON) isMember() bool {
	return slices.ContainsFunc(c.Metadata, func(m Member) bool { return m.ID == c.BookieID })
}

// idPattern keeps ids usable in file names, keys and headers.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (c *clusterJSON) validate() error {
	if c.Format != clusterFormat {
		return fmt.Errorf("format %d, this build reads %d", c.Format, clusterFormat)
	}
	for name, id := range map[string]string{"cluster id": c.ClusterID, "bookie id": c.BookieID, "instance": c.Instance} {
		if !idPattern.MatchString(id) {
			return fmt.Errorf("%s %q is not 1 to 63 letters, digits, '.', '_' or '-'", name, id)
		}
	}
	return validateMembers(c.Metadata)
}

func validateMembers(members []Member) error {
	switch len(members) {
	case 1, 3, 5:
	default:
		return fmt.Errorf("the metadata group needs 1, 3 or 5 members, not %d", len(members))
	}
	seen := map[string]bool{}
	for _, m := range members {
		if !idPattern.MatchString(m.ID) {
			return fmt.Errorf("metadata member id %q is not 1 to 63 letters, digits, '.', '_' or '-'", m.ID)
		}
		if _, _, err := net.SplitHostPort(m.Address); err != nil {
			return fmt.Errorf("metadata member %s: address %q is not host:port", m.ID, m.Address)
		}
		if seen[m.ID] || seen[m.Address] {
			return fmt.Errorf("metadata member %s=%s is named twice", m.ID, m.Address)
		}
		seen[m.ID], seen[m.Address] = true, true
	}
	return nil
}

// readCluster reads the identity of a data directory.
func readCluster(fs vfs.FS, dir string) (*clusterJSON, error) {
	b, err := readFile(fs, filepath.Join(dir, clusterFile))
	if isNotExist(err) {
		return nil, notInitialized(dir)
	}
	if err != nil {
		return nil, err
	}
	c := &clusterJSON{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("%s in %s is damaged: %w", clusterFile, dir, err)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%s in %s: %w", clusterFile, dir, err)
	}
	return c, nil
}

// Identity says which bookie, of which cluster, a directory made by Init belongs to.
func Identity(fs vfs.FS, dir string) (bookieID, clusterID string, err error) {
	c, err := readCluster(fs, dir)
	if err != nil {
		return "", "", err
	}
	return c.BookieID, c.ClusterID, nil
}
