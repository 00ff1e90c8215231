//! The order in which the objects of one ManagedResource are applied: Helm's order of kinds, then unknown kinds by name.

use serde_json::Value;

use super::object::text;
use crate::chart::manifest::install_rank;

/// The position of an object: by its kind, then by its name.
pub(super) type Rank = (usize, String, String);

/// The sort key of objects.
pub(super) fn rank(object: &Value) -> Rank {
    let (place, unknown) = install_rank(text(&object["kind"]));
    (place, unknown.to_owned(), text(&object["metadata"]["name"]).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_then_unknown_kinds_then_names() {
        let mut objects: Vec<Value> = [
            ("Zebra", "a"),
            ("ValidatingWebhookConfiguration", "a"),
            ("Deployment", "b"),
            ("Apple", "b"),
            ("Apple", "a"),
            ("Deployment", "a"),
            ("Namespace", "z"),
            ("StatefulSet", "a"),
            ("CustomResourceDefinition", "a"),
            ("PriorityClass", "a"),
            ("HorizontalPodAutoscaler", "a"),
        ]
        .iter()
        .map(|(kind, name)| json!({"kind": kind, "metadata": {"name": name}}))
        .collect();
        objects.sort_by_cached_key(rank);
        let got: Vec<_> = objects
            .iter()
            .map(|o| format!("{} {}", text(&o["kind"]), text(&o["metadata"]["name"])))
            .collect();
        let expected = [
            "PriorityClass a",
            "Namespace z",
            "CustomResourceDefinition a",
            "Deployment a",
            "Deployment b",
            "HorizontalPodAutoscaler a",
            "StatefulSet a",
            "ValidatingWebhookConfiguration a",
            "Apple a",
            "Apple b",
            "Zebra a",
        ];
        assert_eq!(got, expected);
    }
}
