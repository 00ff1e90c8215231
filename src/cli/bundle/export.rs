//! `gardenlet bundle export`: finds the charts, their sources, and the images in them.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::arguments::ClusterOptions;
use super::super::unit::CommandEnvironment;
use super::super::{FAILURE, Io, Variable, clusters, fail, print, report, say};
use super::Export;
use crate::api::gardener::{CLOUD_PROFILE, CONTROLLER_DEPLOYMENT, ControllerDeployment, SEED, SHOOT};
use crate::api::meta::{ALL_NAMESPACES, Key, text};
use crate::base::capped;
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::sorted::SortedSet;
use crate::base::stop::Stop;
use crate::chart::child::{Archive, RenderRequest, Renderer};
use crate::components::images;
use crate::config::{LoadedConfig, Settings};
use crate::controllers::controller_installation::preview::{self, InstallationPreview};
use crate::extension::hosts::is_host_type;
use crate::format::human;
use crate::kube::{self, Client, Garden, ListParams};
use crate::limits;
use crate::oci::bundle::{Bundle, BundleBlobs, BundleCharts, BundleForm, BundleImages, beside, pack};
use crate::oci::{ArtifactReference, Digest, Keychain, PullOrder, Puller, VerifiedContent};
use crate::operation::components;
use crate::shoot::pools;

/// A chart and its values.
struct WantedChart {
    name: String,
    chart: Chart,
    request: Result<RenderRequest, String>,
}

enum Chart {
    /// A chart in a registry.
    Order(PullOrder),
    /// A chart in its ControllerDeployment: it needs no registry, but its images do.
    Raw(Vec<u8>),
}

#[derive(Default)]
struct Collected {
    charts: BundleCharts,
    images: BundleImages,
    blobs: BundleBlobs,
    /// The number of missing charts.
    lost: usize,
    /// The number of charts whose images are unknown.
    unknown: usize,
    /// Why the images of control planes are unknown.
    no_control_planes: Option<String>,
}

/// Runs the command and returns the exit code.
pub(super) fn main(io: &mut Io<'_>, task: &Export, variable: Variable<'_>) -> u8 {
    let way = ClusterOptions::default();
    let handed = task.config.as_deref().map(|path| (path, CommandEnvironment::new(path, variable, &way)));
    let loaded = match handed.as_ref().map(|(path, handed)| (path, handed.load())) {
        None => None,
        Some((_, Ok(loaded))) => Some(loaded),
        Some((path, Err(problems))) => return report(io, path, &problems),
    };
    let of_unit =
        |name: &str| handed.as_ref().map_or_else(|| variable(name), |(_, handed)| handed.variable(name));
    export(io, task, loaded.as_ref(), &of_unit)
        .unwrap_or_else(|why| fail(io, format_args!("gardenlet bundle: {why}")))
}

fn export(
    io: &mut Io<'_>,
    task: &Export,
    loaded: Option<&LoadedConfig>,
    variable: Variable<'_>,
) -> Result<u8, String> {
    let settings = loaded.map(|loaded| &loaded.settings);
    let wanted = match settings {
        Some(settings) if task.charts.is_empty() => of_garden(io, settings, task.all, variable)?,
        _ => named(task)?,
    };
    let is_file = BundleForm::of(&task.output) != BundleForm::Directory;
    let place = if is_file { beside(&task.output, ".partial") } else { task.output.clone() };
    let bundle = Bundle::at(place);
    let (cache, lock) = bundle.open().map_err(|e| e.to_string())?;
    let registries = settings.map(|settings| settings.edge.registries.clone()).unwrap_or_default();
    let stop = Stop::new();
    let puller = Puller::new(clusters::network(variable), registries, cache, &stop).whole();
    let mut collected = collect(io, &wanted, &puller, &bundle, &stop);
    match control_planes(task, settings, variable) {
        Ok(images) => collected.images.extend(images),
        Err(why) => collected.no_control_planes = Some(why),
    }
    if collected.lost > 0 {
        let lost = human::counted(collected.lost, "chart");
        fail(
            io,
            format_args!(
                "gardenlet bundle: {lost} could not be pulled; the others are kept: run the command again"
            ),
        );
        return Ok(FAILURE);
    }
    let digest = finish(&bundle, &collected, is_file.then_some(task.output.as_path()))?;
    drop(lock);
    Ok(summary(io, &task.output, &collected, digest))
}

fn finish(bundle: &Bundle, collected: &Collected, file: Option<&Path>) -> Result<Digest, String> {
    if file.is_some() {
        // This is left from a run that broke off between the two steps. Its charts may be others.
        bundle.forget();
    }
    let digest = bundle.publish(&collected.charts, &collected.images).map_err(|e| e.to_string())?;
    if let Some(file) = file {
        pack(bundle, &collected.blobs, file).map_err(|e| e.to_string())?;
        let _ = std::fs::remove_dir_all(bundle.directory());
    }
    Ok(digest)
}

fn summary(io: &mut Io<'_>, output: &Path, collected: &Collected, digest: Digest) -> u8 {
    let Collected { charts, images, blobs, unknown, .. } = collected;
    let (charts, images) = (human::counted(charts.len(), "chart"), human::counted(images.len(), "image"));
    let bytes = blobs.values().sum::<u64>();
    let output = output.display();
    let text = format!(
        "{output}: {charts} with {bytes} bytes, a list of {images}\ndigest of the bundle: {digest}\n"
    );
    let printed = print(io, &text);
    if *unknown > 0 {
        let unknown = human::counted(*unknown, "chart");
        fail(io, format_args!("gardenlet bundle: the list lacks the images of {unknown}, named above"));
    }
    if let Some(why) = &collected.no_control_planes {
        fail(io, format_args!("gardenlet bundle: the list lacks the images of control planes: {why}"));
    }
    if *unknown > 0 || collected.no_control_planes.is_some() { FAILURE } else { printed }
}

/// The images of the seed's future control planes.
fn control_planes(
    task: &Export,
    settings: Option<&Settings>,
    variable: Variable<'_>,
) -> Result<BundleImages, String> {
    let path = clusters::set(variable, images::VARIABLE).map(PathBuf::from);
    let images = images::Images::load(path.as_deref())?;
    let host_types = settings.map_or(&[][..], |settings| &settings.edge.host_types);
    let chosen = settings.map_or(&[][..], |settings| &settings.edge.components.nodes);
    let of_shoots = || components::images((!host_types.is_empty()).then_some(chosen));
    let versions = match settings {
        _ if !task.kubernetes.is_empty() => {
            Versions { control_planes: task.kubernetes.iter().cloned().collect(), ..Versions::default() }
        }
        Some(settings) if task.charts.is_empty() => {
            let found = versions(&garden(settings, variable)?, settings, task.all);
            let known =
                found.map_err(|error| format!("{}; name the versions with --kubernetes", chain(&error)))?;
            // A garden may offer versions that this gardenlet does not support.
            let is_known = |version: &String| images.of_control_plane(of_shoots(), version).is_ok();
            let control_planes = known.control_planes.into_iter().filter(is_known).collect();
            Versions { control_planes, ..known }
        }
        _ => Versions::default(),
    };
    let mut found = BundleImages::new();
    for version in versions.control_planes {
        found.extend(images.of_control_plane(of_shoots(), &version)?);
    }
    for version in versions.nodes {
        for name in components::images_of_nodes() {
            found.extend([images.find(name, &version)?]);
        }
    }
    Ok(found)
}

/// Versions of Kubernetes whose images Shoots need.
#[derive(Debug, Default)]
struct Versions {
    control_planes: SortedSet<String>,
    /// Of the kubelets of hosts.
    nodes: SortedSet<String>,
}

/// The versions of Kubernetes that Shoots of the seed have or may have.
fn versions(garden: &Garden, settings: &Settings, all: bool) -> Result<Versions, kube::Error> {
    let mut found = Versions::default();
    let provider = text(&settings.document["seedConfig"]["spec"]["provider"]["type"]);
    let host_types = &settings.edge.host_types;
    garden.list_all::<Value>(&CLOUD_PROFILE, ALL_NAMESPACES, &ListParams::default(), &mut |profile| {
        let kind = text(&profile["spec"]["type"]);
        if all || kind == provider || is_host_type(kind, host_types) {
            let versions = profile["spec"]["kubernetes"]["versions"].as_array().into_iter().flatten();
            found.control_planes.extend(versions.map(|entry| text(&entry["version"]).to_owned()));
        }
    })?;
    let label_selector = format!("name.seed.gardener.cloud/{}=true", settings.seed_config.name);
    let params = ListParams { label_selector, ..ListParams::default() };
    garden.list_all::<Value>(&SHOOT, ALL_NAMESPACES, &params, &mut |shoot| {
        found.control_planes.insert(text(&shoot["spec"]["kubernetes"]["version"]).to_owned());
        if is_host_type(text(&shoot["spec"]["provider"]["type"]), host_types) {
            found.nodes.extend(pools::read(&shoot).into_iter().map(|pool| pool.kubernetes_version));
        }
    })?;
    Ok(found)
}

/// Pulls all charts and prints one line for each on standard error.
fn collect(
    io: &mut Io<'_>,
    wanted: &[WantedChart],
    puller: &Puller,
    bundle: &Bundle,
    stop: &Stop,
) -> Collected {
    let mut collected = Collected::default();
    for (index, one) in wanted.iter().enumerate() {
        // The whole reference: charts of several registries may have one name.
        let name = match &one.chart {
            Chart::Raw(_) => one.name.clone(),
            Chart::Order(order) => format!("{} {}", one.name, order.reference),
        };
        say(io, format_args!("{}/{} {name} ", index + 1, wanted.len()));
        let archive = match &one.chart {
            Chart::Raw(bytes) => {
                say(io, format_args!("in its ControllerDeployment\n"));
                Ok(VerifiedContent::Bytes(bytes.as_slice().into()))
            }
            Chart::Order(order) => {
                fetch(order, puller, bundle, stop, &mut collected).map(|(content, digest, bytes)| {
                    say(io, format_args!("{digest} {bytes} bytes\n"));
                    content
                })
            }
        };
        let archive = match archive {
            Ok(archive) => archive,
            Err(why) => {
                say(io, format_args!("failed: {why}\n"));
                collected.lost += 1;
                continue;
            }
        };
        match images(&archive, &one.request, stop) {
            Ok(found) => collected.images.extend(found),
            Err(why) => {
                say(io, format_args!("the images of {name} are not known: {why}\n"));
                collected.unknown += 1;
            }
        }
    }
    collected
}

/// Pulls a chart. Returns it, the digest of its reference, and the size of its files.
fn fetch(
    order: &PullOrder,
    puller: &Puller,
    bundle: &Bundle,
    stop: &Stop,
    collected: &mut Collected,
) -> Result<(VerifiedContent, Digest, u64), String> {
    let pulled = puller.fetch(order, stop).map_err(|error| chain(&error))?;
    let name = order.reference.to_string();
    let blobs = bundle.verify(&name, pulled.digest).map_err(|error| error.to_string())?;
    let bytes = blobs.values().sum();
    // Several deployments may use the same chart.
    collected.charts.retain(|(known, _)| *known != name);
    collected.charts.push((name, pulled.digest));
    for (digest, bytes) in blobs {
        collected.blobs.insert(digest, bytes);
    }
    Ok((pulled.chart, pulled.digest, bytes))
}

fn images(
    chart: &VerifiedContent,
    request: &Result<RenderRequest, String>,
    stop: &Stop,
) -> Result<BundleImages, String> {
    let request = request.as_ref().map_err(String::clone)?;
    let archive = match chart {
        VerifiedContent::Bytes(bytes) => Archive::Bytes(bytes),
        VerifiedContent::File(file) => Archive::File(file),
    };
    let rendered = Renderer::InProcess.render(request, archive, stop).map_err(|error| chain(&error))?;
    let mut found = BundleImages::new();
    rendered.values().for_each(|object| walk(object, &mut found));
    Ok(found)
}

/// Collects each text under a key `image`, and the reference of an image volume. Workloads and most other objects have
/// the images that a kubelet pulls there.
fn walk(value: &Value, found: &mut BundleImages) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let named =
                    if key == "image" { value.as_str().or(value["reference"].as_str()) } else { None };
                match named.filter(|name| !name.is_empty() && !name.contains(char::is_whitespace)) {
                    Some(name) => {
                        found.insert(name.to_owned());
                    }
                    None => walk(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
        _ => {}
    }
}

/// The charts of the command line, with their own values.
fn named(task: &Export) -> Result<Vec<WantedChart>, String> {
    let mut logins = Keychain::default();
    if let Some(path) = &task.logins {
        let bad = |why: &dyn Display| format!("--registry-config {}: {why}", path.display());
        let text = capped::read_file(path, limits::CONFIG_FILE_BYTES_MAX).map_err(|error| bad(&error))?;
        logins = Keychain::parse(&text).map_err(|why| bad(&why))?;
    }
    let wanted = |reference: &ArtifactReference| {
        let name = reference.repository.rsplit('/').next().unwrap_or_default().to_owned();
        let request = Ok(preview::request(&name, &name, Value::Null, None));
        let order = PullOrder { reference: reference.clone(), keychain: logins.clone(), ca_bundle: None };
        WantedChart { name, chart: Chart::Order(order), request }
    };
    Ok(task.charts.iter().map(wanted).collect())
}

/// The charts of the garden for this seed.
fn of_garden(
    io: &mut Io<'_>,
    settings: &Settings,
    all: bool,
    variable: Variable<'_>,
) -> Result<Vec<WantedChart>, String> {
    let failed = |error: kube::Error| {
        format!("ask the garden: {}; gardenlet doctor shows which hop fails", chain(&error))
    };
    let garden = garden(settings, variable)?;
    let name = settings.seed_config.name.as_str();
    let seed = garden.find::<Value>(&SEED, &Key::cluster(name)).map_err(failed)?;
    // Before the agent registers the Seed, the configuration is the best source.
    let seed = seed.unwrap_or_else(|| {
        json!({"metadata": settings.document["seedConfig"]["metadata"], "spec": settings.document["seedConfig"]["spec"]})
    });
    let preview =
        InstallationPreview { garden: &garden, seed: &seed, feature_gates: &settings.feature_gates };
    let mut wanted = Vec::new();
    for (deployment, release, installation) in clusters::deployments(&garden, name, all).map_err(failed)? {
        let found: ControllerDeployment =
            garden.get(&CONTROLLER_DEPLOYMENT, &Key::cluster(&deployment)).map_err(failed)?;
        let Some(helm) = &found.helm else {
            say(io, format_args!("{deployment} has no chart\n"));
            continue;
        };
        let raw = InstallationPreview::raw_chart(helm)
            .map_err(|why| format!("ControllerDeployment {deployment}: {why}"))?;
        let chart = match (raw, &helm.oci_repository) {
            (Some(bytes), _) => Chart::Raw(bytes),
            (None, Some(repository)) => {
                let order = InstallationPreview::order(&garden, repository);
                Chart::Order(order.map_err(|why| format!("ControllerDeployment {deployment}: {why}"))?)
            }
            (None, None) => continue,
        };
        let request = preview.request(&found, helm, &release, &installation);
        wanted.push(WantedChart { name: deployment, chart, request });
    }
    if wanted.is_empty() {
        return Err(format!(
            "the garden has no chart for seed {name}: ControllerInstallations name its charts once the seed is registered; \
             use --all for the charts of all ControllerDeployments"
        ));
    }
    Ok(wanted)
}

/// Tries the kubeconfig of this machine before the seed, which may be out of reach.
fn garden(settings: &Settings, variable: Variable<'_>) -> Result<Garden, String> {
    let told = |(why, remedy): clusters::Obstacle| format!("{why}; {remedy}");
    let connect =
        |connection| Client::new(connection, clusters::options(variable)).map_err(|error| chain(&error));
    let path: Option<PathBuf> = settings.garden_client_connection.connection.kubeconfig.clone();
    let connection = match path {
        Some(path) => clusters::garden_of(path).map_err(told)?,
        None => {
            let seed = connect(clusters::seed(settings, variable).map_err(told)?)?;
            clusters::garden(settings, variable, &seed).map_err(told)?.connection
        }
    };
    connect(connection).map(Garden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_stand_under_their_key_wherever_that_is() {
        let object = json!({
            "spec": {"template": {"spec": {
                "initContainers": [{"image": "r.example.org/init:1"}],
                "containers": [{"image": "r.example.org/main@sha256:1", "args": ["--image=no"]}, {"image": ""}],
                "volumes": [{"image": {"reference": "r.example.org/volume:1", "pullPolicy": "Always"}}],
            }}},
            "text": "image: r.example.org/not:1",
            "schema": {"properties": {"image": {"type": "string", "description": "an image"}}},
            "other": {"image": "two words"},
        });
        let mut found = BundleImages::new();
        walk(&object, &mut found);
        let expected = ["r.example.org/init:1", "r.example.org/main@sha256:1", "r.example.org/volume:1"];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
