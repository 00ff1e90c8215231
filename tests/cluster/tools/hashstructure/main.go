// Command config-hash prints what Gardener's secrets manager computes as `checksum-of-config`: with its library, over structs
// of the same names and fields. Each line of its input is a configuration as JSON under the name of its type; each line of its
// output is the checksum.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/mitchellh/hashstructure/v2"
)

type certType string

// CertificateSecretConfig is a CA; a certificate with a signing CA hashes structs of Go's standard library.
type CertificateSecretConfig struct {
	Name                              string
	CommonName                        string
	Organization                      []string
	DNSNames                          []string
	IPAddresses                       [][]byte
	CertType                          certType
	SigningCA                         *struct{ Name string }
	PKCS                              int
	Validity                          *time.Duration
	SkipPublishingCACertificate       bool
	IncludeCACertificateInServerChain bool
}

// RSASecretConfig is an RSA key.
type RSASecretConfig struct {
	Name       string
	Bits       int
	UsedForSSH bool
}

// ETCDEncryptionKeySecretConfig is a key for what etcd stores.
type ETCDEncryptionKeySecretConfig struct {
	Provider     string
	Name         string
	SecretLength int
}

// StaticTokenSecretConfig is a file of tokens.
type StaticTokenSecretConfig struct {
	Name   string
	Tokens map[string]TokenConfig
}

// TokenConfig is whom a token names.
type TokenConfig struct {
	Username string
	UserID   string
	Groups   []string
}

// CertificateBundleSecretConfig is several CAs.
type CertificateBundleSecretConfig struct {
	Name            string
	CertificatePEMs [][]byte
}

// RSAPrivateKeyBundleSecretConfig is several keys.
type RSAPrivateKeyBundleSecretConfig struct {
	Name           string
	PrivateKeyPEMs [][]byte
}

// BasicAuthSecretConfig is a user with a password.
type BasicAuthSecretConfig struct {
	Name           string
	Format         certType
	Username       string
	PasswordLength int
}

// Cluster is a cluster of a kubeconfig, AuthInfo a user.
type Cluster struct {
	Server                   string
	CertificateAuthorityData []byte
}

// AuthInfo is a user of a kubeconfig.
type AuthInfo struct {
	TokenFile string
}

// KubeconfigSecretConfig is a kubeconfig.
type KubeconfigSecretConfig struct {
	Name        string
	ContextName string
	Cluster     Cluster
	AuthInfo    AuthInfo
	Namespace   string
}

func main() {
	kinds := map[string]func() any{
		"CertificateSecretConfig":         func() any { return &CertificateSecretConfig{} },
		"RSASecretConfig":                 func() any { return &RSASecretConfig{} },
		"ETCDEncryptionKeySecretConfig":   func() any { return &ETCDEncryptionKeySecretConfig{} },
		"StaticTokenSecretConfig":         func() any { return &StaticTokenSecretConfig{} },
		"CertificateBundleSecretConfig":   func() any { return &CertificateBundleSecretConfig{} },
		"RSAPrivateKeyBundleSecretConfig": func() any { return &RSAPrivateKeyBundleSecretConfig{} },
		"BasicAuthSecretConfig":           func() any { return &BasicAuthSecretConfig{} },
		"KubeconfigSecretConfig":          func() any { return &KubeconfigSecretConfig{} },
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in := json.NewDecoder(os.Stdin); in.More(); {
		var line map[string]json.RawMessage
		if err := in.Decode(&line); err != nil {
			log.Fatal(err)
		}
		for name, text := range line {
			config := kinds[name]()
			if err := json.Unmarshal(text, config); err != nil {
				log.Fatal(err)
			}
			options := &hashstructure.HashOptions{IgnoreZeroValue: true}
			sum, err := hashstructure.Hash(config, hashstructure.FormatV2, options)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Fprintln(out, sum)
		}
	}
}
