// Command etcd-wrapper does what the container "etcd" of an etcd-druid has to do, in place of Gardener's program of this
// name, whose module is not served. It asks etcd-backup-restore beside it to prepare the data and for the configuration
// of etcd, runs etcd with it, and answers the readiness probe. Etcd ends when it is told to, and this program with it.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// The only command.
	command = "start-etcd"
	etcd    = "/usr/local/bin/etcd"
	// How often etcd-backup-restore is asked.
	interval = 500 * time.Millisecond
	timeout  = 30 * time.Second
)

var (
	sidecar      = flag.String("backup-restore-host-port", "", "where etcd-backup-restore answers")
	secure       = flag.Bool("backup-restore-tls-enabled", false, "whether it answers with TLS")
	authority    = flag.String("backup-restore-ca-cert-bundle-path", "", "file with the CA of its certificate")
	server       = flag.String("etcd-server-name", "", "name of etcd in its certificate")
	certificate  = flag.String("etcd-client-cert-path", "", "certificate of clients of etcd")
	key          = flag.String("etcd-client-key-path", "", "its key")
	clientPort   = flag.Int("etcd-client-port", 2379, "port of etcd")
	wrapperPort  = flag.Int("etcd-wrapper-port", 9095, "port of the readiness probe")
	readyTimeout = 5 * time.Second
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != command {
		log.Fatalf("the only command is %s", command)
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
	backup := &backupRestore{client: client(*authority, "", "", timeout), base: address(*secure, *sidecar)}
	if err := backup.initialize(); err != nil {
		log.Fatal(err)
	}
	path, config, err := backup.config()
	if err != nil {
		log.Fatal(err)
	}
	child := exec.Command(etcd, "--config-file="+path)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		log.Fatal(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for told := range signals {
			_ = child.Process.Signal(told)
		}
	}()
	go probe(config)
	err = child.Wait()
	log.Printf("etcd has ended: %v", child.ProcessState)
	var failure *exec.ExitError
	if errors.As(err, &failure) && !failure.Exited() {
		os.Exit(0)
	}
	os.Exit(child.ProcessState.ExitCode())
}

func address(secure bool, hostPort string) string {
	if secure {
		return "https://" + hostPort
	}
	return "http://" + hostPort
}

// client trusts the certificates of a file, and has a certificate of its own if there is one.
func client(authority, certificate, key string, timeout time.Duration) *http.Client {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		bundle, err := os.ReadFile(authority)
		if err != nil {
			log.Fatal(err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			log.Fatalf("%s has no certificate", authority)
		}
	}
	if certificate != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certificate, key)
			return &pair, err
		}
	}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: config}}
}

func get(client *http.Client, url string) (string, error) {
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return string(body), err
}

// backupRestore is etcd-backup-restore in the same pod.
type backupRestore struct {
	client *http.Client
	base   string
}

// initialize returns when the data are valid: those of before, or restored ones.
func (b *backupRestore) initialize() error {
	for last := ""; ; time.Sleep(interval) {
		status, err := get(b.client, b.base+"/initialization/status")
		if err != nil {
			status = err.Error()
		}
		if status != last {
			log.Printf("initialization: %s", status)
			last = status
		}
		switch {
		case err != nil:
		case status == "Successful":
			return nil
		case status == "Failed":
			return errors.New("etcd-backup-restore could not prepare the data")
		case status == "New":
			if _, err := get(b.client, b.base+"/initialization/start?mode=full"); err != nil {
				log.Printf("start of the initialization: %v", err)
			}
		}
	}
}

// config stores the configuration of etcd, and returns where, and its text.
func (b *backupRestore) config() (path, text string, err error) {
	if text, err = get(b.client, b.base+"/config"); err != nil {
		return "", "", err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(home, "etcd.conf.yaml")
	return path, text, os.WriteFile(path, []byte(text), 0o600)
}

// ofClients finds a field of the section client-transport-security.
func ofClients(config, field string) string {
	isInside := false
	for lines := bufio.NewScanner(strings.NewReader(config)); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, " ") {
			isInside = line == "client-transport-security:"
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if isInside && name == field {
			return value
		}
	}
	return ""
}

// probe answers whether etcd is healthy.
func probe(config string) {
	cert, secret, ca := ofClients(config, "cert-file"), ofClients(config, "key-file"), ofClients(config, "trusted-ca-file")
	asks := client(ca, *certificate, *key, readyTimeout)
	health := fmt.Sprintf("%s:%d/health", address(cert != "", *server), *clientPort)
	handler := http.NewServeMux()
	handler.HandleFunc("/readyz", func(answer http.ResponseWriter, _ *http.Request) {
		if said, err := get(asks, health); err != nil {
			log.Printf("not ready: %v %s", err, said)
			answer.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	listen := &http.Server{Addr: fmt.Sprintf(":%d", *wrapperPort), Handler: handler, ReadHeaderTimeout: readyTimeout}
	if cert == "" {
		log.Fatal(listen.ListenAndServe())
	}
	log.Fatal(listen.ListenAndServeTLS(cert, secret))
}
