package harness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Options say what to start.
type Options struct {
	Bin     string // directory of the built daemons
	Dir     string // data directories and logs go here
	Bookies int
	Brokers int
	// ClusterID is the bookies' cluster id; empty: "harness".
	ClusterID string
	// PulsarPort and WebPort are those of the first broker, and of a standalone; 0: free ones.
	PulsarPort, WebPort int
	// BookieSets and BrokerSets are name=value settings for every process of a kind.
	BookieSets []string
	BrokerSets []string
}

// Cluster is a set of bookies and brokers, each a process.
type Cluster struct {
	Bookies []*Proc
	Brokers []*Proc
	URLs    []string // pulsar:// of each broker

	opts            Options
	service, gossip []string // of the bookies
	members         []string // of the metadata group, as bookied init wants them
}

// NewCluster initializes the data directories and writes the command lines. Nothing runs yet.
func NewCluster(o Options) (*Cluster, error) {
	c := &Cluster{opts: o}
	bookied, err := binary(o.Bin, "bookied")
	if err != nil {
		return nil, err
	}
	addrs, err := freeAddrs(3 * o.Bookies)
	if err != nil {
		return nil, err
	}
	take := func() string { a := addrs[0]; addrs = addrs[1:]; return a }
	var members, gossip, service []string
	for i := range o.Bookies {
		service, gossip = append(service, take()), append(gossip, take())
		members = append(members, fmt.Sprintf("bookie-%d=%s", i+1, service[i]))
	}
	for i := range o.Bookies {
		id := fmt.Sprintf("bookie-%d", i+1)
		dir := filepath.Join(o.Dir, id)
		if err := o.initBookie(bookied, dir, id, members); err != nil {
			return nil, err
		}
		c.Bookies = append(c.Bookies, c.bookie(bookied, bookieAddrs{id, dir, service[i], gossip[i], take()}, gossip))
	}
	c.service, c.gossip, c.members = service, gossip, members
	for range o.Brokers {
		p, err := c.NewBroker(o.BrokerSets...)
		if err != nil {
			return nil, err
		}
		c.Brokers = append(c.Brokers, p)
	}
	return c, nil
}

// NewBookie prepares one more bookie, which is no member of the metadata group. It is not started.
func (c *Cluster) NewBookie(id string) (*Proc, error) {
	bookied, err := binary(c.opts.Bin, "bookied")
	if err != nil {
		return nil, err
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(c.opts.Dir, id)
	if err := c.opts.initBookie(bookied, dir, id, c.members); err != nil {
		return nil, err
	}
	p := c.bookie(bookied, bookieAddrs{id, dir, addrs[0], addrs[1], addrs[2]}, c.gossip)
	c.Bookies = append(c.Bookies, p)
	return p, nil
}

// Order runs a command of bookied that orders something of a bookie, and returns what it printed.
func (c *Cluster) Order(ctx context.Context, command, id string, args ...string) (string, error) {
	bookied, err := binary(c.opts.Bin, "bookied")
	if err != nil {
		return "", err
	}
	args = append([]string{command, "--bookies", strings.Join(c.service, ","), "--id", id}, args...)
	out, err := exec.CommandContext(ctx, bookied, args...).CombinedOutput()
	return string(out), err
}

// Inspect runs a command of bookied that looks into the directory of a bookie that does not run, and returns what it printed.
func (c *Cluster) Inspect(ctx context.Context, id string, args ...string) ([]byte, error) {
	bookied, err := binary(c.opts.Bin, "bookied")
	if err != nil {
		return nil, err
	}
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, bookied, append(args, "--data", filepath.Join(c.opts.Dir, id))...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%w: %s", err, notes.String())
	}
	return out.Bytes(), nil
}

// Wipe empties a bookie's data directory and prepares it again under the same id, as if its disk had been replaced.
func (c *Cluster) Wipe(id string) error {
	bookied, err := binary(c.opts.Bin, "bookied")
	if err != nil {
		return err
	}
	dir := filepath.Join(c.opts.Dir, id)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return c.opts.initBookie(bookied, dir, id, c.members)
}

type bookieAddrs struct{ id, dir, service, gossip, http string }

func (c *Cluster) bookie(bin string, a bookieAddrs, gossip []string) *Proc {
	args := withSets([]string{bin, "run", "--data", a.dir}, []string{
		"bindAddress=127.0.0.1",
		"bookiePort=" + port(a.service),
		"gossipPort=" + port(a.gossip),
		"gossipJoin=" + strings.Join(gossip, ","),
		"httpServerPort=" + port(a.http),
	})
	return &Proc{Name: a.id, Args: withSets(args, c.opts.BookieSets), HTTP: a.http, Log: filepath.Join(c.opts.Dir, a.id+".log"), GRPC: a.service}
}

// Tests read topics from the beginning whatever subscriptions they have, so brokers keep everything unless told otherwise.
const (
	keepTime = "defaultRetentionTimeInMinutes=-1"
	keepSize = "defaultRetentionSizeInMB=-1"
)

// NewBroker returns one more broker of the cluster; it is not started, and not among Brokers.
func (c *Cluster) NewBroker(sets ...string) (*Proc, error) {
	bin, err := binary(c.opts.Bin, "brokerd")
	if err != nil {
		return nil, err
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	if len(c.URLs) == 0 {
		c.opts.fixPorts(addrs)
	}
	name := fmt.Sprintf("broker-%d", len(c.URLs)+1)
	args := withSets([]string{bin, "run"}, []string{
		keepTime, keepSize,
		"metadataStoreUrl=bookied:" + strings.Join(c.service, ","),
		"bindAddress=127.0.0.1",
		"brokerServicePort=" + port(addrs[0]),
		"webServicePort=" + port(addrs[1]),
		"gossipPort=" + port(addrs[2]),
		"gossipJoin=" + strings.Join(c.gossip, ","),
	})
	c.URLs = append(c.URLs, "pulsar://"+addrs[0])
	return &Proc{Name: name, Args: withSets(args, sets), HTTP: addrs[1], Log: filepath.Join(c.opts.Dir, name+".log")}, nil
}

// fixPorts puts the ports that are asked for in place of the free ones.
func (o *Options) fixPorts(addrs []string) {
	for i, port := range []int{o.PulsarPort, o.WebPort} {
		if port != 0 {
			addrs[i] = fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
}

func withSets(args, sets []string) []string {
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	return args
}

// port returns the digits behind the last colon.
func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func freeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		a, err := FreeAddr()
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (o *Options) initBookie(bin, dir, id string, members []string) error {
	cmd := exec.Command(bin, "init", "--data", dir, "--id", id, "--cluster-id", cmp.Or(o.ClusterID, "harness"), "--members", strings.Join(members, ","))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("init %s: %w: %s", id, err, out.String())
	}
	return nil
}

// Services returns the addresses at which the first bookies serve.
func (c *Cluster) Services() []string { return c.service }

// Gossip returns the addresses at which the first bookies gossip.
func (c *Cluster) Gossip() []string { return c.gossip }

// All returns every process, bookies first.
func (c *Cluster) All() []*Proc { return append(append([]*Proc{}, c.Bookies...), c.Brokers...) }

// Start starts every process and waits until all are ready.
func (c *Cluster) Start(ctx context.Context) error {
	for _, p := range c.All() {
		if err := p.Start(); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// WaitReady waits until every process is ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, p := range c.All() {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends every process at once.
func (c *Cluster) Kill() {
	for _, p := range c.All() {
		if p.cmd != nil {
			_ = p.cmd.Process.Kill()
		}
	}
	for _, p := range c.All() {
		p.Kill()
	}
}

// Logs returns the end of every log, for a failed test.
func (c *Cluster) Logs(lines int) string {
	var b strings.Builder
	for _, p := range c.All() {
		fmt.Fprintf(&b, "=== %s\n%s\n", p.Name, p.Tail(lines))
	}
	return b.String()
}

// NewStandalone returns one brokerd with embedded bookies.
func NewStandalone(o Options) (*Proc, string, error) {
	brokerd, err := binary(o.Bin, "brokerd")
	if err != nil {
		return nil, "", err
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, "", err
	}
	o.fixPorts(addrs)
	if err := os.MkdirAll(o.Dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, "", err
	}
	args := withSets([]string{brokerd, "standalone", "--data", filepath.Join(o.Dir, "standalone")}, []string{
		keepTime, keepSize,
		"bindAddress=127.0.0.1",
		"brokerServicePort=" + port(addrs[0]),
		"webServicePort=" + port(addrs[1]),
		"bookiePort=" + port(addrs[2]),
	})
	p := &Proc{Name: "standalone", Args: withSets(args, o.BrokerSets), HTTP: addrs[1], Log: filepath.Join(o.Dir, "standalone.log")}
	return p, "pulsar://" + addrs[0], nil
}
