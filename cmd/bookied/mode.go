package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"geminga/pkg/bookie"
	"geminga/pkg/bookieclient"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// operator is the commands that order something of a running bookie, through the cluster. An order is a record in the
// metadata: it may be given while the bookie is down, and giving it again changes nothing.
type operator struct{ out io.Writer }

// orderFlags are what all of these commands take.
type orderFlags struct {
	*flag.FlagSet
	bookies, id string
}

func (o operator) flags(name string) *orderFlags {
	f := &orderFlags{FlagSet: flag.NewFlagSet("bookied "+name, flag.ContinueOnError)}
	f.StringVar(&f.bookies, "bookies", "", "host:port of some bookies of the cluster, separated by commas")
	f.StringVar(&f.id, "id", "", "id of the bookie that the order is for")
	return f
}

// connect parses the arguments, opens a client and looks at the whole cluster.
func (f *orderFlags) connect(ctx context.Context, args []string) (*bookieclient.Client, *bookie.Survey, error) {
	if err := f.Parse(args); err != nil {
		return nil, nil, err
	}
	if f.NArg() > 0 {
		return nil, nil, fmt.Errorf("%s: unexpected %q", f.Name(), f.Arg(0))
	}
	if f.bookies == "" || f.id == "" {
		return nil, nil, fmt.Errorf("%s needs --bookies and --id", f.Name())
	}
	c, err := bookieclient.Open(bookieclient.Options{Bookies: strings.Split(f.bookies, ",")})
	if err != nil {
		return nil, nil, err
	}
	s, err := survey(ctx, c)
	if err != nil {
		c.Shutdown()
		return nil, nil, err
	}
	return c, s, nil
}

// progressEvery is how often a decommissioning looks how far it has come.
const progressEvery = time.Second

// decommission moves all replicas of a bookie to others, and its place in the metadata group. It waits until they are there,
// unless told not to; interrupted or not, the move goes on.
func (o operator) decommission(ctx context.Context, args []string) error {
	f := o.flags("decommission")
	cancel := f.Bool("cancel", false, "take the order back; what has moved already stays there")
	wait := f.Bool("wait", true, "wait until the bookie holds nothing any more, and print how far it is")
	c, s, err := f.connect(ctx, args)
	if err != nil {
		return err
	}
	defer c.Shutdown()
	mode, err := s.Mode(f.id)
	if err != nil {
		return err
	}
	if !*cancel && !mode.Decommission {
		if err := mayLeave(s, f.id); err != nil {
			return err
		}
	}
	if err := order(ctx, c, f.id, func(m *metadata.BookieMode) { m.Decommission = !*cancel }); err != nil {
		return err
	}
	if *cancel || !*wait {
		fmt.Fprintf(o.out, "bookie %s: decommission %t\n", f.id, !*cancel)
		return nil
	}
	return o.watch(ctx, c, f.id)
}

// mayLeave refuses what could never come to an end.
func mayLeave(s *bookie.Survey, id string) error {
	if !s.Known(id) {
		return fmt.Errorf("no bookie %q is registered; registered are %s", id, strings.Join(ids(s), ", "))
	}
	stuck, err := s.Stuck(id)
	stuck = slices.DeleteFunc(stuck, func(g ledger.GroupID) bool { return g == ledger.MetadataGroup }) // that may stay: see watch
	if err == nil && len(stuck) > 0 {
		err = fmt.Errorf("bookie %s cannot leave: no other bookie that runs and takes entries could hold ledger groups %v", id, stuck)
	}
	return err
}

func ids(s *bookie.Survey) []string {
	var out []string
	for _, b := range s.Bookies {
		out = append(out, b.ID)
	}
	slices.Sort(out)
	return out
}

// stuckLooks is how often in a row there must be nobody to take a place in the metadata group before that is believed.
const stuckLooks = 3

// watch prints a line whenever something has moved, until the bookie holds nothing but a place in the metadata group that
// nobody else could take, as in a cluster all of whose bookies are members.
func (o operator) watch(ctx context.Context, c *bookieclient.Client, id string) error {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	last, looks := "", 0
	for {
		s, err := survey(ctx, c)
		if err != nil {
			return err
		}
		stuck, err := s.Stuck(id)
		if err != nil {
			return err
		}
		line, ledgers, member := holdings(s, id)
		if line != last {
			last = line
			fmt.Fprintf(o.out, "%d ledger groups to go:%s\n", ledgers, line)
		}
		looks++
		if !member || !slices.Contains(stuck, ledger.MetadataGroup) {
			looks = 0
		}
		if ledgers == 0 && (!member || looks >= stuckLooks) {
			fmt.Fprintf(o.out, "bookie %s holds no ledgers any more\n", id)
			if member {
				fmt.Fprintf(o.out, "it is a member of the metadata group, nobody else could be one, and it must go on running for that\n")
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("no longer waiting; the replicas go on moving")
		}
	}
}

// holdings says what a bookie has to give away still: in words, how many ledger groups, and whether a place in the
// metadata group.
func holdings(s *bookie.Survey, id string) (line string, ledgers int, member bool) {
	var b strings.Builder
	for _, g := range s.Holding(id) {
		name := fmt.Sprintf("group %d", g.ID)
		if g.ID == ledger.MetadataGroup {
			name, member = "metadata", true
		} else {
			ledgers++
		}
		if slices.Contains(g.Replicas, id) {
			fmt.Fprintf(&b, " %s waits", name)
			continue
		}
		applied, of := s.Progress(&g)
		fmt.Fprintf(&b, " %s to %s (%d of %d entries)", name, strings.Join(g.Replicas, ","), applied, of)
	}
	return b.String(), ledgers, member
}

// readOnly makes the groups that a bookie leads take no entries, or take them again.
func (o operator) readOnly(ctx context.Context, args []string) error {
	f := o.flags("read-only")
	off := f.Bool("off", false, "take entries again")
	c, s, err := f.connect(ctx, args)
	if err != nil {
		return err
	}
	defer c.Shutdown()
	if !s.Known(f.id) {
		return fmt.Errorf("no bookie %q is registered; registered are %s", f.id, strings.Join(ids(s), ", "))
	}
	if err := order(ctx, c, f.id, func(m *metadata.BookieMode) { m.ReadOnly = !*off }); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "bookie %s: read-only %t\n", f.id, !*off)
	return nil
}

// survey looks at the whole cluster.
func survey(ctx context.Context, c *bookieclient.Client) (*bookie.Survey, error) {
	var lists [3][]metadata.Item
	for i, prefix := range []string{metadata.BookiesPrefix, metadata.BookieModesPrefix, metadata.GroupsPrefix} {
		var err error
		if lists[i], err = c.ListSync(ctx, prefix); err != nil {
			return nil, err
		}
	}
	return bookie.NewSurvey(lists[0], lists[1], lists[2], slices.Collect(maps.Values(c.Status(ctx))))
}

// order changes the record of what is ordered of a bookie.
func order(ctx context.Context, c *bookieclient.Client, id string, change func(*metadata.BookieMode)) error {
	key := metadata.BookieModeKey(id)
	for {
		it, err := c.GetSync(ctx, key)
		if err != nil {
			return err
		}
		var mode metadata.BookieMode
		if it.Version != 0 {
			if err := json.Unmarshal(it.Value, &mode); err != nil {
				return fmt.Errorf("record %s: %w", key, err)
			}
		}
		was := mode
		if change(&mode); mode == was {
			return nil
		}
		value, err := json.Marshal(mode)
		if err != nil {
			return err
		}
		out, err := c.CommitSync(ctx, metadata.Txn{}.If(key, it.Version).Then(metadata.Put(key, value)))
		if err != nil {
			return err
		}
		if !errors.Is(out.Err, metadata.ErrBadVersion) {
			return out.Err
		}
		// Somebody else has ordered something meanwhile: their order stays, and ours is added to it.
	}
}
