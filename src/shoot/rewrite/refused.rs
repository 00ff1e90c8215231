//! Explains what could not be rewritten, for the owner of the Shoot. Pure.

use std::fmt::Write as _;

use crate::api::meta::{Key, Resource};
use crate::base::cut::cut;
use crate::base::error::chain;
use crate::flow::Failed;
use crate::kube::Error;
use crate::limits;

/// Objects and kinds with their reasons. A few are named, the others are counted.
#[derive(Debug, Default)]
pub(super) struct Refused {
    named: Vec<String>,
    count: usize,
    /// Some of them were refused by a webhook, or a policy.
    by_webhook: bool,
    /// The number of consecutive objects that the server itself refused.
    in_a_row: usize,
}

/// After this many consecutive refusals, the objects are not the cause.
const IN_A_ROW_MAX: usize = 20;
const MESSAGE_CHARS_MAX: usize = 300;

impl Refused {
    /// With problems that are known from the start.
    pub(super) fn new(troubles: Vec<String>) -> Self {
        let mut refused = Self::default();
        troubles.into_iter().for_each(|trouble| refused.add(trouble));
        refused
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether it is useless to continue.
    pub(super) const fn is_hopeless(&self) -> bool {
        self.in_a_row >= IN_A_ROW_MAX
    }

    /// An object was written.
    pub(super) const fn has_written(&mut self) {
        self.in_a_row = 0;
    }

    /// An object was refused.
    pub(super) fn object(&mut self, resource: &Resource, key: &Key, error: &Error) {
        let message = message(error);
        let by = judge(&message);
        self.by_webhook |= by.is_some();
        self.in_a_row = if by.is_some() { 0 } else { self.in_a_row + 1 };
        let who = by.map_or_else(String::new, |by| format!("{by} refuses it: "));
        let key = cut(key.to_string(), limits::SHOOT_NAME_BYTES_MAX);
        self.add(format!("{} {key} ({who}{message})", name(resource)));
    }

    /// Objects of a kind cannot be listed.
    pub(super) fn kind(&mut self, resource: &Resource, error: &Error) {
        self.add(format!("{} cannot be listed ({})", name(resource), message(error)));
    }

    fn add(&mut self, what: String) {
        self.count += 1;
        if self.named.len() < limits::REWRITE_REFUSED_NAMED_MAX {
            self.named.push(what);
        }
    }

    /// The error of a re-encryption task.
    pub(super) fn failed(&self) -> Failed {
        self.failure("not all objects of the Shoot could be rewritten for its encryption")
    }

    /// The error of a task that replaces tokens of ServiceAccounts.
    pub(super) fn failed_accounts(&self) -> Failed {
        self.failure("not all ServiceAccounts in the Shoot could be given their new Secrets")
    }

    fn failure(&self, what: &str) -> Failed {
        let mut text = format!("{what}: {}", self.named.join("; "));
        let others = self.count - self.named.len();
        if others > 0 {
            let _ = write!(text, "; and {others} more");
        }
        text.push_str(". The old key stays until that is done. ");
        text.push_str(if self.by_webhook {
            "Change the webhook or the policy in the Shoot so that it lets label credentials.gardener.cloud/key-name be set and \
             removed, or delete its configuration. Everything else continues by itself"
        } else {
            "Fix these objects or kinds in the Shoot, or delete them. The task then continues automatically"
        });
        Failed::new(text)
    }
}

/// `deployments.apps`.
fn name(resource: &Resource) -> String {
    let dot = if resource.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}", resource.plural, resource.group)
}

fn message(error: &Error) -> String {
    let text = match error.failure() {
        Some(failure) if !failure.message.is_empty() => failure.message.clone(),
        _ => chain(error),
    };
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The webhook or policy that has refused an object, if it was not the server itself.
fn judge(message: &str) -> Option<String> {
    let quoted = |word: &str, quote: char, shown: &str| {
        let (_, rest) = message.split_once(&format!("{word} {quote}"))?;
        let (name, _) = rest.split_once(quote)?;
        Some(format!("{shown} {name}"))
    };
    quoted("webhook", '"', "webhook")
        .or_else(|| quoted("ValidatingAdmissionPolicy", '\'', "ValidatingAdmissionPolicy"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::core::{DEPLOYMENT, SECRET};
    use crate::kube::StatusFailure;

    fn error(code: u16, message: &str) -> Error {
        Error::Api(Box::new(StatusFailure { code, message: message.to_owned(), ..StatusFailure::default() }))
    }

    #[test]
    fn what_has_refused_an_object() {
        let table = [
            ("admission webhook \"a.b.c\" denied the request: no", Some("webhook a.b.c")),
            (
                "Internal error occurred: failed calling webhook \"x.y\": failed to call webhook: Post ...",
                Some("webhook x.y"),
            ),
            (
                "secrets \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Some("ValidatingAdmissionPolicy p"),
            ),
            ("Secret \"a\" is invalid: data: Too long", None),
        ];
        for (message, expected) in table {
            assert_eq!(judge(message).as_deref(), expected, "{message}");
        }
    }

    #[test]
    fn some_are_named_and_the_remedy_fits() {
        let mut refused = Refused::new(vec!["API group example.org does not answer (503)".to_owned()]);
        refused.object(
            &SECRET,
            &Key::new("default", "a"),
            &error(403, "admission webhook \"no.example.org\" denied the request: hands off"),
        );
        let text = refused.failed().text;
        assert_eq!(
            text,
            "not all objects of the Shoot could be rewritten for its encryption: API group example.org does not answer (503); \
             secrets default/a (webhook no.example.org refuses it: admission webhook \"no.example.org\" denied the request: hands \
             off). The old key stays until that is done. Change the webhook or the policy in the Shoot so that it lets label \
             credentials.gardener.cloud/key-name be set and removed, or delete its configuration. Everything else continues by itself"
        );
        let mut other = Refused::default();
        for n in 0..8 {
            other.object(&DEPLOYMENT, &Key::new("n", format!("d{n}")), &error(422, "it is invalid"));
        }
        let text = other.failed().text;
        assert!(
            text.contains("deployments.apps n/d0 (it is invalid)") && text.contains("and 3 more"),
            "{text}"
        );
        assert!(text.contains("Fix these objects"), "{text}");
    }

    #[test]
    fn a_server_that_refuses_everything_is_not_asked_for_each_object() {
        let mut refused = Refused::default();
        let key = Key::new("n", "a");
        for _ in 0..19 {
            refused.object(&SECRET, &key, &error(500, "etcdserver: request timed out"));
        }
        assert!(!refused.is_hopeless());
        refused.object(&SECRET, &key, &error(500, "etcdserver: request timed out"));
        assert!(refused.is_hopeless());
        refused.object(&SECRET, &key, &error(403, "admission webhook \"a\" denied the request"));
        assert!(!refused.is_hopeless());
    }
}
