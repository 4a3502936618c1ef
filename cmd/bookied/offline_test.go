package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"geminga/cmd/internal/daemon"
	"geminga/pkg/bookie"
	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
	"geminga/rpc/bookiepb"
	"geminga/rpc/pulsarpb"
)

const patience = 30 * time.Second

// running is a bookie that is its whole cluster.
type running struct {
	t    *testing.T
	dir  string
	b    *bookie.Bookie
	conn *grpc.ClientConn
}

// initDir makes a data directory, and returns the address at which its bookie has to listen.
func initDir(t *testing.T) (dir, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	_ = l.Close()
	dir = filepath.Join(t.TempDir(), "data")
	_, err = bookie.Init(bookie.InitOptions{
		DataDir: dir, BookieID: "a", ClusterID: "test", Metadata: []bookie.Member{{ID: "a", Address: addr}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, addr
}

func start(t *testing.T, dir, addr string) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bookie.Open(ctx, bookie.Options{
		DataDir: dir, Listener: l, AdvertisedAddress: l.Addr().String(), ReplicationFactor: 1, MinFreeSpace: 1,
		Journal: bookie.JournalOptions{SegmentSize: 16 << 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, dir: dir, b: b}
	t.Cleanup(r.stop)
	if err := b.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	r.conn, err = grpc.NewClient("passthrough:///"+l.Addr().String(),
		append(bookiepb.ClientOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) stop() {
	if r.b == nil {
		return
	}
	if r.conn != nil {
		_ = r.conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.b.Close(ctx); err != nil {
		r.t.Error(err)
	}
	r.b = nil
}

func (r *running) execute(c ledger.Command) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	resp, err := bookiepb.NewBookieClient(r.conn).Execute(ctx, &bookiepb.ExecuteRequest{Group: 1, Command: c.AppendTo(nil)})
	if err != nil || resp.GetResult().GetCode() != bookiepb.Code_OK {
		r.t.Fatalf("%s: %v %v", c.String(), resp, err)
	}
}

func appendOf(id ledger.ID, epoch ledger.Epoch, first ledger.EntryID, payloads ...[]byte) ledger.Command {
	c := ledger.Command{Op: ledger.OpAppend, Ledger: id, Epoch: epoch, First: first, Count: len(payloads)}
	for _, p := range payloads {
		c.Body = ledger.AppendEntry(c.Body, p)
	}
	return c
}

// pulsarEntry is what a producer's batch of two messages looks like in a ledger.
func pulsarEntry(t *testing.T) []byte {
	t.Helper()
	b, err := protocol.AppendSection(nil, &pulsarpb.MessageMetadata{
		ProducerName: proto.String("prod-1"), SequenceId: proto.Uint64(41), PublishTime: proto.Uint64(1700000000123),
		NumMessagesInBatch: proto.Int32(2),
	}, []byte("two messages"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// filled is a directory in which a bookie ran twice: an open, a closed, a fenced and a deleted ledger.
func filled(t *testing.T) string {
	t.Helper()
	dir, addr := initDir(t)
	r := start(t, dir, addr)
	for id := range ledger.ID(4) {
		r.execute(ledger.Command{Op: ledger.OpCreate, Ledger: 10 + id, Epoch: 1})
	}
	r.execute(appendOf(10, 1, 0, []byte("first entry"), pulsarEntry(t)))
	r.execute(appendOf(10, 1, 2, []byte("third entry of ledger 10")))
	for i := range ledger.EntryID(8) {
		r.execute(appendOf(11, 1, i, []byte(fmt.Sprintf("entry %d ", i)+strings.Repeat("x", 3000))))
	}
	r.execute(ledger.Command{Op: ledger.OpClose, Ledger: 11, Epoch: 1, Last: 5})
	r.execute(appendOf(12, 1, 0, []byte("before the fence")))
	r.execute(ledger.Command{Op: ledger.OpFence, Ledger: 12, Epoch: 7})
	r.execute(ledger.Command{Op: ledger.OpDelete, Ledger: 13})
	r.stop()
	r = start(t, dir, addr)
	r.execute(appendOf(10, 1, 3, []byte("after a restart")))
	r.stop()
	return dir
}

// run runs a command line, and returns what it printed and its exit code.
func run(t *testing.T, args ...string) (out, notes string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	look := tool{out: &stdout, notes: &stderr}
	commands := map[string]func(context.Context, []string) error{"inspect": look.inspect, "verify": look.verify, "dump": look.dump}
	err := commands[args[0]](t.Context(), args[1:])
	var exit *daemon.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.Code
		if exit.Err != nil {
			fmt.Fprintln(&stderr, exit.Err)
		}
	case err != nil:
		t.Fatalf("%v: an error without an exit code: %v", args, err)
	}
	return stdout.String(), stderr.String(), code
}

// sums returns a checksum of every file below dir, its length and its time.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		all[path] = fmt.Sprint(info.Mode(), info.ModTime().UnixNano())
		if e.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		all[path] += " " + hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sameSums(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	after := sums(t, dir)
	for path, sum := range before {
		if after[path] != sum {
			t.Errorf("%s changed: %s, was %s", path, after[path], sum)
		}
		delete(after, path)
	}
	for path := range after {
		t.Errorf("%s is new", path)
	}
}

// The outputs on a directory that a real bookie made, which stays as it is, byte for byte.
func TestOfflineGolden(t *testing.T) {
	dir := filled(t)
	before := sums(t, dir)
	datadriven.RunTest(t, filepath.Join("testdata", "offline"), func(t *testing.T, d *datadriven.TestData) string {
		out, notes, code := run(t, append(strings.Fields(d.Input), "--data", dir)...)
		if code != 0 || notes != "" {
			out += fmt.Sprintf("notes: %sexit code %d\n", notes, code)
		}
		return out
	})
	sameSums(t, dir, before)
}

// A directory of which nothing may be written can be looked at.
func TestOfflineNeedsNoRightToWrite(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everything")
	}
	dir := filled(t)
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, _ error) error {
		mode := fs.FileMode(0o400)
		if e.IsDir() {
			mode = 0o500
			t.Cleanup(func() { _ = os.Chmod(path, 0o700) })
		}
		return os.Chmod(path, mode)
	})
	if out, notes, code := run(t, "verify", "--data", dir); code != 0 {
		t.Fatal(out, notes, code)
	}
}

// What runs is refused, and what is looked at does not start; two may look at the same time.
func TestOfflineAndRunningExclude(t *testing.T) {
	dir, addr := initDir(t)
	if _, notes, code := run(t, "verify", "--data", dir); code != exitUnreadable || !strings.Contains(notes, "never ran") {
		t.Errorf("a bookie that never ran: %q, %d", notes, code)
	}
	r := start(t, dir, addr)
	before := sums(t, filepath.Join(dir, "journal"))
	for _, args := range [][]string{{"inspect", "groups"}, {"inspect", "ledgers"}, {"inspect", "segments"}, {"verify"}, {"dump", "--ledger", "1"}} {
		out, notes, code := run(t, append(args, "--data", dir)...)
		if code != exitUnreadable || out != "" && args[0] != "dump" || !strings.Contains(notes, "in use by another process") {
			t.Errorf("%v on a running bookie: %q %q, exit code %d", args, out, notes, code)
		}
	}
	sameSums(t, filepath.Join(dir, "journal"), before)
	r.stop()
	one, err := bookie.OpenOffline(t.Context(), bookie.OfflineOptions{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if out, notes, code := run(t, "verify", "--data", dir); code != 0 {
		t.Errorf("a second one who looks: %q %q, %d", out, notes, code)
	}
	if b, err := bookie.Open(t.Context(), bookie.Options{DataDir: dir, ListenAddress: "127.0.0.1:0"}); err == nil {
		t.Error("a bookie started on a directory that is being looked at")
		_ = b.Close(t.Context())
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOfflineUsage(t *testing.T) {
	for _, args := range []string{
		"inspect", "inspect --json", "inspect nothing", "inspect groups", "verify", "verify --data", "verify --data nowhere", "verify x",
		"dump --data nowhere --ledger 1", "dump --ledger x", "verify --data . --journal nowhere",
	} {
		out, notes, code := run(t, strings.Fields(args)...)
		if code != exitUnreadable || out != "" || notes == "" {
			t.Errorf("%s: %q %q, exit code %d", args, out, notes, code)
		}
	}
}

// flip changes a bit of the one place in the journal that holds marker, and says where that is.
func flip(t *testing.T, dir, marker string) (file string, offset int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "journal", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(b, []byte(marker)); i >= 0 {
			b[i] ^= 4
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return filepath.Join("journal", filepath.Base(name)), int64(i)
		}
	}
	t.Fatalf("%q is nowhere in the journal", marker)
	return "", 0
}

// Damaged bytes of an entry are found, and the record that holds them is named; what was before it is still shown.
func TestOfflineFindsDamage(t *testing.T) {
	dir := filled(t)
	file, at := flip(t, dir, "entry 3 xxx")
	before := sums(t, dir)
	out, _, code := run(t, "verify", "--json", "--data", dir)
	var r bookie.VerifyReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDamage || r.Clean || len(r.Damage) != 1 {
		t.Fatalf("%v, exit code %d: %s", err, code, out)
	}
	d := r.Damage[0]
	if d.File != file || d.Group != 1 || d.Index == 0 || d.Offset > at || d.Offset < at-200 {
		t.Errorf("flipped a bit of %s at %d, reported %+v", file, at, d)
	}
	if out, _, code = run(t, "verify", "--data", dir); code != exitDamage || !strings.Contains(out, "1 damaged places") || !strings.Contains(out, file) {
		t.Errorf("exit code %d: %s", code, out)
	}
	out, notes, code := run(t, "dump", "--ledger", "11", "--raw", "--data", dir)
	if code != exitDamage || !strings.HasPrefix(out, "entry 0 ") || !strings.Contains(out, "entry 2 ") || strings.Contains(out, "entry 4 ") ||
		!strings.Contains(notes, fmt.Sprintf("applied up to entry %d only", d.Index-1)) {
		t.Errorf("exit code %d, notes %q, %d bytes", code, notes, len(out))
	}
	out, notes, code = run(t, "inspect", "ledgers", "--data", dir)
	if code != 0 || !strings.Contains(notes, "what came after is not shown") {
		t.Errorf("exit code %d, notes %q: %s", code, notes, out)
	}
	out, _, code = run(t, "inspect", "groups", "--data", dir)
	if code != 0 || !strings.Contains(out, fmt.Sprintf("corrupt: group 1 index %d", d.Index)) {
		t.Errorf("exit code %d: %s", code, out)
	}
	sameSums(t, dir, before)
}

// Damage to the files of the metadata group is found too, and does not take the tool down.
func TestOfflineFindsDamagedMetadata(t *testing.T) {
	dir, addr := initDir(t)
	start(t, dir, addr).stop()
	path := filepath.Join(dir, "metadata", "raft.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 2 * os.Getpagesize(); i < len(b); i++ { // all but the two pages that begin the file
		b[i] = 0xa5
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	before := sums(t, dir)
	out, notes, code := run(t, "verify", "--data", dir)
	if code != exitDamage || !strings.Contains(out, filepath.Join("metadata", "raft.db")) {
		t.Errorf("exit code %d: %s%s", code, out, notes)
	}
	if out, _, code = run(t, "inspect", "groups", "--data", dir); code != 0 || !strings.Contains(out, "damaged") {
		t.Errorf("exit code %d: %s", code, out)
	}
	sameSums(t, dir, before)
}
