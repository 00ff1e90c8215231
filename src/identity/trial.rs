//! Whether the garden still accepts the certificate, and which problems an identity has before its use.
//!
//! "The server asked for credentials" is not helpful: this module checks certificate, CA and clock, so that it can name
//! the cause.

use std::time::Duration;

use crate::base::clock::{Mono, Timestamp};
use crate::format::duration::rough;
use crate::format::time::rfc3339;
use crate::kube::{self, Connection, ServerTrust};
use crate::limits;
use crate::net::{self, TlsError};
use crate::pki::Certificate;

/// The garden's response to the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentityTrial {
    /// The garden accepted it.
    Accepted,
    /// The garden refused it: 401, or a failed handshake.
    Refused,
    /// The garden's certificate is not trusted: its CA has changed.
    Untrusted,
    /// The garden did not respond.
    Unknown,
}

/// What a response of the garden, which may be an error, implies about the identity of the request.
pub(crate) fn judge(error: Option<&kube::Error>) -> IdentityTrial {
    match error {
        None => IdentityTrial::Accepted,
        Some(kube::Error::Api(failure)) => match failure.code {
            401 => IdentityTrial::Refused,
            403 | 404 => IdentityTrial::Accepted,
            _ => IdentityTrial::Unknown,
        },
        Some(kube::Error::Transport { source: net::Error::Tls(tls), .. }) => match tls {
            TlsError::Refused(_) => IdentityTrial::Refused,
            TlsError::UnknownIssuer | TlsError::BadSignature | TlsError::BadCertificate(_) => {
                IdentityTrial::Untrusted
            }
            _ => IdentityTrial::Unknown,
        },
        Some(_) => IdentityTrial::Unknown,
    }
}

/// This many refusals over this long a time rule out a server that is just starting.
const REFUSALS: u32 = 3;
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The trials so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityRefusals {
    count: u32,
    since: Mono,
    last: Option<IdentityTrial>,
}

impl IdentityRefusals {
    /// Records one more trial. An unreachable garden does not change the result.
    pub(crate) fn record(&mut self, trial: IdentityTrial, now: Mono) {
        match trial {
            IdentityTrial::Unknown => return,
            IdentityTrial::Accepted => self.count = 0,
            IdentityTrial::Refused | IdentityTrial::Untrusted => {
                if self.count == 0 {
                    self.since = now;
                }
                self.count = self.count.saturating_add(1);
            }
        }
        self.last = Some(trial);
    }

    /// Whether the last response was a refusal.
    pub(crate) const fn is_refused(&self) -> bool {
        self.count > 0
    }

    /// Whether the server is no longer trusted.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.is_refused() && self.last == Some(IdentityTrial::Untrusted)
    }

    /// Whether the identity is lost. An expired certificate needs no further evidence.
    pub(crate) fn is_final(&self, expired: bool, now: Mono) -> bool {
        let long = self.count >= REFUSALS && now.saturating_sub(self.since) >= REFUSED_FOR;
        self.is_refused() && (expired || long)
    }
}

/// The problem of an identity that is visible without a request.
pub(crate) fn examine(connection: &Connection, now: Timestamp) -> Option<String> {
    certificate_problem(connection, now).or_else(|| authority_problem(connection, now))
}

fn certificate_problem(connection: &Connection, now: Timestamp) -> Option<String> {
    let current = match super::cleanup::certificate(connection) {
        Ok(current) => current,
        Err(error) => {
            return Some(format!("the client certificate: {}", crate::base::error::chain(&error)));
        }
    };
    let what = format!("the client certificate of {}", current.subject.common_name);
    out_of_time(&what, &current, now)
}

fn out_of_time(what: &str, certificate: &Certificate, now: Timestamp) -> Option<String> {
    let (from, until) = (certificate.not_before, certificate.not_after);
    if until <= now {
        let ago = now.since(until);
        // No finer unit: the text should not change with each check.
        let ago = if ago < HOUR { String::new() } else { format!(", {} ago", rough(ago)) };
        return Some(format!("{what} expired at {}{ago}", rfc3339(until)));
    }
    (now < from).then(|| {
        let (from, now) = (rfc3339(from), &rfc3339(now)[..10]);
        format!("{what} is not valid before {from}; the clock shows {now}: is it behind?")
    })
}

const HOUR: Duration = Duration::from_secs(3_600);

/// One valid CA is enough.
fn authority_problem(connection: &Connection, now: Timestamp) -> Option<String> {
    let ServerTrust::Bundle(bundle) = &connection.trust else { return None };
    let pem = match bundle.load() {
        Ok(pem) => pem,
        Err(error) => return Some(format!("the CA of the garden cannot be read: {error}")),
    };
    let mut problem = None;
    for certificate in Certificate::parse_bundle(&pem).into_iter().take(limits::CA_CERTIFICATES_MAX) {
        let name = &certificate.subject.common_name;
        let found = if certificate.is_ca {
            out_of_time(&format!("the CA {name} of the garden"), &certificate, now)
        } else {
            Some(format!("the certificate {name} is configured as a CA of the garden but is not a CA"))
        };
        problem = Some(found?);
    }
    Some(problem.unwrap_or_else(|| "the CA of the garden: no PEM certificate in it".to_owned()))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};

    use super::*;
    use crate::kube::error::StatusFailure;

    fn made(name: &str, years: (i32, i32), is_ca: bool) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let pair = KeyPair::generate().unwrap();
        (params.self_signed(&pair).unwrap().pem(), pair.serialize_pem())
    }

    /// 2026-01-04T00:00:00Z.
    const NOW: Timestamp = Timestamp::from_unix(1_767_484_800);

    #[test]
    fn the_cause_has_a_name() {
        let ca = |name: &str, years, is_ca| made(name, years, is_ca).0;
        let good = || ca("root", (2020, 2040), true);
        let with = |years, ca: String| {
            let (chain, key) = made("seed-1", years, false);
            Connection::new("https://g").with_certificate(chain, key).with_ca(ca)
        };
        let table = [
            (with((2025, 2027), good()), None),
            (
                with((2025, 2026), good()),
                Some("the client certificate of seed-1 expired at 2026-01-01T00:00:00Z, 3 days ago"),
            ),
            (
                with((2027, 2028), good()),
                Some(
                    "the client certificate of seed-1 is not valid before 2027-01-01T00:00:00Z; the clock shows 2026-01-04: \
                     is it behind?",
                ),
            ),
            (
                with((2025, 2027), ca("old", (2020, 2025), true)),
                Some("the CA old of the garden expired at 2025-01-01T00:00:00Z, 368 days ago"),
            ),
            (with((2025, 2027), ca("old", (2020, 2025), true) + &good()), None),
            (
                with((2025, 2027), ca("leaf", (2020, 2040), false)),
                Some("the certificate leaf is configured as a CA of the garden but is not a CA"),
            ),
            (with((2025, 2027), "junk".to_owned()), Some("the CA of the garden: no PEM certificate in it")),
            (
                Connection::new("https://g").with_token("t"),
                Some(
                    "the client certificate: no kubeconfig in the connection to https://g: the garden needs a client \
                      certificate; a token alone is not enough",
                ),
            ),
        ];
        for (connection, expected) in table {
            assert_eq!(examine(&connection, NOW).as_deref(), expected);
        }
        let broken = Connection::new("https://g").with_certificate("junk", "junk");
        assert!(examine(&broken, NOW).unwrap().starts_with("the client certificate: "));
        // Less than an hour is not shown, because it would change all the time.
        let soon = examine(&with((2025, 2026), good()), Timestamp::from_unix(1_767_225_600 + 60)).unwrap();
        assert!(soon.ends_with("expired at 2026-01-01T00:00:00Z"), "{soon}");
    }

    fn answered(code: u16) -> Result<(), kube::Error> {
        Err(kube::Error::Api(Box::new(StatusFailure { code, ..StatusFailure::default() })))
    }

    fn tls(error: TlsError) -> Result<(), kube::Error> {
        Err(kube::Error::Transport { request: String::new(), source: net::Error::Tls(error) })
    }

    #[test]
    fn what_an_answer_says() {
        let table = [
            (Ok(()), IdentityTrial::Accepted),
            (answered(401), IdentityTrial::Refused),
            (answered(403), IdentityTrial::Accepted),
            (answered(503), IdentityTrial::Unknown),
            (tls(TlsError::Refused("CertificateExpired".to_owned())), IdentityTrial::Refused),
            (tls(TlsError::UnknownIssuer), IdentityTrial::Untrusted),
            (tls(TlsError::Expired { now_s: 2, not_after_s: 1 }), IdentityTrial::Unknown),
            (Err(kube::Error::Stopped), IdentityTrial::Unknown),
        ];
        for (answer, expected) in table {
            assert_eq!(judge(answer.as_ref().err()), expected, "{answer:?}");
        }
    }

    type Trials = &'static [(IdentityTrial, u64)];

    #[test]
    fn an_identity_is_lost_after_some_refusals() {
        use IdentityTrial::{Accepted, Refused, Unknown, Untrusted};
        // Trials with their seconds; whether the certificate has expired; whether the identity is lost.
        let table: [(Trials, bool, bool); 9] = [
            (&[], true, false),
            (&[(Refused, 0)], false, false),
            (&[(Refused, 0)], true, true),
            (&[(Unknown, 0), (Unknown, 60)], true, false),
            (&[(Refused, 0), (Refused, 1), (Refused, 2)], false, false),
            (&[(Refused, 0), (Refused, 5), (Unknown, 9), (Refused, 10)], false, true),
            (&[(Refused, 0), (Refused, 60)], false, false),
            (&[(Refused, 0), (Refused, 10), (Accepted, 11), (Refused, 20)], false, false),
            (&[(Untrusted, 0), (Untrusted, 5), (Untrusted, 10)], false, true),
        ];
        for (trials, expired, lost) in table {
            let (mut refusals, mut now) = (IdentityRefusals::default(), Mono::ZERO);
            for (trial, s) in trials {
                now = Duration::from_secs(*s);
                refusals.record(*trial, now);
            }
            assert_eq!(refusals.is_final(expired, now), lost, "{trials:?} {expired}");
        }
    }
}
