package broker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"geminga/rpc/pulsarpb"
)

// certificate is valid for an hour and signed by itself.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTLS(t *testing.T) {
	s, _ := start(t, func(o *Options) {
		o.ListenAddressTLS = "127.0.0.1:0"
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate(t)}, MinVersion: tls.VersionTLS12}
	})
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.ServiceURLTLS(), "pulsar+ssl://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p := &peer{t: t, conn: c}
	p.handshake()
	if r := p.lookup(name(1)); r.GetBrokerServiceUrlTls() != s.ServiceURLTLS() || r.GetBrokerServiceUrl() != s.ServiceURL() {
		t.Errorf("%v", r)
	}
	p.publishOne(name(1))
}

func TestNoAutoCreation(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.Rules.DisableAutoTopicCreation = true })
	p := connect(t, s)
	p.lookup(name(1))
	if got := p.fails(producerCommand(name(1), 1, *p.id(), "")).GetError(); got != pulsarpb.ServerError_TopicNotFound {
		t.Errorf("%v", got)
	}
}

func TestOpenFails(t *testing.T) {
	s, _ := start(t)
	taken := strings.TrimPrefix(s.ServiceURL(), "pulsar://")
	_, err := Open(t.Context(), Options{ListenAddress: taken, Bookies: s.opts.Bookies, Store: s.opts.Store, Loops: 1})
	if err == nil || !strings.Contains(err.Error(), "brokerServicePort") || !strings.Contains(err.Error(), taken) {
		t.Errorf("port taken: %v", err)
	}
	_, err = Open(t.Context(), Options{MaxMessageSize: 1, ListenAddressTLS: "x"})
	for _, want := range []string{"maxMessageSize", "certificate", "bookies"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// A client that does not read what it asks for is not read either, and in the end is closed.
func TestDeafClient(t *testing.T) {
	t.Parallel()
	s, _ := start(t, func(o *Options) { o.KeepAliveInterval = 100 * time.Millisecond })
	p := pipe(t, s)
	p.handshake()
	sent := make(chan int)
	go func() { // lookups without reading the answers, until nobody takes them
		n := 0
		frame := lookupFrame(t)
		for {
			_ = p.conn.SetWriteDeadline(time.Now().Add(patience))
			if _, err := p.conn.Write(frame); err != nil {
				break
			}
			n++
		}
		sent <- n
	}()
	n := <-sent
	if n == 0 || n > 200_000 {
		t.Errorf("%d requests were taken", n)
	}
	connect(t, s).publishOne(name(1))
}

func TestReady(t *testing.T) {
	s, cluster := start(t)
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	cluster.Down(0)
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready without metadata")
	}
	cluster.Up(0)
	if _, err := s.TopicStats(context.Background(), "nobody-asked-for-it"); err == nil {
		t.Error("stats of a topic that is not open")
	}
	if _, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(s.ServiceURL(), "pulsar://")); err != nil {
		t.Error(err)
	}
}
