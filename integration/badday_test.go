package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
	"geminga/integration/torture"
	"geminga/rpc/pulsarpb"
)

// exits starts a process that must end by itself with code 1, and returns the last line it wrote.
func exits(t *testing.T, p *harness.Proc) string {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	code, err := p.Exited(deadline(t, 30*time.Second))
	if err != nil {
		t.Fatalf("%s goes on: %v\n%s", p.Name, err, p.Tail(20))
	}
	if code != 1 {
		t.Errorf("%s ended with code %d, want 1", p.Name, code)
	}
	return p.Tail(1)
}

func wantLine(t *testing.T, line string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(line, part) {
			t.Errorf("the last line does not say %q: %s", part, line)
		}
	}
}

func TestPortTaken(t *testing.T) {
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	p, _, err := harness.NewStandalone(harness.Options{Bin: *binDir, Dir: workDir(t), BrokerSets: []string{fmt.Sprint("brokerServicePort=", port)}})
	if err != nil {
		t.Fatal(err)
	}
	wantLine(t, exits(t, p), fmt.Sprint(port), "address already in use", "choose another port")
}

func TestUnknownSettingIsNamed(t *testing.T) {
	p, _, err := harness.NewStandalone(harness.Options{Bin: *binDir, Dir: workDir(t), BrokerSets: []string{"brokerServicePrt=1"}})
	if err != nil {
		t.Fatal(err)
	}
	wantLine(t, exits(t, p), "unknown name brokerServicePrt")
}

func TestBookieRefusesForeignAndUnpreparedData(t *testing.T) {
	c, err := harness.NewCluster(harness.Options{Bin: *binDir, Dir: workDir(t), Bookies: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := c.Bookies[0]
	data := b.Args[3]

	again := exec.Command(b.Args[0], "init", "--data", data, "--id", "bookie-1", "--cluster-id", "other", "--members", "bookie-1=127.0.0.1:1")
	out, err := again.CombinedOutput()
	if err == nil {
		t.Errorf("init over existing state succeeded: %s", out)
	}
	wantLine(t, string(out), data)

	b.Args[3] = filepath.Join(t.TempDir(), "empty")
	wantLine(t, exits(t, b), "init")
	b.Args[3] = data

	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	defer b.Kill()
	if err := b.WaitReady(deadline(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	second := &harness.Proc{Name: "second", Args: append([]string{}, b.Args...), Log: b.Log + "2"}
	wantLine(t, exits(t, second), data)
}

func TestBrokerOfAnotherCluster(t *testing.T) {
	c := startCluster(t, harness.Options{Bookies: 1, Brokers: 0})
	p, err := c.NewBroker("clusterName=standalone", "bookieClusterId=another")
	if err != nil {
		t.Fatal(err)
	}
	wantLine(t, exits(t, p), "another", "cluster")
}

func TestNoQuorumIsNotReadyAndHeals(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	c := startCluster(t, harness.Options{Bookies: 3, Brokers: 1})
	c.Bookies[0].Kill()
	c.Bookies[1].Kill()
	waitStatus(ctx, t, c.Brokers[0].HTTP, http.StatusServiceUnavailable)
	restart(ctx, t, c.Bookies[0])
	waitStatus(ctx, t, c.Brokers[0].HTTP, http.StatusOK)
	roundTrip(ctx, t, newClient(t, c.URLs[0]), topicName(t))
}

// waitStatus polls the readiness endpoint for a status.
func waitStatus(ctx context.Context, t *testing.T, addr string, want int) {
	t.Helper()
	waitReadyz(ctx, t, addr, fmt.Sprint(want), func(status int, _ string) bool { return status == want })
}

// waitReadyz polls the readiness endpoint until its answer is as wanted, and returns that.
func waitReadyz(ctx context.Context, t *testing.T, addr, wanted string, good func(status int, body string) bool) string {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		if resp, err := http.Get("http://" + addr + "/readyz"); err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			last = fmt.Sprint(resp.StatusCode, " ", string(body))
			if good(resp.StatusCode, string(body)) {
				return last
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("/readyz never answered %s; last: %s", wanted, last)
		case <-tick.C:
		}
	}
}

func roundTrip(ctx context.Context, t *testing.T, client pulsar.Client, topic string) {
	t.Helper()
	consumer := must[pulsar.Consumer](t)(client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"}))
	defer consumer.Close()
	producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{Topic: topic}))
	defer producer.Close()
	must[pulsar.MessageID](t)(producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("hello")}))
	m := must[pulsar.Message](t)(consumer.Receive(ctx))
	if string(m.Payload()) != "hello" {
		t.Errorf("received %q", m.Payload())
	}
	if err := consumer.Ack(m); err != nil {
		t.Error(err)
	}
}

// TestTermLosesNothing stops a standalone server with SIGTERM while messages flow; it ends within 10 s, and whatever
// had a receipt is there after the next start.
func TestTermLosesNothing(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	p, url := startStandalone(t, "brokerDeduplicationEnabled=true")
	client := newClient(t, url)
	s := startStream(ctx, t, client, topicName(t), false)
	s.progress(ctx, t, 2000, "before SIGTERM")
	start := time.Now()
	if err := p.Term(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	t.Logf("ended %v after SIGTERM", time.Since(start))
	restart(ctx, t, p)
	s.progress(ctx, t, 500, "after the restart")
	s.stop()
	verify(ctx, t, client, s.log)
}

// TestFullDiskAtStart needs the right to mount a file system.
func TestFullDiskAtStart(t *testing.T) {
	small := smallDisk(t, "1m")
	p, _, err := harness.NewStandalone(harness.Options{Bin: *binDir, Dir: small})
	if err != nil {
		t.Fatal(err)
	}
	p.Log = filepath.Join(workDir(t), "log")
	wantLine(t, exits(t, p), "no space left on device", "free space")
}

// smallDisk mounts a file system of a size, which needs the right to.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	small := filepath.Join(workDir(t), "small")
	mountSmall(t, small, size)
	return small
}

// mountSmall makes a directory that is a small file system.
func mountSmall(t *testing.T, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small tmpfs: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
}

// fillDisk takes all that is free, the last byte included.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f := must[*os.File](t)(os.Create(path))
	defer f.Close()
	for _, n := range []int{1 << 20, 4 << 10, 1} {
		for block := make([]byte, n); ; {
			if _, err := f.Write(block); err != nil {
				break
			}
		}
	}
}

// TestDiskFilledByOthers fills the disk of the bookies to the last byte while messages flow, twice, and kills everything in
// between: nobody dies of it, what was published can be read, everything starts again on the full disk, and publishing goes
// on by itself when there is room.
func TestDiskFilledByOthers(t *testing.T) {
	small, logs := smallDisk(t, "320m"), workDir(t)
	ctx := deadline(t, 4*time.Minute)
	c, err := harness.NewCluster(harness.Options{
		Bin: *binDir, Dir: small, Bookies: 1, Brokers: 1, BookieSets: []string{"minFreeSpaceMB=32", "journalMaxSizeMB=16"},
		BrokerSets: []string{"brokerDeduplicationEnabled=true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.All() {
		p.Log = filepath.Join(logs, p.Name+".log")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs(60))
		}
		c.Kill()
		for _, p := range c.All() {
			checkSound(t, p)
		}
	})
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, c.URLs[0])
	s := startStream(ctx, t, client, topicName(t), false)
	s.progress(ctx, t, 500, "before the disk is full")

	filler := filepath.Join(small, "somebody-elses")
	for round := range 2 {
		fillDisk(t, filler)
		waitStatus(ctx, t, c.Brokers[0].HTTP, http.StatusOK)
		refuses(ctx, t, c.Bookies[0])
		reader := must[pulsar.Reader](t)(newClient(t, c.URLs[0]).CreateReader(pulsar.ReaderOptions{
			Topic: s.log.Topic, StartMessageID: pulsar.EarliestMessageID(),
		}))
		for range 200 {
			must[pulsar.Message](t)(reader.Next(ctx))
		}
		reader.Close()
		if round == 0 {
			t.Log("killing everything on the full disk")
			c.Kill()
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			refuses(ctx, t, c.Bookies[0])
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		t.Logf("publishing again %v after there was room", s.progress(ctx, t, 500, "there is room again"))
	}
	s.stop()
	verify(ctx, t, client, s.log)
}

// refuses waits until a bookie says that it takes no entries.
func refuses(ctx context.Context, t *testing.T, bookie *harness.Proc) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		readOnly, err := harness.ReadOnly(ctx, bookie)
		if err != nil {
			t.Fatalf("%v\n%s", err, bookie.Tail(20))
		}
		if readOnly {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the bookie goes on taking entries")
		}
	}
}

// Clients that take all connections there are leave descriptors for the rest of the broker: it is healthy, makes topics and
// serves those who are there; and who leaves makes room.
func TestClientsLeaveDescriptors(t *testing.T) {
	const files, clients = 600, 700
	p, url, err := harness.NewStandalone(harness.Options{Bin: *binDir, Dir: workDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	p.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files)}, p.Args...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.WaitReady(deadline(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(url, "pulsar://")
	var served []*torture.Client
	defer func() {
		for _, c := range served {
			_ = c.Close()
		}
	}()
	refused := 0
	for range clients {
		c, err := torture.Join(addr, "")
		if err != nil {
			refused++
			continue
		}
		served = append(served, c)
	}
	if len(served) < files/2 || refused < clients-files {
		t.Errorf("%d connections are served, %d refused", len(served), refused)
	}
	get := func(method, path string, want int) {
		t.Helper()
		req, err := http.NewRequestWithContext(deadline(t, 10*time.Second), method, "http://"+p.HTTP+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s %s: %s", method, path, r.Status)
		}
	}
	get(http.MethodGet, "/readyz", http.StatusOK)
	get(http.MethodPut, "/admin/v2/persistent/public/default/crowded", http.StatusNoContent)
	last := served[len(served)-1]
	topic := "persistent://public/default/crowded"
	for _, ask := range []struct {
		frame []byte
		want  pulsarpb.BaseCommand_Type
	}{
		{torture.Lookup(topic), pulsarpb.BaseCommand_LOOKUP_RESPONSE},
		{torture.Producer(topic, 1), pulsarpb.BaseCommand_PRODUCER_SUCCESS},
		{torture.Send(1, 0, []byte("x")), pulsarpb.BaseCommand_SEND_RECEIPT},
	} {
		if _, err := last.Ask(ask.frame, ask.want); err != nil {
			t.Fatal(err)
		}
	}
	_ = served[0].Close()
	served = served[1:]
	for ctx := deadline(t, 10*time.Second); ; {
		c, err := torture.Join(addr, "")
		if err == nil {
			served = append(served, c)
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("nobody can take the place of one that left: %v", err)
		}
	}
}
