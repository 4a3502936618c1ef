package bookie

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
)

func TestDeaths(t *testing.T) {
	refused := syscall.ECONNREFUSED
	for _, c := range []struct {
		name    string
		after   time.Duration
		answers []error // of one dial after the other; the last one stays
		unknown bool
		died    bool
	}{
		{name: "refuses for long enough", after: 200 * time.Millisecond, answers: []error{refused}, died: true},
		{name: "is back before that", after: 200 * time.Millisecond, answers: []error{refused, refused, nil}},
		{name: "only the connection was lost", after: 200 * time.Millisecond, answers: []error{nil, refused}},
		{name: "silence proves nothing", after: 200 * time.Millisecond, answers: []error{refused, syscall.ETIMEDOUT, refused}},
		{name: "at once", after: 1, answers: []error{refused}, died: true},
		{name: "off", after: -1, answers: []error{refused}},
		{name: "its address is not known", after: 200 * time.Millisecond, answers: []error{refused}, unknown: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var died []time.Duration
				var life lifetime
				begin := time.Now()
				dials := 0
				d := deaths{
					ctx: t.Context(), after: c.after, start: life.start, suspect: map[string]bool{},
					find: func(string) (string, bool) { return "somewhere", !c.unknown },
					dial: func(context.Context, string) (net.Conn, error) {
						dials++
						if err := c.answers[min(dials, len(c.answers))-1]; err != nil {
							return nil, err
						}
						conn, _ := net.Pipe()
						return conn, nil
					},
					died: func(peer string) {
						if peer != "b" {
							t.Errorf("%s died", peer)
						}
						died = append(died, time.Since(begin))
					},
				}
				d.lost("b")
				d.lost("b") // both lanes broke
				time.Sleep(time.Minute)
				life.finish()
				if (len(died) == 1) != c.died || len(died) > 1 {
					t.Fatalf("died %v, want %t", died, c.died)
				}
				if c.died && died[0] < c.after {
					t.Errorf("after %v", died[0])
				}
			})
		})
	}
}

// TestDeadLeaderIsSucceededAtOnce takes the elections by timeout away: only the refused connections are left to tell that
// a bookie died, in which the metadata group and its own ledger group had their leaders.
func TestDeadLeaderIsSucceededAtOnce(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.Raft.Turn = patience / 10 }) // the first whose log is long enough wins, however slow it is
	dead := c.leader(ledger.MetadataGroup)
	var groups []ledger.GroupID
	for id, b := range c.nodes {
		for _, n := range b.nodes() {
			c.eventually("the group has a leader", func() bool { return n.hint() != "" || n.leads() })
			if id == dead {
				if n.leads() {
					groups = append(groups, n.id)
				}
				continue
			}
			conf := n.raft.ReloadableConfig()
			conf.HeartbeatTimeout, conf.ElectionTimeout = time.Hour, time.Hour
			if err := n.raft.ReloadConfig(conf); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.nodes[dead].fail(errors.New("killed"))
	for _, group := range groups {
		c.leader(group, dead)
	}
}
