//! ValidatingAdmissionPolicies that refuse deletions. It evaluates no CEL: it reads only the annotation and the allowed values
//! from an expression. The shared checks compare this with a real server.

use serde_json::Value;

use super::Target;
use super::failure::Failure;
use super::selector::matches_spec;
use super::store::State;
use crate::json::{list, text};

const GROUP: &str = "admissionregistration.k8s.io";

/// Why a request may not delete this object.
pub fn refusal(state: &State, target: &Target, old: &Value) -> Option<Failure> {
    for (id, binding) in state.of(GROUP, "validatingadmissionpolicybindings", "") {
        let name = text(binding, "/spec/policyName");
        let denies = list(binding, "/spec/validationActions").iter().any(|action| action == "Deny");
        let Some(policy) = state.get(GROUP, "validatingadmissionpolicies", "", name).filter(|_| denies)
        else {
            continue;
        };
        if !matches(policy, target, old) {
            continue;
        }
        for validation in list(policy, "/spec/validations") {
            if is_confirmed(text(validation, "/expression"), old) {
                continue;
            }
            let message = text(validation, "/message");
            let why = format!(
                "ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: {message}",
                id.name
            );
            return Some(Failure::forbidden(
                &target.kind.group,
                &target.kind.plural,
                text(old, "/metadata/name"),
                &why,
            ));
        }
    }
    None
}

fn matches(policy: &Value, target: &Target, old: &Value) -> bool {
    let has = |rule: &Value, pointer: &str, word: &str| {
        list(rule, pointer).iter().any(|value| value == word || value == "*")
    };
    let selector = &policy["spec"]["matchConstraints"]["objectSelector"];
    matches_spec(selector, &old["metadata"]["labels"])
        && list(policy, "/spec/matchConstraints/resourceRules").iter().any(|rule| {
            has(rule, "/apiGroups", &target.kind.group)
                && has(rule, "/apiVersions", &target.version)
                && has(rule, "/operations", "DELETE")
                && has(rule, "/resources", &target.kind.plural)
        })
}

/// The first text in quotes is the annotation; those in brackets at the end are its values.
fn is_confirmed(expression: &str, old: &Value) -> bool {
    let quoted =
        |text: &str| -> Vec<String> { text.split('\'').skip(1).step_by(2).map(str::to_owned).collect() };
    let (annotations, values) = expression.rsplit_once(" in [").expect("an expression that ends with a list");
    let found = &old["metadata"]["annotations"][&quoted(annotations)[0]];
    quoted(values).iter().any(|value| found == value.as_str())
}
