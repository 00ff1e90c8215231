//! At each start, the agent updates its trust to the garden's current CA, and removes the credentials that bootstrapped
//! its identity.

use crate::api::bootstrap_token;
use crate::api::certificates::{CERTIFICATE_SIGNING_REQUEST, CertificateSigningRequest};
use crate::api::core::{CONFIG_MAP, ConfigMap, SECRET, SERVICE_ACCOUNT};
use crate::api::meta::{Key, Resource};
use crate::api::rbac::CLUSTER_ROLE_BINDING;
use crate::base::error::chain;
use crate::base::redact;
use crate::format::{base64, view};
use crate::kube::connection::{AuthorizationSource, InlineOrFile, ServerTrust};
use crate::kube::{Client, Connection, DeleteParams, ErrorVerdict, Garden};
use crate::limits;
use crate::pki::Certificate;

use super::bootstrap::remove_bootstrap_secret;
use super::{Error, csr, secret};

/// The garden's CA, as its controllers publish it.
const CA_NAMESPACE: &str = "gardener-system-public";
const CA_NAME: &str = "kube-root-ca.crt";
const CA_KEY: &str = "ca.crt";

/// The client certificate of the connection. Errors: if it has none: the garden identifies
/// gardenlets only by certificate.
pub(crate) fn certificate(connection: &Connection) -> Result<Certificate, Error> {
    let remedy = "the garden needs a client certificate; a token alone is not enough";
    let place = || format!("the connection to {}", redact::url(&connection.server));
    let none = || Error::NoKubeconfig { place: place(), remedy };
    let chain =
        connection.identity.certificate.as_ref().ok_or_else(none)?.chain.load().map_err(|_| none())?;
    Ok(Certificate::parse_pem(std::str::from_utf8(&chain).map_err(|_| none())?)?)
}

/// The CAs that the garden publishes now, as PEM. Errors: if the garden does not publish one.
pub(crate) fn published(garden: &Garden) -> Result<String, Error> {
    let key = Key::new(CA_NAMESPACE, CA_NAME);
    let published = garden
        .get::<ConfigMap>(&CONFIG_MAP, &key)
        .map_err(Error::kube(format!("read the garden's CA from config map {key}")))?;
    let pem = published.data.get(CA_KEY).cloned().unwrap_or_default();
    if pem.is_empty() {
        return Err(Error::NoKubeconfig {
            place: format!("config map {key} of the garden"),
            remedy: "its key ca.crt must hold the garden's CA",
        });
    }
    Ok(pem)
}

/// As upstream: these two words disable the verification of the server.
fn is_off(pem: &str) -> bool {
    pem == "none" || pem == "null"
}

/// The connection with the published CAs in addition to its trusted ones; `None` if nothing changes. During a rotation,
/// some servers may still use certificates of the old CA, in whichever order certificates and publication change.
pub(crate) fn widened(connection: &Connection, published: &str) -> Option<Connection> {
    let trust = match &connection.trust {
        _ if is_off(published) => ServerTrust::Insecure,
        ServerTrust::Bundle(present) => {
            let present = present.load().map(|pem| certificates_of(&pem)).unwrap_or_default();
            let mut all = certificates_of(published.as_bytes());
            let besides: Vec<String> = present.iter().filter(|c| !all.contains(c)).cloned().collect();
            if !all.is_empty() && all.iter().all(|certificate| present.contains(certificate)) {
                return None;
            }
            all.extend(besides);
            all.truncate(limits::CA_CERTIFICATES_MAX);
            let text = if all.len() > 1 { all.concat() } else { published.to_owned() };
            ServerTrust::Bundle(InlineOrFile::inline(text))
        }
        _ => ServerTrust::Bundle(InlineOrFile::inline(published)),
    };
    (!same_trust(&connection.trust, &trust)).then(|| connection.clone().with_trust(trust))
}

/// The connection with only the published CAs; `None` if nothing changes.
pub(crate) fn narrowed(connection: &Connection, published: &str) -> Option<Connection> {
    let ServerTrust::Bundle(present) = &connection.trust else { return None };
    let is_more = present.load().is_ok_and(|pem| {
        let (present, published) = (certificates_of(&pem), certificates_of(published.as_bytes()));
        !published.is_empty() && present.iter().any(|certificate| !published.contains(certificate))
    });
    (is_more && !is_off(published)).then(|| connection.clone().with_ca(published))
}

/// The certificates of a PEM text in a canonical form.
fn certificates_of(pem: &[u8]) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = String::from_utf8_lossy(pem);
    let blocks =
        text.split_inclusive(END).filter_map(|block| block.find("-----BEGIN").map(|at| &block[at..]));
    blocks.filter(|block| block.ends_with(END)).map(|block| format!("{block}\n")).collect()
}

/// Whether two trusts are equal; a file with the same content is equal too.
pub(crate) fn same_trust(one: &ServerTrust, other: &ServerTrust) -> bool {
    match (one, other) {
        (ServerTrust::Bundle(old), ServerTrust::Bundle(new)) => {
            old.load().is_ok_and(|old| new.load().is_ok_and(|new| old == new))
        }
        (old, new) => old == new,
    }
}

/// Stores the trust of a connection. The rest of the Secret stays, because somebody may have changed
/// it since: address, certificate, and a pending request for renewal. Errors: if the Secret cannot
/// be read or written.
pub(crate) fn store_refreshed(seed: &Client, key: &Key, connection: &Connection) -> Result<(), Error> {
    let stored =
        secret::load(seed, key)?.map(|stored| stored.connection.with_trust(connection.trust.clone()));
    secret::store(seed, key, stored.as_ref().unwrap_or(connection), true)
}

/// A credential that was used to bootstrap a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Bootstrapper {
    Token { id: String },
    ServiceAccount { namespace: String, name: String },
}

fn bootstrapper(username: &str) -> Option<Bootstrapper> {
    if let Some(id) = username.strip_prefix("system:bootstrap:") {
        return Some(Bootstrapper::Token { id: id.to_owned() });
    }
    let (namespace, name) = username.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    Some(Bootstrapper::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// The credential that bootstrapped the current certificate, while the garden has the request for it.
///
/// The name of the request is a digest of the certificate's key. So the next start finds the request after a crash at
/// any point, without stored state. The garden deletes an approved request after about an hour.
fn bootstrapper_of(garden: &Garden, current: &Certificate) -> Result<Option<Bootstrapper>, Error> {
    let name = csr::name(&current.public_key, &current.subject);
    match garden.get::<CertificateSigningRequest>(&CERTIFICATE_SIGNING_REQUEST, &Key::cluster(&name)) {
        Ok(request) => Ok(bootstrapper(&request.spec.username)),
        // The authorizer forgets a deleted request, so 403 means the same as 404.
        Err(e) if matches!(e.verdict(), ErrorVerdict::NotFound | ErrorVerdict::Denied) => Ok(None),
        Err(e) => Err(Error::kube(format!("read certificate request {name}"))(e)),
    }
}

/// Removes the credentials that bootstrapped the current certificate, in the garden and in the seed. Also
/// removes `own_token`, the Secret whose name follows from that of the Seed: it needs no request for a
/// certificate to be found. Returns what the garden does not let the agent remove. Errors: if something
/// could not be removed.
pub(crate) fn remove_bootstrap_credentials(
    garden: &Garden,
    seed: &Client,
    current: &Certificate,
    bootstrap_secret: Option<&Key>,
    own_token: Option<&Key>,
) -> Result<Vec<String>, Error> {
    let who = bootstrapper_of(garden, current)?;
    if let (Some(who), Some(key)) = (&who, bootstrap_secret)
        && used_by(seed, key, who)?
    {
        remove_bootstrap_secret(seed, key)?;
    }
    let mut credentials = who.as_ref().map(objects).unwrap_or_default();
    if let Some(own) = own_token.filter(|own| credentials.iter().all(|(_, key)| key != *own)) {
        credentials.push((SECRET, own.clone()));
    }
    let mut left = Vec::new();
    for (resource, key) in credentials {
        match garden.delete(&resource, &key, &DeleteParams::default()) {
            // The token expires anyway, and the next start tries again: the seed can be registered nevertheless.
            Err(e) if e.is_denied() => {
                let (kind, key, err) = (&*resource.kind, key.to_string(), chain(&e));
                log::warn!(kind, key = key.as_str(), err = err.as_str(); "Bootstrap credentials stay in the garden");
                left.push(format!("{kind} {key} of the garden"));
            }
            Err(e) if !e.is_not_found() => {
                return Err(Error::kube(format!("delete {} {key} in the garden", resource.kind))(e));
            }
            _ => {}
        }
    }
    Ok(left)
}

/// Whether the Secret in the seed holds this credential, not a later one.
fn used_by(seed: &Client, key: &Key, who: &Bootstrapper) -> Result<bool, Error> {
    let Some(stored) = secret::load(seed, key)? else { return Ok(false) };
    let AuthorizationSource::Token(token) = &stored.connection.identity.credentials else { return Ok(false) };
    Ok(match who {
        Bootstrapper::Token { id } => token.expose().split_once('.').is_some_and(|(first, _)| first == id),
        Bootstrapper::ServiceAccount { namespace, name } => token_subject(token.expose())
            .is_some_and(|subject| subject == format!("system:serviceaccount:{namespace}:{name}")),
    })
}

/// The ServiceAccount that a token names. The API server checks the signature.
fn token_subject(token: &str) -> Option<String> {
    let claims = token.split('.').nth(1)?;
    let claims = view::json(&base64::decode_url(claims.as_bytes()).ok()?).ok()?;
    Some(claims["sub"].as_str()?.to_owned())
}

fn objects(who: &Bootstrapper) -> Vec<(Resource, Key)> {
    match who {
        Bootstrapper::Token { id } => vec![(SECRET, bootstrap_token::key(id))],
        Bootstrapper::ServiceAccount { namespace, name } => vec![
            (SERVICE_ACCOUNT, Key::new(namespace, name)),
            (
                CLUSTER_ROLE_BINDING,
                Key::cluster(format!("gardener.cloud:system:seed-bootstrapper:{namespace}:{name}")),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Options, kubeconfig};
    use crate::net::testing::{Act, TestServer};

    #[test]
    fn the_bootstrap_credential_is_identified() {
        let account = Bootstrapper::ServiceAccount { namespace: "garden".to_owned(), name: "g-x".to_owned() };
        let table = [
            ("system:bootstrap:abcdef", Some(Bootstrapper::Token { id: "abcdef".to_owned() })),
            ("system:serviceaccount:garden:g-x", Some(account.clone())),
            ("gardener.cloud:system:seed:edge-1", None),
            ("admin", None),
        ];
        for (username, expected) in table {
            assert_eq!(bootstrapper(username), expected, "{username}");
        }
        let names: Vec<String> =
            objects(&account).iter().map(|(r, key)| format!("{} {key}", r.kind)).collect();
        assert_eq!(
            names,
            [
                "ServiceAccount garden/g-x",
                "ClusterRoleBinding gardener.cloud:system:seed-bootstrapper:garden:g-x"
            ]
        );
    }

    #[test]
    fn a_secret_that_was_supplied_since_is_not_the_one_that_was_used() {
        let sub = |name: &str| format!(r#"{{"sub":"system:serviceaccount:garden:{name}"}}"#);
        let token = |name: &str| format!("e30.{}.c2ln", base64::encode_url(sub(name).as_bytes()));
        let account = Bootstrapper::ServiceAccount { namespace: "garden".to_owned(), name: "old".to_owned() };
        let bootstrap = Bootstrapper::Token { id: "abcdef".to_owned() };
        let table = [
            (&account, token("old"), true),
            (&account, token("new"), false),
            (&account, "abcdef.0123456789abcdef".to_owned(), false),
            (&bootstrap, "abcdef.0123456789abcdef".to_owned(), true),
            (&bootstrap, "fedcba.0123456789abcdef".to_owned(), false),
        ];
        for (who, token, expected) in table {
            let kubeconfig =
                kubeconfig::render(&Connection::new("https://g").with_token(token.clone())).unwrap();
            let data = base64::encode(kubeconfig.as_bytes());
            let secret = format!(r#"{{"metadata":{{"name":"s"}},"data":{{"kubeconfig":"{data}"}}}}"#);
            let server = TestServer::plain(move |_| Act::json(200, &secret));
            let seed = Client::new(Connection::new(server.url()), Options::default()).unwrap();
            assert_eq!(used_by(&seed, &Key::new("garden", "s"), who).unwrap(), expected, "{token}");
        }
    }

    #[test]
    fn a_token_names_its_account() {
        let token = |claims: &str| format!("e30.{}.c2lnbmF0dXJl", base64::encode_url(claims.as_bytes()));
        let own = token(r#"{"iss":"i","sub":"system:serviceaccount:garden:g-x?>"}"#);
        assert_eq!(token_subject(&own).unwrap(), "system:serviceaccount:garden:g-x?>");
        for other in ["abcdef.0123456789abcdef", "x", "a.!.c", &token("{}"), &token("no JSON")] {
            assert_eq!(token_subject(other), None, "{other}");
        }
    }

    fn pem(name: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn a_new_ca_is_trusted_besides_the_old_one() {
        let (old, new) = (pem("old"), pem("new"));
        let (both, swapped) = (format!("{new}{old}"), format!("{old}{new}"));
        // Trusted CAs, published CAs; widened trust, narrowed trust.
        let table = [
            (&old, &old, None, None),
            (&old, &new, Some(&both), Some(&new)),
            (&old, &both, Some(&both), None),
            (&both, &new, None, Some(&new)),
            (&both, &swapped, None, None),
            (&both, &old, None, Some(&old)),
        ];
        let connection = |ca: &String| Connection::new("https://garden").with_ca(ca.as_str());
        for (trusted, published, besides, alone) in table {
            let text = format!("{trusted}, published {published}");
            assert_eq!(widened(&connection(trusted), published), besides.map(connection), "{text}");
            assert_eq!(narrowed(&connection(trusted), published), alone.map(connection), "{text}");
        }
        let system = Connection::new("https://garden");
        assert_eq!(widened(&system, &new), Some(connection(&new)));
        assert_eq!(narrowed(&system, &new), None);
    }

    #[test]
    fn other_trust_leaves_the_stored_address_alone() {
        let stored = kubeconfig::render(&Connection::new("https://moved").with_ca(pem("old"))).unwrap();
        let data = base64::encode(stored.as_bytes());
        let secret = format!(r#"{{"metadata":{{"name":"s"}},"data":{{"kubeconfig":"{data}"}}}}"#);
        let server = TestServer::plain(move |_| Act::json(200, &secret));
        let seed = Client::new(Connection::new(server.url()), Options::default()).unwrap();
        let used = Connection::new("https://garden").with_ca(pem("new"));
        store_refreshed(&seed, &Key::new("garden", "s"), &used).unwrap();
        let written = server.seen().pop().unwrap();
        assert_eq!(written.method, "PATCH");
        let patch = view::json(written.body.as_bytes()).unwrap();
        let expected = kubeconfig::render(&Connection::new("https://moved").with_ca(pem("new"))).unwrap();
        assert_eq!(patch["data"]["kubeconfig"], base64::encode(expected.as_bytes()));
    }

    #[test]
    fn the_ca_can_be_switched_off_and_come_from_a_file() {
        let connection = Connection::new("https://garden").with_ca(pem("old"));
        assert_eq!(widened(&connection, "none").unwrap().trust, ServerTrust::Insecure);
        assert_eq!(narrowed(&connection, "none"), None);
        let path = std::env::temp_dir().join(format!("gardenlet-ca-{}", crate::base::random::hex(12)));
        let file = connection.with_trust(ServerTrust::Bundle(InlineOrFile::File(path.clone())));
        assert!(widened(&file, &pem("old")).is_some());
        std::fs::write(&path, pem("old") + "# another one\n" + &pem("other")).unwrap();
        assert_eq!(widened(&file, &pem("old")), None);
        std::fs::remove_file(path).unwrap();
    }
}
