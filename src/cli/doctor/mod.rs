//! `gardenlet doctor`: tries each hop that the agent needs, on this machine and with the settings of the configuration,
//! and reports the first one that fails. It changes nothing anywhere.

use std::path::Path;

use serde_json::Value;

use crate::api::gardener::{CONTROLLER_DEPLOYMENT, ControllerDeployment, SEED, SHOOT};
use crate::api::meta::{ALL_NAMESPACES, Key, text};
use crate::app::host;
use crate::base::clock::{Clock, Timestamp};
use crate::base::error::chain;
use crate::base::garden_time::GardenTime;
use crate::base::redact;
use crate::base::sorted::SortedMap;
use crate::base::stop::Stop;
use crate::components::{hosting, webhooks};
use crate::config::{LoadedConfig, Settings};
use crate::controllers::controller_installation::preview::InstallationPreview;
use crate::controllers::is_garden;
use crate::format::time::rfc3339;
use crate::identity::cleanup;
use crate::kube::{Client, Connection, Garden, ListParams, Options};
use crate::net::{ProxyPolicy, Url};
use crate::oci::{self, PullOrder, Puller};
use crate::shoot::has_foreign_workers;

use self::access::Access;
use self::finding::{Finding, State, Stopped, way};
use super::arguments::CONFIG;
use super::unit::CommandEnvironment;
use super::{FAILURE, Io, Variable, clusters, moves, print, print_text};

mod access;
mod before;
mod finding;
mod start;

const NOT_OURS: &str =
    "the certificate must be of gardener.cloud:system:seed:<name of this seed>, and the Seed must exist";
pub(super) fn main(
    io: &mut Io<'_>,
    config: &Path,
    handed: &CommandEnvironment<'_>,
    as_json: bool,
    is_before: bool,
) -> u8 {
    let findings = examine(config, handed, is_before);
    let printed = if as_json {
        print(io, &format!("{}\n", finding::json(&findings)))
    } else {
        let text = finding::text(&findings, io.colour);
        print_text(io, &text)
    };
    if finding::is_good(&findings) { printed } else { FAILURE }
}

/// The findings as text, for another command.
pub(super) fn told(config: &Path, handed: &CommandEnvironment<'_>) -> String {
    finding::text(&examine(config, handed, false), false).as_str().to_owned()
}

fn examine(config: &Path, handed: &CommandEnvironment<'_>, is_before: bool) -> Vec<Finding> {
    // Before an installation nobody has written the configuration yet. One that is named must exist.
    let is_unwritten = is_before && config == Path::new(CONFIG) && !config.exists();
    let loaded = if is_unwritten { handed.load_text(before::UNWRITTEN) } else { handed.load() };
    match loaded {
        Ok(loaded) => Doctor {
            settings: &loaded.settings,
            variable: &|name| handed.variable(name),
            handed,
            found: if is_unwritten { before::unwritten() } else { configuration(config, handed, &loaded) },
            clocks: Vec::new(),
            is_unwritten,
        }
        .examine(is_before),
        Err(problems) => {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let broken = Finding::new("", "configuration", State::Broken, texts.join("; "));
            vec![broken.with("correct it; gardenlet config validate prints the same problems")]
        }
    }
}

fn configuration(path: &Path, handed: &CommandEnvironment<'_>, loaded: &LoadedConfig) -> Vec<Finding> {
    let mut found = vec![Finding::new("", "configuration", State::Good, path.display().to_string())];
    for warning in &loaded.warnings {
        found.push(Finding::new("", "configuration", State::Odd, warning.to_string()));
    }
    let remedy = "leave --kubeconfig out, and unset KUBECONFIG";
    let other = handed.other_seed(loaded);
    found.extend(other.map(|other| Finding::new("seed", "kubeconfig", State::Odd, other).with(remedy)));
    found
}

struct Doctor<'a> {
    settings: &'a Settings,
    variable: Variable<'a>,
    handed: &'a CommandEnvironment<'a>,
    found: Vec<Finding>,
    /// How many nanoseconds the clocks of servers are ahead of this host's clock.
    clocks: Vec<(&'static str, Option<i64>)>,
    /// There is no configuration yet: what depends on it is not checked.
    is_unwritten: bool,
}

impl Doctor<'_> {
    fn examine(mut self, is_before: bool) -> Vec<Finding> {
        self.host_itself();
        let seed = self.seed();
        let administrator = self.settings.garden_client_connection.connection.kubeconfig.clone();
        let garden = match administrator.filter(|_| is_before) {
            Some(path) => {
                self.before(path);
                None
            }
            None => {
                if is_before {
                    self.say("garden", "extensions", State::NotReached, before::UNASKED, "");
                }
                if self.is_unwritten { None } else { self.garden(seed.as_ref()) }
            }
        };
        let clocks = std::mem::take(&mut self.clocks);
        self.found.extend(clocks.into_iter().map(|(server, ahead)| finding::clock(server, ahead)));
        if let Some(garden) = &garden {
            let own = self.last_operation(garden);
            self.shoots_of_garden(garden, &own);
        }
        let orders = garden.map(|garden| self.orders(&garden)).unwrap_or_default();
        self.registries(&orders);
        self.charts(&orders);
        self.found
    }

    fn say(&mut self, place: &str, hop: &'static str, state: State, text: impl Into<String>, remedy: &str) {
        self.found.push(Finding::new(place, hop, state, text).with(remedy));
    }

    /// Returns the client of the seed, if the seed answers.
    fn seed(&mut self) -> Option<Client> {
        let connection = match clusters::seed(self.settings, self.variable) {
            Ok(connection) => connection,
            Err((text, remedy)) => {
                self.say("seed", "configuration", State::Broken, text, remedy);
                return None;
            }
        };
        self.weakness("seed", &connection);
        let client = self.reach("seed", &connection)?;
        self.permissions(
            "seed",
            &client,
            &access::seed(self.settings),
            "apply packaging/rbac.yaml, or the roles of the chart",
        );
        self.shoots(&client);
        self.host(&client);
        if !self.is_unwritten {
            self.site(&client);
        }
        self.webhooks(&client);
        Some(client)
    }

    /// Checks the role for control planes of Shoots. An agent without Shoots works without it.
    fn shoots(&mut self, seed: &Client) {
        let finding = match access::missing(seed, &access::shoots(self.settings)) {
            Ok(missing) => finding::shoots(&missing),
            Err(error) => Finding::new("seed", finding::SHOOTS, State::Odd, chain(&error)),
        };
        self.found.push(finding);
    }

    /// Checks whether the cluster of the seed has another role as well.
    fn host(&mut self, seed: &Client) {
        const HOP: &str = "cluster";
        match (hosting::is_self_hosted_shoot(seed), is_garden(seed)) {
            (Ok(true), _) => {
                self.say("seed", HOP, State::Broken, hosting::SELF_HOSTED, "choose another cluster");
            }
            (Ok(false), Ok(true)) => {
                let text =
                    "the garden runs in this cluster, so gardener-operator installs the garden's components";
                self.say("seed", HOP, State::Good, text, "");
            }
            (Ok(false), Ok(false)) => self.say("seed", HOP, State::Good, "", ""),
            (Err(error), _) | (_, Err(error)) => self.say("seed", HOP, State::Odd, chain(&error), ""),
        }
    }

    /// Looks for webhooks without a server that refuse writes.
    fn webhooks(&mut self, seed: &Client) {
        const HOP: &str = "webhooks";
        if !self.settings.edge.resource_manager.is_here() {
            return;
        }
        match webhooks::blocking(seed) {
            Ok(None) => self.say("seed", HOP, State::Good, "", ""),
            Ok(Some(blocking)) => {
                let remedy = "run that command, or start gardener-resource-manager";
                self.say("seed", HOP, State::Broken, blocking.remark(), remedy);
            }
            Err(error) => self.say("seed", HOP, State::Odd, chain(&error), ""),
        }
    }

    /// Tries the way to the garden that the agent uses. Returns the seed's client there, if the garden answers.
    fn garden(&mut self, seed: Option<&Client>) -> Option<Garden> {
        let Some(seed) = seed else {
            self.say("garden", "identity", State::NotReached, "it is in a Secret of the seed", "");
            return None;
        };
        let (mut connection, is_bootstrap) = self.identity(seed)?;
        if let Ok(Some(server)) = host::inside(seed) {
            server.clone_into(&mut connection.server);
        }
        if !is_bootstrap {
            self.own_certificate(&connection);
        }
        self.weakness("garden", &connection);
        let client = self.reach("garden", &connection)?;
        if !self.gardener(&client) {
            // The agent goes no further, so the garden knows no Seed and allows nothing.
            self.say("garden", "permissions", State::NotReached, "", "");
            return None;
        }
        let name = self.settings.seed_config.name.as_str();
        let own = access::garden(name);
        let (wanted, remedy) = if is_bootstrap {
            (
                &access::BOOTSTRAP[..],
                "the bootstrap token must belong to group system:bootstrappers, and be valid",
            )
        } else {
            (&own[..], NOT_OURS)
        };
        self.permissions("garden", &client, wanted, remedy);
        (!is_bootstrap).then_some(Garden(client))
    }

    /// Finds the connection to the garden, and whether it is only for the bootstrap.
    fn identity(&mut self, seed: &Client) -> Option<(Connection, bool)> {
        const HOP: &str = "identity";
        let (text, remedy) = match clusters::garden(self.settings, self.variable, seed) {
            Ok(found) => {
                self.say("garden", HOP, State::Good, found.place, "");
                return Some((found.connection, found.is_bootstrap));
            }
            Err(obstacle) => obstacle,
        };
        let Some(path) = self.handed.stray() else {
            self.say("garden", HOP, State::Broken, text, remedy);
            return None;
        };
        let lacks = self.handed.lacks().unwrap_or_default();
        let text = format!("the agent does not get {}: {lacks}", path.display());
        let remedy = "add the drop-in bootstrap.conf to the unit, then reload systemd and restart the service; or name the file in \
            edge.bootstrap.kubeconfig";
        self.say("garden", HOP, State::Broken, text, remedy);
        clusters::garden_of(path).ok().map(|connection| (connection, true))
    }

    /// Reports why the last round of the Seed failed, and returns the Seed. The check of permissions reports whether it can be read.
    fn last_operation(&mut self, garden: &Garden) -> Value {
        let name = &self.settings.seed_config.name;
        let seed = garden.find::<Value>(&SEED, &Key::cluster(name)).ok().flatten().unwrap_or_default();
        let operation = &seed["status"]["lastOperation"];
        if operation["state"] == "Error" {
            let remedy = "fix what the message names; the agent tries again within a minute";
            self.say("garden", "last operation", State::Broken, text(&operation["description"]), remedy);
        }
        seed
    }

    /// Reports Shoots that this version does not change, and what keeps Shoots from moving.
    fn shoots_of_garden(&mut self, garden: &Garden, own: &Value) {
        let (mut names, mut waiting) = (Vec::new(), SortedMap::new());
        let seed = self.settings.seed_config.name.as_str();
        let label_selector = format!("name.seed.gardener.cloud/{seed}=true");
        let ours = ListParams { label_selector, ..ListParams::default() };
        let listed = garden.list_all::<Value>(&SHOOT, ALL_NAMESPACES, &ours, &mut |shoot| {
            let name = Key::of(&shoot).to_string();
            if has_foreign_workers(&shoot, &self.settings.edge.host_types) {
                names.push(name);
            } else if let Some(other) = moves::awaited(&shoot, seed) {
                // One Shoot for each seed is enough.
                waiting.insert(other.to_owned(), name);
            }
        });
        match listed {
            Ok(_) => self.found.extend(finding::workers(&names)),
            Err(error) => self.say("garden", finding::SHOOTS, State::Odd, chain(&error), NOT_OURS),
        }
        for (other, shoot) in waiting {
            let compared = moves::compare(garden, own, &other);
            self.found.extend(finding::moves(&shoot, compared));
        }
    }

    fn weakness(&mut self, place: &str, connection: &Connection) {
        if let Some(weakness) = connection.weakness() {
            self.say(
                place,
                "trust",
                State::Odd,
                weakness,
                "name the server's CA in the kubeconfig, and its https:// URL",
            );
        }
    }

    /// Returns the orders of the charts of the seed's installations by deployment, as their controller makes them.
    fn orders(&mut self, garden: &Garden) -> Vec<(String, PullOrder)> {
        let mut orders = Vec::new();
        let mut deployments = clusters::deployments(garden, &self.settings.seed_config.name, false)
            .unwrap_or_else(|error| {
                self.say("garden", "installations", State::Broken, chain(&error), NOT_OURS);
                Vec::new()
            });
        deployments.sort();
        deployments.dedup_by(|a, b| a.0 == b.0);
        for (name, _, _) in deployments {
            match order(garden, &name) {
                Ok(order) => orders.extend(order.map(|order| (name, order))),
                Err(why) => self.found.extend(finding::chart(&name, Err(why))),
            }
        }
        orders
    }

    /// Checks whether the charts can be pulled now. Skips a registry that has not answered once.
    fn charts(&mut self, orders: &[(String, PullOrder)]) {
        let (stop, mut silent) = (Stop::new(), Vec::new());
        for (name, order) in orders {
            let registry = &order.reference.registry;
            if silent.contains(&registry) {
                let place = format!("chart of {name}");
                self.say(&place, "source", State::NotReached, registry, "");
                continue;
            }
            let network = clusters::network(self.variable);
            let cache = oci::Cache::new(None, 0);
            let puller = Puller::new(network, self.settings.edge.registries.clone(), cache, &stop);
            let asked = puller.ask(order, &stop);
            if asked.iter().all(|(_, error)| matches!(error, Some(oci::Error::Net { .. }))) {
                silent.push(registry);
            }
            self.found.extend(finding::chart(name, Ok(asked)));
        }
    }

    fn own_certificate(&mut self, connection: &Connection) {
        let hop = "own certificate";
        let certificate = match cleanup::certificate(connection) {
            Ok(certificate) => certificate,
            Err(error) => {
                let remedy = "supply a kubeconfig with a client certificate, or a bootstrap Secret";
                return self.say("garden", hop, State::Broken, chain(&error), remedy);
            }
        };
        let now = Clock::system().now();
        let (from, until) = (rfc3339(certificate.not_before), rfc3339(certificate.not_after));
        if now > certificate.not_after {
            let remedy =
                "if the clock is right: supply a bootstrap Secret, and the agent gets another certificate";
            self.say("garden", hop, State::Broken, format!("expired at {until}"), remedy);
        } else if now < certificate.not_before {
            let remedy = "set the clock of this host (NTP)";
            self.say("garden", hop, State::Broken, format!("becomes valid at {from}"), remedy);
        } else {
            self.say("garden", hop, State::Good, format!("valid until {until}"), "");
        }
    }

    /// Tries the way to an API server hop by hop. Returns its client if every hop works.
    fn reach(&mut self, place: &'static str, connection: &Connection) -> Option<Client> {
        let proxy =
            self.proxy(&connection.server, connection.proxy_url.as_ref().map(|url| url.expose().as_str()));
        let is_tls = !connection.server.starts_with("http:");
        let time = GardenTime::new(Clock::system(), Timestamp::default(), None);
        // The answer of any server contains the time.
        let options =
            Options { time: Some(time.clone()), tells_time: true, ..clusters::options(self.variable) };
        let client = Client::new(connection.clone(), options);
        let (version, stopped) = match client.as_ref().map(Client::version) {
            Ok(Ok(version)) => (Some(version), None),
            Ok(Err(error)) => (None, Stopped::kube(&error)),
            Err(error) => (None, Stopped::kube(error)),
        };
        self.clocks.push((place, time.skew_nanos()));
        let mut hops = way(place, proxy.as_deref(), is_tls, stopped.as_ref());
        if let Some(first) = hops.first_mut().filter(|first| first.state == State::Good) {
            first.text = redact::url(&connection.server);
        }
        self.found.append(&mut hops);
        if let Some(version) = version {
            self.kubernetes(place, &version.git_version);
        }
        client.ok().filter(|_| stopped.is_none())
    }

    /// Checks the permissions. The server has answered before, but perhaps without authentication.
    fn permissions(&mut self, place: &str, client: &Client, wanted: &[Access<'_>], remedy: &str) {
        let hop = "permissions";
        match access::missing(client, wanted) {
            Ok(missing) if missing.is_empty() => self.say(place, hop, State::Good, "", ""),
            Ok(missing) => {
                self.say(place, hop, State::Broken, format!("may not {}", missing.join(", ")), remedy);
            }
            Err(error) => match Stopped::kube(&error) {
                Some(stopped) => self.say(place, hop, State::Broken, stopped.why, stopped.remedy),
                None => self.say(place, hop, State::Broken, chain(&error), remedy),
            },
        }
    }

    /// The proxy on the way. The password is left out.
    fn proxy(&self, server: &str, own: Option<&str>) -> Option<String> {
        let url = Url::parse(server).ok()?;
        let policy = match own {
            Some(own) => ProxyPolicy::fixed(own),
            None => ProxyPolicy::from_env(&clusters::proxy_env(self.variable)),
        };
        policy.ok()?.proxy_for(&url.scheme, &url.host, url.port).map(Url::authority)
    }

    fn registries(&mut self, orders: &[(String, PullOrder)]) {
        let network = clusters::network(self.variable);
        let settings = self.settings;
        for registry in &settings.edge.registries {
            if let Some(dir) = registry.layout_dir.as_ref().filter(|dir| !dir.is_dir()) {
                let text = format!("{}: no such directory", dir.display());
                self.say(
                    &format!("registry {}", registry.host),
                    "layout",
                    State::Broken,
                    text,
                    "correct layoutDir",
                );
            }
            for host in std::iter::once(&registry.host).chain(&registry.mirrors) {
                self.registry(
                    host,
                    oci::probe(&network, &settings.edge.registries, host, orders.iter().map(|o| &o.1)),
                );
            }
        }
    }

    fn registry(&mut self, host: &str, answer: Result<(String, u16), oci::Error>) {
        let place = format!("registry {}", redact::url(host));
        let (base, stopped) = match &answer {
            Ok((base, _)) => (base.clone(), None),
            Err(oci::Error::Net { source, .. }) => (format!("https://{host}"), Some(Stopped::net(source))),
            Err(error) => {
                return self.say(
                    &place,
                    "configuration",
                    State::Broken,
                    chain(error),
                    "correct edge.registries",
                );
            }
        };
        let proxy = self.proxy(&base, None);
        let mut hops = way(&place, proxy.as_deref(), base.starts_with("https:"), stopped.as_ref());
        if let (Ok((_, status)), Some(last)) = (answer, hops.last_mut()) {
            match status {
                200 => {}
                401 => "requires a login: the agent uses the pull secret".clone_into(&mut last.text),
                status => (last.state, last.text) = (State::Odd, format!("answers {status} to /v2/")),
            }
        }
        self.found.append(&mut hops);
    }
}

/// The options for pulling the chart of a deployment; none if it is not pulled.
fn order(garden: &Garden, name: &str) -> Result<Option<PullOrder>, String> {
    let found: ControllerDeployment =
        garden.get(&CONTROLLER_DEPLOYMENT, &Key::cluster(name)).map_err(|error| chain(&error))?;
    match &found.helm {
        Some(helm) if matches!(InstallationPreview::raw_chart(helm), Ok(None)) => helm
            .oci_repository
            .as_ref()
            .map(|repository| InstallationPreview::order(garden, repository))
            .transpose(),
        _ => Ok(None),
    }
}
