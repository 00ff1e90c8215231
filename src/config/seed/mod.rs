//! Rules of `seedConfig`. Rules that Gardener v1.150 checks when it loads the configuration (`pkg/api/core/validation`,
//! SeedTemplate) are errors. Rules that only the garden checks are warnings, because the garden checks them anyway.
//! `settings` has the rules of `spec.settings`, `references` those of the objects that the Seed refers to.

use serde_json::Value;

use super::ConfigProblems;
use super::read::FieldReader;
use super::scalar;
use super::shown::{quoted, shown};
use crate::base::sorted::SortedSet;
use crate::format::cidr::Cidr;

mod references;
mod settings;

/// Checks `seedConfig`.
pub(super) fn check(document: &Value, problems: &mut ConfigProblems) {
    let root = SeedField::new(document, "");
    if root.r.at("seedConfig").is_absent() {
        problems.error(
            "seedConfig",
            "must be given: it describes the Seed that this process registers and serves",
        );
        return;
    }
    name(&root.at("seedConfig.metadata.name"), problems);
    let spec = root.at("seedConfig.spec");
    provider(&spec.at("provider"), problems);
    networks(&spec.at("networks"), problems);
    backup(&spec, problems);
    dns(&spec, problems);
    ingress(&spec, problems);
    settings::check(&spec, problems);
    taints(&spec.at("taints"), problems);
    unique_fields(&spec.at("volume.providers"), "purpose", problems);
    references::extensions(&spec.at("extensions"), problems);
    references::resources(&spec.at("resources"), problems);
}

/// A value in the document with its path.
struct SeedField<'a> {
    r: FieldReader<'a>,
    path: String,
}

impl<'a> SeedField<'a> {
    fn new(document: &'a Value, path: &str) -> Self {
        Self { r: FieldReader::new(document), path: path.to_owned() }
    }

    fn place_of(&self, path: &str) -> String {
        match (self.path.as_str(), path) {
            ("", path) | (path, "") => path.to_owned(),
            (parent, path) => format!("{parent}.{path}"),
        }
    }

    fn at(&self, path: &str) -> Self {
        Self { r: self.r.at(path), path: self.place_of(path) }
    }

    fn items(&self) -> Vec<Self> {
        let item = |(index, value)| Self::new(value, &format!("{}[{index}]", self.path));
        self.r.value().as_array().into_iter().flatten().enumerate().map(item).collect()
    }

    /// The keys and values of a map.
    fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        self.r.value().as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
    }

    fn text(&self, path: &str) -> &'a str {
        self.r.str(path)
    }

    fn is_absent(&self) -> bool {
        self.r.is_absent()
    }

    fn is_empty(&self) -> bool {
        self.is_absent() || self.r.value().as_str() == Some("")
    }

    fn require(&self, problems: &mut ConfigProblems) {
        if self.is_empty() {
            problems.error(&self.path, "must be given");
        }
    }

    /// Only the garden requires it.
    fn want(&self, problems: &mut ConfigProblems) {
        if self.is_empty() {
            problems.warning(&self.path, "is empty: the garden refuses such a Seed");
        }
    }
}

fn unique(values: impl IntoIterator<Item = (String, String)>, problems: &mut ConfigProblems) {
    let mut seen = SortedSet::new();
    for (path, value) in values {
        if !seen.insert(value.clone()) {
            problems.error(&path, format!("{} occurs twice", quoted(&value)));
        }
    }
}

fn unique_fields(list: &SeedField<'_>, key: &str, problems: &mut ConfigProblems) {
    unique(list.items().iter().map(|item| (item.place_of(key), item.text(key).to_owned())), problems);
}

fn name(place: &SeedField<'_>, problems: &mut ConfigProblems) {
    place.require(problems);
    let complaint =
        place.r.value().as_str().filter(|name| !name.is_empty()).and_then(scalar::dns_label_complaint);
    if let Some(message) = complaint {
        problems.error(&place.path, message);
    }
}

fn taints(list: &SeedField<'_>, problems: &mut ConfigProblems) {
    let id = |taint: &SeedField<'_>| format!("{}={}", taint.text("key"), taint.text("value"));
    for taint in list.items() {
        taint.at("key").require(problems);
    }
    unique(list.items().iter().map(|taint| (taint.path.clone(), id(taint))), problems);
}

fn provider(place: &SeedField<'_>, problems: &mut ConfigProblems) {
    place.at("type").want(problems);
    place.at("region").want(problems);
    let text = |zone: SeedField<'_>| (zone.path, zone.r.value().as_str().unwrap_or_default().to_owned());
    unique(place.at("zones").items().into_iter().map(text), problems);
}

fn networks(place: &SeedField<'_>, problems: &mut ConfigProblems) {
    place.at("pods").want(problems);
    place.at("services").want(problems);
    let families: Vec<&str> =
        place.r.at("ipFamilies").value().as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    unique(families.iter().map(|family| (place.place_of("ipFamilies"), (*family).to_owned())), problems);
    let errors = problems.errors.len();
    let range = |key: &str, problems: &mut ConfigProblems| network(&place.at(key), &families, problems);
    let seed = ["pods", "services", "nodes"].map(|key| range(key, problems));
    let shoots = ["shootDefaults.pods", "shootDefaults.services"].map(|key| range(key, problems));
    if let Some((path, services)) = seed[1].as_ref().filter(|(_, range)| range.is_v4() && range.prefix() < 8)
    {
        problems.error(path, format!("must not be larger than /8: /{}", services.prefix()));
    }
    if problems.errors.len() > errors {
        return;
    }
    let seed: Vec<_> = seed.into_iter().flatten().collect();
    let shoots: Vec<_> = shoots.into_iter().flatten().collect();
    disjoint(&seed, problems);
    disjoint(&shoots, problems);
    for shoot in shoots.iter().filter(|(_, range)| !range.is_v4()) {
        for seed in &seed {
            overlap(seed, shoot, problems);
        }
    }
    for (path, range) in seed.iter().chain(&shoots) {
        reserved(path, *range, problems);
    }
}

type Network = (String, Cidr);

/// An address range that is present and has the right family. With both families, any fits.
fn network(place: &SeedField<'_>, families: &[&str], problems: &mut ConfigProblems) -> Option<Network> {
    let text = place.r.value().as_str().filter(|text| !text.is_empty())?;
    let range = Cidr::parse(text);
    let wants_v4 = families.first() != Some(&"IPv6");
    match range {
        None => {
            let message = format!("{} is not an address range such as 10.0.0.0/16", quoted(text));
            problems.error(&place.path, message);
        }
        Some(range) if families.len() < 2 && range.is_v4() != wants_v4 => {
            let family = if wants_v4 { "IPv4" } else { "IPv6" };
            problems.error(
                &place.path,
                format!("must be an {family} range, as networks.ipFamilies requires: {text}"),
            );
        }
        Some(_) => {}
    }
    range.map(|range| (place.path.clone(), range))
}

fn disjoint(networks: &[Network], problems: &mut ConfigProblems) {
    for (index, a) in networks.iter().enumerate() {
        for b in &networks[index + 1..] {
            overlap(a, b, problems);
        }
    }
}

fn overlap(a: &Network, b: &Network, problems: &mut ConfigProblems) {
    if a.1.overlaps(b.1) {
        problems.error(&b.0, format!("must not overlap with {}", a.0));
    }
}

/// Gardener uses 240.0.0.0/8 to 244.0.0.0/8 between seed and shoots.
fn reserved(path: &str, range: Cidr, problems: &mut ConfigProblems) {
    for first in 240..=244 {
        let text = format!("{first}.0.0.0/8");
        if Cidr::parse(&text).is_some_and(|reserved| reserved.overlaps(range)) {
            problems.error(path, format!("must not overlap with {text}, which Gardener uses itself"));
        }
    }
}

fn backup(spec: &SeedField<'_>, problems: &mut ConfigProblems) {
    let place = spec.at("backup");
    if place.is_absent() {
        return;
    }
    place.at("provider").require(problems);
    let is_elsewhere = place.text("provider") != spec.text("provider.type");
    if is_elsewhere && place.at("region").is_empty() {
        problems.error(&place.place_of("region"), "must be given, as the provider is not the seed's");
    }
    references::credentials(&place.at("credentialsRef"), problems);
}

fn dns(spec: &SeedField<'_>, problems: &mut ConfigProblems) {
    let provider = spec.at("dns.provider");
    if !provider.is_absent() {
        provider.at("type").require(problems);
        references::credentials(&provider.at("credentialsRef"), problems);
    }
    let internal = spec.at("dns.internal");
    if internal.is_absent() {
        problems
            .error(&internal.path, "must be given: type, domain and credentialsRef of the internal domain");
    } else {
        domain(&internal, problems);
    }
    let defaults = spec.at("dns.defaults");
    for place in defaults.items() {
        domain(&place, problems);
    }
    unique_fields(&defaults, "domain", problems);
}

fn domain(place: &SeedField<'_>, problems: &mut ConfigProblems) {
    place.at("type").require(problems);
    let domain = place.at("domain");
    domain.require(problems);
    dns_name(&domain, problems);
    references::credentials(&place.at("credentialsRef"), problems);
}

fn dns_name(place: &SeedField<'_>, problems: &mut ConfigProblems) {
    let complaint =
        place.r.value().as_str().filter(|text| !text.is_empty()).and_then(scalar::dns_name_complaint);
    if let Some(message) = complaint {
        problems.error(&place.path, message);
    }
}

fn ingress(spec: &SeedField<'_>, problems: &mut ConfigProblems) {
    let place = spec.at("ingress");
    if place.is_absent() {
        place.want(problems);
        return;
    }
    place.at("domain").require(problems);
    place.at("controller.kind").require(problems);
    if spec.at("dns.provider").is_absent() {
        problems.error(&spec.place_of("dns.provider"), "must be given, as there is an ingress controller");
    }
}
