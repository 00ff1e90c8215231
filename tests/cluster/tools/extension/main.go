// Command extension does what every extension of Gardener does: it renews its heartbeat in the seed, with the token of
// its pod, and it serves a webhook, with a certificate that it creates at its start. It is ready while both work. It
// reconciles objects of the types that -types names: each operation succeeds at once, unless an object requests a
// failure.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// The folder of a pod with its token, its namespace and the CA of the API server.
	account = "/var/run/secrets/kubernetes.io/serviceaccount"
	// The Lease that Gardener checks.
	lease = "gardener-extension-heartbeat"
)

var (
	name      = flag.String("name", "", "name of the extension, and of its Service")
	interval  = flag.Duration("heartbeat-renew-interval", 30*time.Second, "how often the heartbeat is renewed")
	authority = flag.String("webhook-ca", "", "folder with tls.crt and tls.key of the CA that signs the webhook's certificate")
	webhook   = flag.String("webhook-address", ":10250", "where the webhook is served")
	probes    = flag.String("health-address", ":8081", "where /readyz is served")
	types     = flag.String("types", "", "types of objects that it reconciles, with commas between them")
)

func main() {
	flag.Parse()
	namespace := string(read(account, "namespace"))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(read(account, "ca.crt")) {
		log.Fatal("no CA of the API server")
	}
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}

	var renewed atomic.Int64
	go func() {
		for {
			if silent.Load() {
				// It is healthy, but does not report it.
				renewed.Store(time.Now().UnixNano())
			} else if err := renew(client, namespace); err != nil {
				log.Printf("the heartbeat was not renewed: %v", err)
			} else {
				renewed.Store(time.Now().UnixNano())
			}
			time.Sleep(*interval)
		}
	}()
	go func() {
		mux := http.NewServeMux()
		mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
			if time.Since(time.Unix(0, renewed.Load())) > 3**interval {
				http.Error(w, "no heartbeat", http.StatusServiceUnavailable)
			}
		})
		log.Fatal(http.ListenAndServe(*probes, mux))
	}()
	if *types != "" {
		go reconcile(client, strings.Split(*types, ","))
	}

	mux := http.NewServeMux()
	mux.HandleFunc("/defaults", review)
	certificate := sign(*name + "." + namespace + ".svc")
	server := &http.Server{Addr: *webhook, Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	log.Fatal(server.ListenAndServeTLS("", ""))
}

func read(folder, file string) []byte {
	content, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		log.Fatal(err)
	}
	return content
}

// renew writes the time into the Lease.
func renew(client *http.Client, namespace string) error {
	leases := fmt.Sprintf("https://%s/apis/coordination.k8s.io/v1/namespaces/%s/leases",
		net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")), namespace)
	object := map[string]any{"spec": map[string]any{
		"holderIdentity":       *name,
		"leaseDurationSeconds": int(interval.Seconds()),
		"renewTime":            time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
	}}
	status, err := send(client, http.MethodPatch, leases+"/"+lease, "application/merge-patch+json", object)
	if status == http.StatusNotFound {
		object["metadata"] = map[string]any{"name": lease}
		_, err = send(client, http.MethodPost, leases, "application/json", object)
	}
	return err
}

func send(client *http.Client, method, url, kind string, body any) (int, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	response, err := request(client, method, url, kind, text)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return response.StatusCode, fmt.Errorf("%s %s: %s", method, url, response.Status)
	}
	return response.StatusCode, nil
}

func request(client *http.Client, method, url, kind string, body []byte) (*http.Response, error) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// The kubelet replaces it before it expires.
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	return client.Do(request)
}

// sign creates a certificate of the webhook for a name.
func sign(host string) tls.Certificate {
	pair, err := tls.X509KeyPair(read(*authority, "tls.crt"), read(*authority, "tls.key"))
	if err != nil {
		log.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		DNSNames:     []string{host},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(30 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, pair.Leaf, &key.PublicKey, pair.PrivateKey)
	if err != nil {
		log.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// review answers an AdmissionReview: it adds a time to live to a DNSRecord without one.
func review(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Request    struct {
			UID    string `json:"uid"`
			Object struct {
				Spec struct {
					TTL *int64 `json:"ttl"`
				} `json:"spec"`
			} `json:"object"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": asked.Request.UID, "allowed": true}
	if asked.Request.Object.Spec.TTL == nil {
		response["patchType"] = "JSONPatch"
		response["patch"] = []byte(`[{"op":"add","path":"/spec/ttl","value":300}]`)
	}
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]any{"apiVersion": asked.APIVersion, "kind": asked.Kind, "response": response}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		log.Print(err)
	}
}
