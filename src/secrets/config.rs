//! The configuration of a Secret. It yields the name and the checksum under which the Go secrets manager stores the
//! same Secret (Gardener's `pkg/utils/secrets`).

use std::fmt;
use std::time::Duration;

use ring::digest;

use super::hash::{HashedValue, hash};
use crate::base::sorted::SortedMap;
use crate::pki::issue::{KeyUsage, ServerNames};

/// A Secret to create.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretConfig {
    /// A certificate authority.
    Ca {
        /// Name of the configuration.
        name: String,
        /// Common name; the certificate uses the name of the Secret instead.
        common_name: String,
        /// How long it is valid; ten years if unset.
        validity: Option<Duration>,
    },
    /// A certificate that a CA of the secrets manager signs.
    Leaf {
        /// Name of the configuration.
        name: String,
        /// The common name of the subject.
        common_name: String,
        /// Organizations, which are groups in Kubernetes.
        organizations: Vec<String>,
        /// The key usage.
        usage: KeyUsage,
        /// Names and addresses of a server.
        names: ServerNames,
        /// How long it is valid; ten years if unset.
        validity: Option<Duration>,
        /// Whether to omit the CA (`ca.crt`) beside the certificate.
        skip_ca: bool,
        /// The CA follows the certificate in `tls.crt`.
        with_chain: bool,
    },
    /// A kubeconfig with a client certificate that a CA of the secrets manager signs (Go's `ControlPlaneSecretConfig`).
    ClientKubeconfig {
        /// Name of the configuration, and of the entries for certificate and key.
        name: String,
        /// The common name of the subject.
        common_name: String,
        /// Organizations, which are groups in Kubernetes.
        organizations: Vec<String>,
        /// How long the certificate is valid; ten years if unset.
        validity: Option<Duration>,
        /// Name of context, cluster and user.
        context: String,
        /// The server, without scheme.
        server: String,
        /// PEM text of the CAs that verify the server.
        ca: Vec<u8>,
    },
    /// An RSA key that signs ServiceAccount tokens.
    RsaKey {
        /// Name of the configuration.
        name: String,
        /// Length of the modulus.
        bits: u32,
        /// For SSH, with a public key beside it.
        for_ssh: bool,
    },
    /// A key that encrypts objects in etcd.
    EncryptionKey {
        /// Name of the configuration.
        name: String,
        /// `aescbc` if empty.
        provider: String,
        /// Its length in bytes.
        length: u32,
    },
    /// Tokens for a token file of kube-apiserver.
    StaticToken {
        /// Name of the configuration.
        name: String,
        /// By name.
        tokens: SortedMap<String, TokenUser>,
    },
    /// Several CAs, the current one first.
    CertificateBundle {
        /// Name of the configuration.
        name: String,
        /// Texts in PEM form.
        pems: Vec<Vec<u8>>,
    },
    /// Several keys, the current one first.
    KeyBundle {
        /// Name of the configuration.
        name: String,
        /// Texts in PEM form.
        pems: Vec<Vec<u8>>,
    },
    /// User and password.
    BasicAuth {
        /// Name of the configuration.
        name: String,
        /// `normal`.
        format: String,
        /// The user.
        username: String,
        /// Length of the password.
        password_length: u32,
    },
    /// A kubeconfig.
    Kubeconfig {
        /// Name of the configuration.
        name: String,
        /// Name of context, cluster and user.
        context: String,
        /// The server, without scheme.
        server: String,
        /// PEM text of its CAs.
        ca: Vec<u8>,
        /// The path of the token.
        token_file: String,
        /// Namespace of the context.
        namespace: String,
    },
}

/// The user of a static token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenUser {
    /// Name.
    pub username: String,
    /// Id.
    pub user_id: String,
    /// Groups.
    pub groups: Vec<String>,
}

impl fmt::Debug for SecretConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omit the content: a bundle contains keys.
        f.debug_tuple("SecretConfig").field(&self.name()).finish()
    }
}

impl SecretConfig {
    /// The name of the configuration.
    pub fn name(&self) -> &str {
        match self {
            Self::Ca { name, .. }
            | Self::Leaf { name, .. }
            | Self::ClientKubeconfig { name, .. }
            | Self::RsaKey { name, .. }
            | Self::EncryptionKey { name, .. }
            | Self::StaticToken { name, .. }
            | Self::CertificateBundle { name, .. }
            | Self::KeyBundle { name, .. }
            | Self::BasicAuth { name, .. }
            | Self::Kubeconfig { name, .. } => name,
        }
    }

    /// Whether it is a CA.
    pub(crate) const fn is_ca(&self) -> bool {
        matches!(self, Self::Ca { .. })
    }

    /// Label `checksum-of-config`. For certificates signed by a CA, the checksum is our own, because upstream's
    /// includes structures of Go's standard library.
    pub fn checksum(&self) -> u64 {
        match self {
            Self::Leaf { .. } | Self::ClientKubeconfig { .. } => self.own_checksum(),
            _ => hash(&self.node()),
        }
    }

    /// The fields as in Go's structs.
    fn node(&self) -> HashedValue {
        let (kind, fields) = match self {
            Self::Ca { name, common_name, validity } => {
                let mut fields = vec![
                    ("Name", HashedValue::text(name)),
                    ("CommonName", HashedValue::text(common_name)),
                    ("CertType", HashedValue::text("ca")),
                ];
                fields.extend(validity.map(|time| ("Validity", nanoseconds(time))));
                ("CertificateSecretConfig", fields)
            }
            Self::Leaf { name, .. } => ("CertificateSecretConfig", vec![("Name", HashedValue::text(name))]),
            Self::ClientKubeconfig { name, .. } => {
                ("ControlPlaneSecretConfig", vec![("Name", HashedValue::text(name))])
            }
            Self::RsaKey { name, bits, for_ssh } => (
                "RSASecretConfig",
                vec![
                    ("Name", HashedValue::text(name)),
                    ("Bits", HashedValue::Int((*bits).into())),
                    ("UsedForSSH", HashedValue::Bool(*for_ssh)),
                ],
            ),
            Self::EncryptionKey { name, provider, length } => (
                "ETCDEncryptionKeySecretConfig",
                vec![
                    ("Provider", HashedValue::text(provider)),
                    ("Name", HashedValue::text(name)),
                    ("SecretLength", HashedValue::Int((*length).into())),
                ],
            ),
            Self::StaticToken { name, tokens } => {
                let tokens = tokens.iter().map(|(key, user)| (HashedValue::text(key), user.node())).collect();
                (
                    "StaticTokenSecretConfig",
                    vec![("Name", HashedValue::text(name)), ("Tokens", HashedValue::Map(tokens))],
                )
            }
            Self::CertificateBundle { name, pems } => (
                "CertificateBundleSecretConfig",
                vec![("Name", HashedValue::text(name)), ("CertificatePEMs", blocks(pems))],
            ),
            Self::KeyBundle { name, pems } => (
                "RSAPrivateKeyBundleSecretConfig",
                vec![("Name", HashedValue::text(name)), ("PrivateKeyPEMs", blocks(pems))],
            ),
            Self::BasicAuth { name, format, username, password_length } => (
                "BasicAuthSecretConfig",
                vec![
                    ("Name", HashedValue::text(name)),
                    ("Format", HashedValue::text(format)),
                    ("Username", HashedValue::text(username)),
                    ("PasswordLength", HashedValue::Int((*password_length).into())),
                ],
            ),
            Self::Kubeconfig { .. } => ("KubeconfigSecretConfig", self.kubeconfig_fields()),
        };
        HashedValue::Struct(kind, fields)
    }

    fn kubeconfig_fields(&self) -> Vec<(&'static str, HashedValue)> {
        let Self::Kubeconfig { name, context, server, ca, token_file, namespace } = self else {
            return Vec::new();
        };
        let cluster =
            vec![("Server", HashedValue::text(server)), ("CertificateAuthorityData", HashedValue::bytes(ca))];
        let user = vec![("TokenFile", HashedValue::text(token_file))];
        vec![
            ("Name", HashedValue::text(name)),
            ("ContextName", HashedValue::text(context)),
            ("Cluster", HashedValue::Struct("Cluster", cluster)),
            ("AuthInfo", HashedValue::Struct("AuthInfo", user)),
            ("Namespace", HashedValue::text(namespace)),
        ]
    }

    /// Covers everything that affects the certificate. Each part is prefixed with its length, so that
    /// no two configurations collide.
    fn own_checksum(&self) -> u64 {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |bytes: &[u8]| {
            context.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
            context.update(bytes);
        };
        let mut add_all = |texts: &mut dyn Iterator<Item = String>| {
            texts.for_each(|text| add(text.as_bytes()));
            add(&[]);
        };
        let seconds = |validity: &Option<Duration>| validity.map_or(0, |time| time.as_secs()).to_le_bytes();
        match self {
            Self::Leaf { name, common_name, organizations, usage, names, validity, skip_ca, with_chain } => {
                add_all(&mut [name.clone(), common_name.clone()].into_iter());
                add_all(&mut organizations.iter().cloned());
                add_all(&mut names.dns.iter().cloned());
                add_all(&mut names.addresses.iter().map(ToString::to_string));
                let (server, client) = (usage.is_server(), usage.is_client());
                add(&[server.into(), client.into(), (*skip_ca).into(), (*with_chain).into()]);
                add(&seconds(validity));
            }
            Self::ClientKubeconfig { name, common_name, organizations, validity, context, server, ca } => {
                add_all(&mut [name, common_name, context, server].into_iter().cloned());
                add_all(&mut organizations.iter().cloned());
                add(&seconds(validity));
                add(ca);
            }
            _ => return 0,
        }
        let digest = context.finish();
        digest.as_ref().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
}

impl TokenUser {
    fn node(&self) -> HashedValue {
        HashedValue::Struct(
            "TokenConfig",
            vec![
                ("Username", HashedValue::text(&self.username)),
                ("UserID", HashedValue::text(&self.user_id)),
                (
                    "Groups",
                    HashedValue::List(self.groups.iter().map(|group| HashedValue::text(group)).collect()),
                ),
            ],
        )
    }
}

fn blocks(pems: &[Vec<u8>]) -> HashedValue {
    HashedValue::List(pems.iter().map(|pem| HashedValue::bytes(pem)).collect())
}

/// A pointer to a Go duration.
fn nanoseconds(time: Duration) -> HashedValue {
    HashedValue::Pointer(Box::new(HashedValue::Int(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))))
}

#[cfg(test)]
mod tests {
    use crate::base::sorted::SortedSet;

    use super::*;
    use crate::secrets::name::suffix_of_config;

    fn ca(name: &str, common_name: &str) -> SecretConfig {
        SecretConfig::Ca { name: name.to_owned(), common_name: common_name.to_owned(), validity: None }
    }

    fn key(name: &str, for_ssh: bool) -> SecretConfig {
        SecretConfig::RsaKey { name: name.to_owned(), bits: 4_096, for_ssh }
    }

    fn encryption(provider: &str) -> SecretConfig {
        SecretConfig::EncryptionKey {
            name: "kube-apiserver-etcd-encryption-key".to_owned(),
            provider: provider.to_owned(),
            length: 32,
        }
    }

    fn bundle(pems: &[&str]) -> SecretConfig {
        let pems = pems.iter().map(|pem| pem.as_bytes().to_vec()).collect();
        SecretConfig::CertificateBundle { name: "ca-bundle".to_owned(), pems }
    }

    #[test]
    fn checksums_and_names_are_upstreams() {
        let health =
            TokenUser { username: "health-check".into(), user_id: "health-check".into(), groups: vec![] };
        let month = Some(Duration::from_secs(720 * 3_600));
        let table = [
            (ca("ca", "kubernetes"), 12_627_284_116_289_067_259, "f6032ea0"),
            (ca("ca-client", "kubernetes-client"), 17_816_322_903_345_047_093, "58f8e9ac"),
            (ca("ca-etcd", "etcd"), 9_822_582_455_512_733_941, "f7594faa"),
            (ca("ca-etcd-peer", "etcd-peer"), 8_044_678_318_645_782_438, "23be1f02"),
            (ca("ca-front-proxy", "front-proxy"), 3_085_708_120_036_696_374, "4841e85d"),
            (
                ca("ca-istio-basic-auth-server", "istio-basic-auth-server"),
                13_658_194_722_992_822_335,
                "d0bbcb5b",
            ),
            (ca("ca-kubelet", "kubelet"), 17_398_446_912_095_203_543, "c1290a3b"),
            (ca("ca-metrics-server", "metrics-server"), 2_985_119_455_048_783_751, "d2fc2444"),
            (ca("ca-vpn", "vpn"), 8_841_088_168_203_278_571, "9561a305"),
            (
                SecretConfig::Ca {
                    name: "ca-seed".into(),
                    common_name: "kubernetes".into(),
                    validity: month,
                },
                16_473_382_070_636_541_080,
                "fc28a8dd",
            ),
            (key("service-account-key", false), 4_940_742_756_935_928_387, "c37a87f6"),
            (key("ssh-keypair", true), 9_435_271_927_526_497_399, "da4ceac1"),
            (encryption(""), 11_260_462_008_266_272_260, "80f230d7"),
            (encryption("secretbox"), 164_127_294_202_312_651, "d5d35e98"),
            (encryption("aesgcm"), 16_587_173_128_987_978_403, "0027f2b7"),
            (
                SecretConfig::StaticToken {
                    name: "kube-apiserver-static-token".into(),
                    tokens: [("health-check".to_owned(), health)].into(),
                },
                7_428_752_727_178_078_490,
                "53d619b2",
            ),
            (
                SecretConfig::BasicAuth {
                    name: "observability-ingress-users".into(),
                    format: "normal".into(),
                    username: "admin".into(),
                    password_length: 32,
                },
                17_463_910_968_763_968_337,
                "f27eb0bf",
            ),
            (bundle(&["AB"]), 3_337_423_463_666_361_577, "294e4b5f"),
            (bundle(&["AB", "C"]), 11_388_582_708_852_233_181, "dc1bd344"),
            (
                SecretConfig::KeyBundle {
                    name: "service-account-key-bundle".into(),
                    pems: vec![b"AB".to_vec()],
                },
                11_512_355_245_206_698_984,
                "a37c9286",
            ),
            (
                SecretConfig::Kubeconfig {
                    name: "generic-token-kubeconfig".into(),
                    context: "shoot--p--s".into(),
                    server: "kube-apiserver".into(),
                    ca: b"AB".to_vec(),
                    token_file: "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token".into(),
                    namespace: String::new(),
                },
                10_125_249_650_010_443_448,
                "71b5b45f",
            ),
        ];
        for (config, checksum, digits) in table {
            assert_eq!(config.checksum(), checksum, "{}", config.name());
            assert_eq!(suffix_of_config(config.checksum(), ""), digits, "{}", config.name());
        }
        let bare =
            HashedValue::Struct("CertificateSecretConfig", vec![("Name", HashedValue::text("config-name"))]);
        assert_eq!(suffix_of_config(hash(&bare), ""), "fd0a3f24");
    }

    #[test]
    fn every_change_of_a_certificate_changes_its_checksum() {
        let leaf = |change: &dyn Fn(&mut Vec<String>, &mut ServerNames)| {
            let (mut organizations, mut names) = (vec!["a".to_owned()], ServerNames::default());
            change(&mut organizations, &mut names);
            SecretConfig::Leaf {
                name: "server".into(),
                common_name: "server".into(),
                organizations,
                usage: KeyUsage::Server,
                names,
                validity: None,
                skip_ca: false,
                with_chain: false,
            }
            .checksum()
        };
        let all = [
            leaf(&|_, _| {}),
            leaf(&|organizations, _| organizations.push("b".to_owned())),
            leaf(&|organizations, names| names.dns.append(organizations)),
            leaf(&|_, names| names.dns.push("1.1.1.1".to_owned())),
            leaf(&|_, names| names.addresses.push([1, 1, 1, 1].into())),
        ];
        assert_eq!(leaf(&|_, _| {}), all[0]);
        assert_eq!(SortedSet::from(all).len(), 5, "{all:?}");
    }
}
