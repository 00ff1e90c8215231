//! The facts about a Shoot that operations need, read once from the Shoot, its Seed and the garden's domains. Pure.
//!
//! Source: `pkg/gardenlet/operation/shoot`, `pkg/utils/gardener/dns.go`.

use serde_json::Value;

use crate::api::gardener::{has_ssh_access, has_workers};
use crate::api::meta::{annotation, text};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::format::base64;
use crate::format::cidr::Cidr;
use crate::format::time::parse_rfc3339;

use super::pools::{self, Pool};

/// The DNS provider that writes no records.
pub(crate) const UNMANAGED: &str = "unmanaged";

/// The annotation with the issuer of a Shoot's ServiceAccount tokens, if it is not its API server.
const MANAGED_ISSUER: &str = "authentication.gardener.cloud/issuer";

/// The sources of a [`ShootView`].
#[derive(Clone, Copy, Debug)]
pub struct ShootViewSources<'a> {
    /// The Shoot in the garden.
    pub shoot: &'a Value,
    /// Its Seed.
    pub seed: &'a Value,
    /// Name of its project.
    pub project: &'a str,
    /// The identity of the garden's cluster: ConfigMap `kube-system/cluster-identity`.
    pub garden: &'a str,
    /// The Secrets of the garden in namespace `seed-<seed>`. Only those with the role of a domain are used.
    pub secrets: &'a [Value],
}

/// A domain with its DNS provider.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dns {
    /// The domain of the Shoot.
    pub(crate) domain: String,
    /// The type of DNSRecords: [`UNMANAGED`] for none. Empty if unknown.
    pub(crate) provider: String,
    /// Its zone; may be empty.
    pub(crate) zone: String,
    /// A reference to the credentials: `apiVersion`, `kind`, `namespace`, `name`. Null if there is none.
    pub(crate) credentials: Value,
}

impl Dns {
    /// Whether DNSRecords are written for it.
    pub(crate) fn is_managed(&self) -> bool {
        !self.provider.is_empty() && self.provider != UNMANAGED && !self.domain.ends_with(".nip.io")
    }

    /// The name of the API server.
    pub fn server(&self) -> String {
        format!("api.{}", self.domain)
    }
}

/// The phase of a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum RotationPhase {
    #[default]
    None,
    /// Old and new credentials are distributed.
    Preparing,
    /// The same; workers follow later.
    PreparingWithoutWorkersRollout,
    WaitingForWorkersRollout,
    /// Old and new credentials are valid.
    Prepared,
    /// The old credentials are being removed.
    Completing,
    /// The old credentials are removed.
    Completed,
}

impl RotationPhase {
    /// The value in the status; empty if there was no rotation.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Preparing => "Preparing",
            Self::PreparingWithoutWorkersRollout => "PreparingWithoutWorkersRollout",
            Self::WaitingForWorkersRollout => "WaitingForWorkersRollout",
            Self::Prepared => "Prepared",
            Self::Completing => "Completing",
            Self::Completed => "Completed",
        }
    }

    fn parse(text: &str) -> Self {
        const ALL: [RotationPhase; 6] = [
            RotationPhase::Preparing,
            RotationPhase::PreparingWithoutWorkersRollout,
            RotationPhase::WaitingForWorkersRollout,
            RotationPhase::Prepared,
            RotationPhase::Completing,
            RotationPhase::Completed,
        ];
        ALL.into_iter().find(|phase| phase.as_str() == text).unwrap_or_default()
    }
}

/// The rotation of one kind of credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rotated {
    pub(crate) phase: RotationPhase,
    /// When it was last started.
    pub(crate) initiated: Option<Timestamp>,
    /// Whether the status has an entry.
    pub(crate) is_known: bool,
}

impl Rotated {
    fn read(entry: &Value) -> Self {
        Self {
            phase: RotationPhase::parse(text(&entry["phase"])),
            initiated: parse_rfc3339(text(&entry["lastInitiationTime"])).ok(),
            is_known: entry.is_object(),
        }
    }
}

/// Field `status.credentials.rotation` of the Shoot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rotations {
    /// Field `certificateAuthorities` of this section.
    pub(crate) authorities: Rotated,
    /// Field `serviceAccountKey` of this section.
    pub(crate) service_account_key: Rotated,
    /// Field `etcdEncryptionKey` of this section.
    pub(crate) encryption_key: Rotated,
    /// Field `sshKeypair` of this section. It has no phases.
    pub(crate) ssh_keypair: Rotated,
}

/// A Shoot on its Seed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShootView {
    /// Namespace in the garden.
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The project that the namespace belongs to.
    pub(crate) project: String,
    /// Field `metadata.uid` of the Shoot.
    pub(crate) uid: String,
    /// `status.uid`, or the metadata's uid while it is empty. It survives a migration of the Shoot's object.
    pub(crate) status_uid: String,
    /// Name of the control plane's namespace in the seed: `shoot--<project>--<name>`.
    pub technical_id: String,
    /// `status.clusterIdentity`, or its future value.
    pub(crate) cluster_identity: String,
    /// Field `spec.provider.type` of the Shoot.
    pub(crate) provider: String,
    /// Field `spec.region` of the Shoot.
    pub(crate) region: String,
    /// Field `spec.kubernetes.version` of the Shoot.
    pub(crate) kubernetes_version: String,
    /// Whether it has pools of workers.
    pub(crate) has_workers: bool,
    pub(crate) pools: Vec<Pool>,
    /// Whether a key opens its nodes by SSH (`spec.provider.workersSettings.sshAccess`).
    pub(crate) has_ssh: bool,
    /// CIDR ranges of Services: those of the spec, then others in the status.
    pub(crate) services: Vec<String>,
    /// CIDR ranges of pods, in the same order; empty without workers.
    pub(crate) pods: Vec<String>,
    /// CIDR ranges of nodes. They may be unknown until an extension has made the infrastructure.
    pub(crate) nodes: Vec<String>,
    /// CIDR ranges from which the nodes reach other networks (`status.networking.egressCIDRs`).
    pub(crate) egress: Vec<String>,
    /// Field `spec.hibernation.enabled` of the Shoot.
    pub(crate) wants_hibernation: bool,
    /// It is hibernated, or is to be.
    pub(crate) sleeps: bool,
    /// Field `status.hibernated` of the Shoot.
    pub(crate) is_hibernated: bool,
    /// `spec.controlPlane.highAvailability.failureTolerance.type`: `node`, `zone`, or empty.
    pub(crate) failure_tolerance: String,
    /// The seed's domain, which contains a name for each Shoot.
    pub internal: Dns,
    /// The domain of the Shoot's owner.
    pub(crate) external: Option<Dns>,
    /// `spec.provider.type` of the Seed.
    pub(crate) seed_provider: String,
    /// Name of the Seed.
    pub(crate) seed: String,
    /// `spec.ingress.domain` of the Seed; may be empty.
    pub(crate) ingress_domain: String,
    /// The garden must publish the public keys of ServiceAccounts (annotation `authentication.gardener.cloud/issuer`).
    pub(crate) wants_managed_issuer: bool,
    /// The garden's host for the keys; empty if it has none.
    pub(crate) issuer_host: String,
    /// `spec.provider.zones` of the Seed.
    pub(crate) zones: Vec<String>,
    /// The Seed's `spec.backup`, unchanged; null for none.
    pub(crate) backup: Value,
    /// `spec.maintenance.timeWindow.begin`, such as `120000+0000`.
    pub(crate) maintenance_begin: String,
    /// Field `spec.maintenance.timeWindow.end` of the Shoot.
    pub(crate) maintenance_end: String,
    pub(crate) rotations: Rotations,
    /// `spec.extensions`, unchanged.
    pub(crate) extensions: Value,
    /// `spec.kubernetes`, unchanged.
    pub kubernetes: Value,
    /// Resources that are encrypted in etcd besides Secrets (`spec.kubernetes.kubeAPIServer.encryptionConfig.resources`).
    pub encrypted: Vec<String>,
    /// The resources that were last encrypted (`status.credentials.encryptionAtRest.resources`).
    pub encrypted_before: Vec<String>,
    /// `spec.resources`: names, and references to ConfigMaps and Secrets of the garden.
    pub(crate) resources: Value,
}

impl ShootView {
    /// Reads the facts. Missing fields are empty: the garden's API server does not store a Shoot
    /// without the essential ones.
    pub fn new(sources: ShootViewSources<'_>) -> Self {
        let ShootViewSources { shoot, seed, project, garden, secrets } = sources;
        let (metadata, spec, status) = (&shoot["metadata"], &shoot["spec"], &shoot["status"]);
        let own = |value: &Value| text(value).to_owned();
        let or = |first: &Value, second: String| {
            Some(text(first)).filter(|first| !first.is_empty()).map_or(second, str::to_owned)
        };
        let (name, uid) = (own(&metadata["name"]), own(&metadata["uid"]));
        let status_uid = or(&status["uid"], uid.clone());
        let technical_id = or(&status["technicalID"], format!("shoot--{project}--{name}"));
        let window = &spec["maintenance"]["timeWindow"];
        let rotation = &status["credentials"]["rotation"];
        let kubernetes = &spec["kubernetes"];
        let pools = pools::read(shoot);
        let internal = internal(&name, project, &seed["spec"]["dns"]["internal"], secrets);
        Self {
            namespace: own(&metadata["namespace"]),
            project: project.to_owned(),
            cluster_identity: or(&status["clusterIdentity"], format!("{technical_id}-{status_uid}-{garden}")),
            provider: own(&spec["provider"]["type"]),
            region: own(&spec["region"]),
            kubernetes_version: own(&kubernetes["version"]),
            has_workers: !pools.is_empty(),
            has_ssh: has_ssh_access(shoot),
            services: ranges(spec, status, "services"),
            pods: ranges(spec, status, "pods"),
            nodes: ranges(spec, status, "nodes"),
            egress: texts(&status["networking"]["egressCIDRs"]),
            wants_hibernation: spec["hibernation"]["enabled"] == true,
            sleeps: sleeps(shoot),
            is_hibernated: status["hibernated"] == true,
            failure_tolerance: own(&spec["controlPlane"]["highAvailability"]["failureTolerance"]["type"]),
            external: external(spec, &seed["spec"]["dns"]["defaults"], secrets, text(&metadata["namespace"])),
            internal,
            seed_provider: own(&seed["spec"]["provider"]["type"]),
            seed: own(&seed["metadata"]["name"]),
            ingress_domain: own(&seed["spec"]["ingress"]["domain"]),
            wants_managed_issuer: annotation(shoot, MANAGED_ISSUER) == "managed",
            issuer_host: issuer_host(secrets),
            zones: texts(&seed["spec"]["provider"]["zones"]),
            backup: seed["spec"]["backup"].clone(),
            maintenance_begin: own(&window["begin"]),
            maintenance_end: own(&window["end"]),
            rotations: Rotations {
                authorities: followed(Rotated::read(&rotation["certificateAuthorities"]), shoot),
                service_account_key: Rotated::read(&rotation["serviceAccountKey"]),
                encryption_key: Rotated::read(&rotation["etcdEncryptionKey"]),
                ssh_keypair: Rotated::read(&rotation["sshKeypair"]),
            },
            extensions: spec["extensions"].clone(),
            kubernetes: kubernetes.clone(),
            encrypted_before: texts(&status["credentials"]["encryptionAtRest"]["resources"]),
            encrypted: texts(&kubernetes["kubeAPIServer"]["encryptionConfig"]["resources"]),
            resources: spec["resources"].clone(),
            pools,
            name,
            uid,
            status_uid,
            technical_id,
        }
    }

    /// Whether both domains have records (upstream's "SNI enabled").
    pub(crate) fn uses_dns(&self) -> bool {
        self.internal.is_managed() && self.external.as_ref().is_some_and(Dns::is_managed)
    }

    /// Whether no domain of the Shoot has records, so that its names cannot be resolved.
    pub(crate) fn is_without_dns(&self) -> bool {
        !self.internal.is_managed() && !self.external.as_ref().is_some_and(Dns::is_managed)
    }

    /// The types of its DNSRecords.
    pub(crate) fn dns_types(&self) -> Vec<&str> {
        let all = std::iter::once(&self.internal).chain(&self.external);
        let mut types: Vec<&str> =
            all.filter(|dns| dns.is_managed()).map(|dns| dns.provider.as_str()).collect();
        types.dedup();
        types
    }

    /// The first addresses of its Service ranges, at which its API server answers within the Shoot.
    pub(crate) fn server_addresses(&self) -> Vec<std::net::IpAddr> {
        self.services.iter().filter_map(|range| Cidr::parse(range)).map(|range| range.nth(1)).collect()
    }

    /// The issuer of tokens whose public keys the garden publishes, if the Shoot requests it and the garden
    /// has a host for it.
    pub(crate) fn managed_issuer(&self) -> Option<String> {
        let Self { issuer_host, project, uid, .. } = self;
        let is_managed = self.wants_managed_issuer && !issuer_host.is_empty();
        is_managed.then(|| format!("https://{issuer_host}/projects/{project}/shoots/{uid}/issuer"))
    }

    /// The owner's domain, if no provider is known for its records.
    pub(crate) fn incomplete_domain(&self) -> Option<&str> {
        self.external.as_ref().filter(|dns| dns.provider.is_empty()).map(|dns| dns.domain.as_str())
    }

    /// The provider of the key that encrypts objects in etcd.
    pub(crate) fn encryption_provider(&self) -> &str {
        let provider = text(&self.kubernetes["kubeAPIServer"]["encryptionConfig"]["provider"]["type"]);
        if provider.is_empty() { "aescbc" } else { provider }
    }
}

/// The tenth addresses of ranges of Services, at which the DNS servers of a Shoot answer.
pub(crate) fn dns_addresses(services: &[String]) -> Vec<String> {
    const PLACE: u32 = 10;
    let ranges = services.iter().filter_map(|range| Cidr::parse(range));
    ranges.map(|range| range.nth(PLACE).to_string()).collect()
}

/// The rotation of CAs. Nodes stay while a Shoot is hibernated or moves, and cannot follow: their old CA stays trusted until a
/// reconciliation begins and ends awake.
fn followed(mut authorities: Rotated, shoot: &Value) -> Rotated {
    let is_out_of_reach = sleeps(shoot) || moves(shoot);
    if has_workers(shoot) && is_out_of_reach && authorities.phase == RotationPhase::Completing {
        authorities.phase = RotationPhase::Prepared;
    }
    authorities
}

fn sleeps(shoot: &Value) -> bool {
    shoot["spec"]["hibernation"]["enabled"] == true || shoot["status"]["hibernated"] == true
}

/// Whether its operation is part of a move.
fn moves(shoot: &Value) -> bool {
    ["Migrate", "Restore"].contains(&text(&shoot["status"]["lastOperation"]["type"]))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|item| text(item).to_owned()).collect()
}

fn ranges(spec: &Value, status: &Value, network: &str) -> Vec<String> {
    let mut all: Vec<String> = spec["networking"][network].as_str().map(str::to_owned).into_iter().collect();
    for range in texts(&status["networking"][network]) {
        if !all.contains(&range) {
            all.push(range);
        }
    }
    all
}

/// A domain of the garden, from an entry of the Seed's `spec.dns`.
fn of_seed(entry: &Value) -> Option<Dns> {
    let domain = entry["domain"].as_str()?.to_owned();
    let provider = text(&entry["type"]).to_owned();
    let zone = text(&entry["zone"]).to_owned();
    Some(Dns { domain, provider, zone, credentials: entry["credentialsRef"].clone() })
}

/// Domains of the garden, from Secrets with one role.
fn of_secrets<'a>(secrets: &'a [Value], role: &'a str) -> impl Iterator<Item = Dns> + 'a {
    let has_role = move |secret: &&Value| text(&secret["metadata"]["labels"]["gardener.cloud/role"]) == role;
    secrets.iter().filter(has_role).map(|secret| {
        let read = |key: &str| annotation(secret, &format!("dns.gardener.cloud/{key}")).to_owned();
        let metadata = &secret["metadata"];
        let credentials = json!({"apiVersion": "v1", "kind": "Secret",
            "namespace": metadata["namespace"], "name": metadata["name"]});
        Dns { domain: read("domain"), provider: read("provider"), zone: read("zone"), credentials }
    })
}

/// The Secret with the host is one of those that the garden keeps for each seed.
fn issuer_host(secrets: &[Value]) -> String {
    let is_it = |secret: &&Value| {
        text(&secret["metadata"]["labels"]["gardener.cloud/role"]) == "shoot-service-account-issuer"
    };
    let host = secrets.iter().find(is_it).map_or("", |secret| text(&secret["data"]["hostname"]));
    let host = base64::decode(host.as_bytes()).ok().and_then(|host| String::from_utf8(host).ok());
    host.unwrap_or_default().trim().to_owned()
}

fn internal(name: &str, project: &str, of: &Value, secrets: &[Value]) -> Dns {
    let found = of_seed(of).or_else(|| of_secrets(secrets, "internal-domain").next());
    let mut dns = found.unwrap_or_default();
    let infix = if dns.domain.contains("internal") { "" } else { "internal." };
    dns.domain = format!("{name}.{project}.{infix}{}", dns.domain);
    dns
}

/// The owner's domain: below one of the garden's default domains, or with its own primary provider.
fn external(spec: &Value, defaults: &Value, secrets: &[Value], namespace: &str) -> Option<Dns> {
    let domain = spec["dns"]["domain"].as_str()?;
    let seed = defaults.as_array().into_iter().flatten().filter_map(of_seed);
    let mut all = seed.chain(of_secrets(secrets, "default-domain"));
    let suits =
        |default: &Dns| domain.strip_suffix(default.domain.as_str()).is_some_and(|rest| rest.ends_with('.'));
    if let Some(default) = all.find(suits) {
        return Some(Dns { domain: domain.to_owned(), ..default });
    }
    let providers = spec["dns"]["providers"].as_array().into_iter().flatten();
    let primary = providers
        .into_iter()
        .find(|provider| provider["primary"] == true || text(&provider["type"]) == UNMANAGED);
    let Some(primary) = primary else { return Some(Dns { domain: domain.to_owned(), ..Dns::default() }) };
    let zones = texts(&primary["zones"]["include"]);
    let mut credentials = primary["credentialsRef"].clone();
    if let Some(secret) = primary["secretName"].as_str()
        && credentials.is_null()
    {
        credentials = json!({"apiVersion": "v1", "kind": "Secret", "name": secret});
    }
    if credentials.is_object() && credentials["namespace"].is_null() {
        credentials["namespace"] = json!(namespace);
    }
    Some(Dns {
        domain: domain.to_owned(),
        provider: text(&primary["type"]).to_owned(),
        zone: if let [zone] = zones.as_slice() { zone.clone() } else { String::new() },
        credentials,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Shoots and Seeds as a Go gardenlet left them: with managed DNS, and with none.
    pub(crate) fn golden(name: &str) -> ShootView {
        let all: Value =
            serde_json::from_str(include_str!("../../tests/fixtures/golden-shoots.json")).unwrap();
        let Value::Object(one) = &all[name] else { panic!("there is no Shoot {name}") };
        ShootView::new(ShootViewSources {
            shoot: &one["shoot"],
            seed: &one["seed"],
            project: "p",
            garden: "lab-garden",
            secrets: &[],
        })
    }

    #[test]
    fn golden_shoots_are_read() {
        let s1 = golden("s1");
        assert_eq!((s1.namespace.as_str(), s1.technical_id.as_str()), ("garden-p", "shoot--p--s1"));
        assert_eq!(s1.status_uid, "2c1a24c1-6b4e-4ce6-ae6d-43bbc2085e59");
        assert_eq!(s1.cluster_identity, format!("shoot--p--s1-{}-lab-garden", s1.status_uid));
        assert_eq!(
            (s1.internal.server(), s1.internal.is_managed()),
            ("api.s1.p.internal.lab.local".into(), true)
        );
        let external = s1.external.as_ref().unwrap();
        assert_eq!(
            (external.server(), external.provider.as_str()),
            ("api.s1.p.shoots.lab.local".into(), "lab")
        );
        assert!(s1.uses_dns() && !s1.is_without_dns());
        assert_eq!(s1.dns_types(), ["lab"]);
        assert_eq!(s1.services, ["100.64.0.0/13"]);
        assert_eq!(s1.server_addresses(), [std::net::IpAddr::from([100, 64, 0, 1])]);
        assert_eq!(
            (s1.provider.as_str(), s1.region.as_str(), s1.kubernetes_version.as_str()),
            ("lab", "lab-1", "1.34.3")
        );
        assert_eq!(
            (s1.maintenance_begin.as_str(), s1.maintenance_end.as_str()),
            ("170000+0000", "180000+0000")
        );
        assert!(!s1.wants_hibernation && s1.failure_tolerance.is_empty());
        assert!(s1.backup.is_null());
        assert_eq!(s1.encryption_provider(), "aescbc");
        assert_eq!(s1.rotations, Rotations::default());

        let s2 = golden("s2");
        assert_eq!(
            (s2.internal.server(), s2.internal.is_managed()),
            ("api.s2.p.internal.lab.local".into(), false)
        );
        assert_eq!(s2.external, None);
        assert!(s2.is_without_dns() && !s2.uses_dns());
        assert_eq!(s2.dns_types(), [""; 0]);
        assert_eq!((s2.seed.as_str(), s2.zones.as_slice()), ("lab2", ["a".to_owned()].as_slice()));

        let prepared = golden("s1-prepared").rotations;
        let begun = parse_rfc3339("2026-11-22T13:11:29Z").unwrap();
        let at = |phase| Rotated { phase, initiated: Some(begun), is_known: true };
        assert_eq!(prepared.authorities, at(RotationPhase::Prepared));
        assert_eq!(prepared.service_account_key, at(RotationPhase::Prepared));
        assert_eq!(prepared.encryption_key, at(RotationPhase::Completed));
    }

    /// Without nodes, nobody must follow.
    #[test]
    fn old_cas_of_nodes_stay_trusted_while_a_shoot_sleeps_or_moves() {
        let of = |workers: &Value, operation: &str, sleeps: bool| {
            let shoot = json!({"spec": {"provider": {"workers": workers}, "hibernation": {"enabled": sleeps}},
                "status": {"lastOperation": {"type": operation}}});
            let completing = Rotated { phase: RotationPhase::Completing, ..Rotated::default() };
            followed(completing, &shoot).phase
        };
        let (none, some) = (json!([]), json!([{"name": "a"}]));
        for (operation, sleeps, expected) in [
            ("Reconcile", false, RotationPhase::Completing),
            ("Reconcile", true, RotationPhase::Prepared),
            ("Migrate", false, RotationPhase::Prepared),
            ("Restore", false, RotationPhase::Prepared),
        ] {
            assert_eq!(of(&some, operation, sleeps), expected, "{operation} {sleeps}");
            assert_eq!(of(&none, operation, sleeps), RotationPhase::Completing);
        }
    }

    #[test]
    fn the_garden_has_a_host_for_keys() {
        let secret = |host: &str| {
            json!({"metadata": {"labels": {"gardener.cloud/role": "shoot-service-account-issuer"}},
                "data": {"hostname": base64::encode(host.as_bytes())}})
        };
        let issuer = |annotation: &str, host: &str| {
            let shoot =
                json!({"metadata": {"name": "s", "uid": "u", "annotations": {MANAGED_ISSUER: annotation}}});
            let secrets = [secret(host)];
            let seed = json!({});
            ShootView::new(ShootViewSources {
                shoot: &shoot,
                seed: &seed,
                project: "p",
                garden: "g",
                secrets: &secrets,
            })
            .managed_issuer()
        };
        let expected = Some("https://keys.example.org/projects/p/shoots/u/issuer".to_owned());
        assert_eq!(issuer("managed", "keys.example.org"), expected);
        assert_eq!((issuer("managed", " "), issuer("", "keys.example.org")), (None, None));
    }

    #[test]
    fn domains_come_from_the_seed_the_garden_and_the_owner() {
        let secret = |role: &str, name: &str, domain: &str| {
            json!({"metadata": {"namespace": "seed-x", "name": name, "labels": {"gardener.cloud/role": role},
                "annotations": {"dns.gardener.cloud/provider": "aws", "dns.gardener.cloud/domain": domain,
                    "dns.gardener.cloud/zone": "z"}}})
        };
        let secrets = [
            secret("internal-domain", "i", "edge.example.org"),
            secret("default-domain", "d", "example.com"),
        ];
        let view = |dns: Value, seed: Value| {
            let shoot =
                json!({"metadata": {"name": "s", "namespace": "garden-p", "uid": "u"}, "spec": {"dns": dns}});
            let seed = json!({"spec": {"dns": seed}});
            ShootView::new(ShootViewSources {
                shoot: &shoot,
                seed: &seed,
                project: "p",
                garden: "g",
                secrets: &secrets,
            })
        };
        let plain = view(json!({}), json!({}));
        assert_eq!(plain.internal.domain, "s.p.internal.edge.example.org");
        assert_eq!((plain.internal.zone.as_str(), text(&plain.internal.credentials["name"])), ("z", "i"));
        assert_eq!(
            (plain.technical_id.as_str(), plain.cluster_identity.as_str()),
            ("shoot--p--s", "shoot--p--s-u-g")
        );

        let incomplete = |dns: Value| view(dns, json!({})).incomplete_domain().map(str::to_owned);
        assert_eq!(incomplete(json!({"domain": "a.b"})).as_deref(), Some("a.b"));
        assert_eq!(incomplete(json!({"domain": "a.b", "providers": [{"type": "unmanaged"}]})), None);
        assert_eq!(incomplete(json!({})), None);

        let external = |dns: Value| {
            let seed = json!({"defaults": [{"domain": "edge.net", "type": "lab"}]});
            let dns = view(dns, seed).external.unwrap();
            (
                dns.provider.clone(),
                text(&dns.credentials["namespace"]).to_owned(),
                dns.zone.clone(),
                dns.is_managed(),
            )
        };
        let table = [
            (json!({"domain": "a.example.com"}), ("aws", "seed-x", "z", true)),
            (json!({"domain": "a.edge.net"}), ("lab", "", "", true)),
            (json!({"domain": "notedge.net"}), ("", "", "", false)),
            (json!({"domain": "a.b", "providers": [{"type": "unmanaged"}]}), ("unmanaged", "", "", false)),
            (
                json!({"domain": "a.b", "providers": [{"type": "q"},
                    {"type": "r", "primary": true, "secretName": "s", "zones": {"include": ["y"]}}]}),
                ("r", "garden-p", "y", true),
            ),
            (
                json!({"domain": "a.nip.io", "providers": [{"type": "r", "primary": true}]}),
                ("r", "", "", false),
            ),
        ];
        for (dns, (provider, namespace, zone, managed)) in table {
            let expected = (provider.to_owned(), namespace.to_owned(), zone.to_owned(), managed);
            assert_eq!(external(dns.clone()), expected, "{dns}");
        }
    }

    #[test]
    fn an_empty_shoot_is_no_panic() {
        let view = ShootView::new(ShootViewSources {
            shoot: &Value::Null,
            seed: &json!([]),
            project: "",
            garden: "",
            secrets: &[],
        });
        assert_eq!(view.services, [""; 0]);
        assert!(view.is_without_dns());
    }
}
