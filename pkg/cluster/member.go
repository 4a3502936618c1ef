package cluster

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// ErrMetaTooLarge says that role and service addresses do not fit into what gossip carries about a member.
var ErrMetaTooLarge = errors.New("member description too large for gossip")

// Member is a process that is alive, as far as known here.
type Member struct {
	Name        string            // stable id
	Incarnation string            // drawn at the start of the process; later ones are greater
	Role        Role              //
	Address     string            // host:port of its gossip
	Services    map[string]string // read-only
}

// nameSeparator is between name and incarnation in gossip.
const nameSeparator = "#"

// nodeName is how gossip names the process: never the same after a restart, so that what is said about a dead process
// cannot be held against the new one.
func nodeName(name, incarnation string) string { return name + nameSeparator + incarnation }

// newIncarnation grows with the clock and differs even when the clock does not move.
func newIncarnation(now time.Time) string {
	var salt [4]byte
	rand.Read(salt[:]) // never fails
	return fmt.Sprintf("%012x%s", now.UnixMilli()&0xffffffffffff, hex.EncodeToString(salt[:]))
}

// meta is what travels with a member.
type meta struct {
	Role     Role              `json:"r"`
	Services map[string]string `json:"s,omitempty"`
}

func encodeMeta(role Role, services map[string]string) ([]byte, error) {
	b, err := json.Marshal(meta{role, services})
	if err != nil {
		return nil, fmt.Errorf("member description: %w", err)
	}
	if len(b) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMetaTooLarge, len(b), memberlist.MetaMaxSize)
	}
	return b, nil
}

// parseNode makes a Member of what gossip says; ok is false for strangers.
func parseNode(n *memberlist.Node) (Member, bool) {
	name, incarnation, ok := strings.Cut(n.Name, nameSeparator)
	if !ok || name == "" || incarnation == "" || len(n.Meta) > memberlist.MetaMaxSize || len(n.Addr) == 0 || n.Port == 0 {
		return Member{}, false
	}
	var m meta
	if err := json.Unmarshal(n.Meta, &m); err != nil || m.Role == "" {
		return Member{}, false
	}
	return Member{
		Name: name, Incarnation: incarnation, Role: m.Role,
		Address:  net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port))),
		Services: m.Services,
	}, true
}

// newest keeps, of the processes that are alive, the latest of each name and role, sorted by name, then role.
func newest(alive []Member) []Member {
	best := map[[2]string]Member{}
	for _, m := range alive {
		key := [2]string{m.Name, string(m.Role)}
		if old, ok := best[key]; !ok || m.Incarnation > old.Incarnation {
			best[key] = m
		}
	}
	out := make([]Member, 0, len(best))
	for _, m := range best {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Role, b.Role))
	})
	return out
}

// WithRole keeps the members of one role.
func WithRole(members []Member, role Role) []Member {
	out := make([]Member, 0, len(members))
	for _, m := range members {
		if m.Role == role {
			out = append(out, m)
		}
	}
	return out
}
