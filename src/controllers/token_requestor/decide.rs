//! When a token is renewed. Pure.

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::format::time::parse_rfc3339;

/// Longer lifetimes are cut to this, so no renewal is planned later.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3_600);
/// No token is renewed sooner, however short its lifetime is: the clocks of two clusters may differ.
const RENEWAL_MIN: Duration = Duration::from_secs(60);
/// The random delay of a renewal, as a share of the time until it.
const JITTER: f64 = 0.05;

/// The decision about a Secret's token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RenewalPlan {
    /// It is valid for this long, according to its Secret.
    Keep(Duration),
    /// There is none, or its expiry is unknown.
    Request,
    /// Its renewal has been due since then.
    Renew(Timestamp),
}

/// Decides from the renewal time in the Secret, and whether it contains a token.
pub(super) fn plan(renew_at: &str, has_token: bool, now: Timestamp) -> RenewalPlan {
    let Some(renew_at) = parse_rfc3339(renew_at).ok().filter(|_| has_token) else {
        return RenewalPlan::Request;
    };
    match renew_at.since(now) {
        left if left > LIFETIME_MAX => RenewalPlan::Request,
        Duration::ZERO => RenewalPlan::Renew(renew_at),
        left => RenewalPlan::Keep(left),
    }
}

/// When to renew a token with this `lifetime`: after `percent` of it, plus a small delay chosen by `chance` (0 to 1).
pub(super) fn renewal(lifetime: Duration, percent: u32, chance: f64) -> Duration {
    let share = lifetime.min(LIFETIME_MAX) * percent / 100;
    (share + share.mul_f64(JITTER * chance)).max(RENEWAL_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_token_is_due() {
        let now = parse_rfc3339("2026-01-02T00:00:00Z").unwrap();
        let at = |text: &str| parse_rfc3339(text).unwrap();
        let table = [
            ("no time", "", true, RenewalPlan::Request),
            ("no token", "2026-01-02T08:00:00Z", false, RenewalPlan::Request),
            ("no time of day", "soon", true, RenewalPlan::Request),
            ("further away than any plan", "2026-01-03T00:00:01Z", true, RenewalPlan::Request),
            ("the furthest", "2026-01-03T00:00:00Z", true, RenewalPlan::Keep(LIFETIME_MAX)),
            ("a second is left", "2026-01-02T00:00:01Z", true, RenewalPlan::Keep(Duration::from_secs(1))),
            ("now", "2026-01-02T00:00:00Z", true, RenewalPlan::Renew(now)),
            ("long ago", "2025-12-01T00:00:00Z", true, RenewalPlan::Renew(at("2025-12-01T00:00:00Z"))),
        ];
        for (name, renew_at, has_token, expected) in table {
            assert_eq!(plan(renew_at, has_token, now), expected, "{name}");
        }
    }

    #[test]
    fn renewal_follows_after_a_share_of_the_lifetime() {
        let h = |hours: u64| Duration::from_secs(hours * 3_600);
        assert_eq!(renewal(h(10), 80, 0.0), h(8));
        assert_eq!(renewal(h(10), 80, 1.0), Duration::from_secs(8 * 3_600 + 1_440));
        assert_eq!(renewal(h(100), 80, 0.0), Duration::from_secs(69_120));
        assert_eq!(renewal(h(6), 50, 0.0), h(3));
        assert_eq!(renewal(h(6), 50, 1.0), Duration::from_secs(3 * 3_600 + 540));
        assert_eq!(renewal(Duration::ZERO, 80, 1.0), RENEWAL_MIN);
    }
}
