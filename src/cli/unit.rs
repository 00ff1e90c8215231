//! What the systemd unit of a configuration hands to the agent: variables and credentials. A command that is run by hand
//! gets neither, so it reads the files of the unit.

use std::fs;
use std::path::{Path, PathBuf};

use super::Variable;
use super::arguments::{CONFIG, ClusterOptions};
use super::clusters::set;
use crate::api::meta::text;
use crate::base::capped;
use crate::config::file::load_to_run;
use crate::config::{ConfigProblem, LoadedConfig, load as load_text};
use crate::identity::bootstrap::CREDENTIAL;
use crate::limits;

/// Where systemd looks for units, in this order.
const PLACES: &str = "/etc/systemd/system:/run/systemd/system:/usr/local/lib/systemd/system:/usr/lib/systemd/system:/lib/systemd/system";
/// The packaged units: of the only agent of a host, and of one of several.
const UNITS: [&str; 2] = ["gardenlet", "gardenlet@"];
/// Where systemd keeps the state of services.
const STATE: &str = "/var/lib";

type Pairs = Vec<(String, String)>;

/// A unit, as far as it concerns the agent. The values have the specifier `%d` for the directory of credentials.
#[derive(Debug, Default, PartialEq, Eq)]
struct Service {
    start: String,
    state: Option<String>,
    variables: Pairs,
    /// Variables from files. They replace the others.
    from_files: Pairs,
    credentials: Pairs,
}

impl Service {
    /// Reads the files of a unit: its own one, then its drop-ins.
    fn read(files: &[String], instance: &str) -> Self {
        let mut service = Self::default();
        for file in files {
            let (text, mut section) = (file.replace("\\\n", " ").replace("%i", instance), "");
            for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
                if line.starts_with('[') {
                    section = if line == "[Service]" { "Service" } else { "" };
                } else if let Some((key, value)) = line.split_once('=').filter(|_| !section.is_empty()) {
                    service.take(key.trim_end(), value.trim_start());
                }
            }
        }
        service
    }

    /// An empty value removes earlier ones.
    fn take(&mut self, key: &str, value: &str) {
        match key {
            "ExecStart" => value.clone_into(&mut self.start),
            "StateDirectory" => self.state = words(value).into_iter().next(),
            "Environment" if value.is_empty() => self.variables.clear(),
            "EnvironmentFile" if value.is_empty() => self.from_files.clear(),
            "LoadCredential" if value.is_empty() => self.credentials.clear(),
            "Environment" => {
                for word in words(value) {
                    self.variables.extend(pair(&word, '='));
                }
            }
            // A dash allows the file to be missing.
            "EnvironmentFile" => {
                self.from_files.extend(assignments(Path::new(value.trim_start_matches('-'))));
            }
            "LoadCredential" => self.credentials.extend(pair(value, ':')),
            _ => {}
        }
    }

    /// The configuration that it starts the agent with: as the agent finds it, in its arguments, in a variable, or in its
    /// usual place. A masked unit starts nothing.
    fn config(&self) -> Option<PathBuf> {
        const VARIABLE: &str = "GARDENLET_CONFIG";
        let words = words(&self.start);
        let value = match words.iter().position(|word| word.starts_with("--config")) {
            Some(at) => {
                words[at].strip_prefix("--config=").or_else(|| words.get(at + 1).map(String::as_str))?
            }
            None if words.is_empty() => return None,
            None if last(&self.variables, VARIABLE).is_none_or(str::is_empty) => CONFIG,
            None => return self.variable(VARIABLE).map(PathBuf::from),
        };
        match value.strip_prefix('$') {
            Some(name) => self.variable(name.trim_matches(['{', '}'])).map(PathBuf::from),
            None => Some(PathBuf::from(value)),
        }
    }

    fn credential(&self, name: &str) -> Option<&str> {
        last(&self.credentials, name)
    }

    /// A variable of the agent. A file in the directory of credentials is the file that systemd copies.
    fn variable(&self, name: &str) -> Option<String> {
        if name == "STATE_DIRECTORY" {
            return self.state.as_ref().map(|state| format!("{STATE}/{state}"));
        }
        let value = last(&self.from_files, name).or_else(|| last(&self.variables, name))?;
        let value = value.strip_prefix("%d/").map_or(Some(value), |name| self.credential(name))?;
        // Other specifiers are known only to systemd.
        (!value.contains('%')).then(|| value.to_owned())
    }
}

fn pair(text: &str, sign: char) -> Option<(String, String)> {
    text.split_once(sign).map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn last<'p>(pairs: &'p Pairs, name: &str) -> Option<&'p str> {
    pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The variables in a file of a unit. A file that cannot be read has none.
fn assignments(path: &Path) -> Pairs {
    let text = capped::read_file(path, limits::CONFIG_FILE_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).replace("\\\n", "");
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim_end().to_owned(), words(value).join(" ")))
        .collect()
}

/// The words of a value, without their quotes.
fn words(value: &str) -> Vec<String> {
    let (mut found, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in value.chars().chain([' ']) {
        match (c, quote) {
            (_, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (_, None) if c.is_whitespace() => {
                found.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
            }
            _ => word.push(c),
        }
    }
    found
}

/// The files of a unit: its own one, then its drop-ins, in the order of their names. An earlier place hides files of the
/// same name in later places. In each place, the files of an instance come before those of its template. The own file of
/// an instance hides its template in every place.
fn files(places: &str, unit: &str, instance: &str) -> Option<Vec<String>> {
    let places = || places.split(':').filter(|place| !place.is_empty()).map(Path::new);
    let read = |path: &Path| {
        let text = capped::read_file(path, limits::CONFIG_FILE_BYTES_MAX).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let names = [format!("{unit}{instance}.service"), format!("{unit}.service")];
    let names = if instance.is_empty() { &names[1..] } else { &names[..] };
    let own = |name: &String| places().find_map(|place| read(&place.join(name)));
    let mut found = vec![names.iter().find_map(own)?];
    let mut drop_ins: Vec<PathBuf> = Vec::new();
    for folder in places().flat_map(|place| names.iter().map(move |name| place.join(format!("{name}.d")))) {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let is_new = drop_ins.iter().all(|known| known.file_name() != path.file_name());
            if is_new && path.extension().is_some_and(|it| it == "conf") {
                let at = drop_ins.partition_point(|known| known.file_name() < path.file_name());
                drop_ins.insert(at, path);
            }
        }
    }
    found.extend(drop_ins.iter().filter_map(|path| read(path)));
    Some(found)
}

/// The unit that starts the agent with this configuration, and its name.
fn find(places: &str, config: &Path) -> Option<(String, Service)> {
    let stem = config.file_stem()?.to_str()?;
    UNITS.into_iter().find_map(|unit| {
        let instance = if unit.ends_with('@') { stem } else { "" };
        let service = Service::read(&files(places, unit, instance)?, instance);
        let is_ours = service.config().is_some_and(|other| is_same(&other, config));
        is_ours.then(|| (format!("{unit}{instance}.service"), service))
    })
}

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole(one) == whole(other)
}

/// The surroundings of a command: its own environment, and below it that of the unit if the command is run by hand.
pub(super) struct CommandEnvironment<'a> {
    own: Variable<'a>,
    config: &'a Path,
    /// The options of the command.
    way: &'a ClusterOptions,
    unit: Option<(String, Service)>,
}

impl<'a> CommandEnvironment<'a> {
    pub(super) fn new(config: &'a Path, own: Variable<'a>, way: &'a ClusterOptions) -> Self {
        let is_by_hand =
            ["CREDENTIALS_DIRECTORY", "KUBERNETES_SERVICE_HOST"].iter().all(|name| set(own, name).is_none());
        // systemd has this variable, too.
        let places = set(own, "SYSTEMD_UNIT_PATH").unwrap_or_else(|| PLACES.to_owned());
        let unit = is_by_hand.then(|| find(&places, config)).flatten();
        Self { own, config, way, unit }
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        if let Some(path) = self.way.kubeconfig.as_ref().filter(|_| name == "KUBECONFIG") {
            return Some(path.display().to_string());
        }
        set(self.own, name).or_else(|| self.unit.as_ref()?.1.variable(name))
    }

    /// The variables that the unit sets, with the values that [`CommandEnvironment::variable`] returns: an own one may replace them.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let service = self.unit.iter().map(|(_, service)| service);
        let names = service.flat_map(|service| service.variables.iter().chain(&service.from_files));
        names.filter_map(|(name, _)| Some((name.clone(), self.variable(name)?))).collect()
    }

    /// Reads the configuration as the agent does, with the bootstrap kubeconfig that the unit hands over.
    pub(super) fn load(&self) -> Result<LoadedConfig, Vec<ConfigProblem>> {
        self.complete(load_to_run(self.config, &|name| self.variable(name))?)
    }

    /// Reads a text instead of the configuration.
    pub(super) fn load_text(&self, text: &str) -> Result<LoadedConfig, Vec<ConfigProblem>> {
        self.complete(load_text(text, "")?.into_run(&|name| self.variable(name))?)
    }

    fn complete(&self, mut loaded: LoadedConfig) -> Result<LoadedConfig, Vec<ConfigProblem>> {
        loaded.settings.edge.bootstrap_credential = self.bootstrap().map(PathBuf::from);
        let seed = &mut loaded.settings.seed_client_connection;
        self.way.context.clone_into(&mut seed.context);
        if seed.kubeconfig.is_none() && !seed.context.is_empty() {
            let message = "is part of a kubeconfig: name it with --kubeconfig or KUBECONFIG".to_owned();
            return Err(vec![ConfigProblem { path: "--context".to_owned(), message }]);
        }
        Ok(loaded)
    }

    /// The kubeconfig of the seed that the command uses, if the agent of the unit uses another one.
    pub(super) fn other_seed(&self, loaded: &LoadedConfig) -> Option<String> {
        let (name, service) = self.unit.as_ref()?;
        let used = loaded.settings.seed_client_connection.kubeconfig.as_deref()?;
        let configured = text(&loaded.settings.document["seedClientConnection"]["kubeconfig"]);
        let theirs = service.variable("KUBECONFIG").filter(|path| !path.is_empty());
        let is_theirs = is_same(Path::new(theirs.as_deref().unwrap_or(configured)), used);
        (!is_theirs).then(|| format!("{}, not that of {name}", used.display()))
    }

    /// The file of the bootstrap kubeconfig.
    fn bootstrap(&self) -> Option<&str> {
        self.unit.as_ref()?.1.credential(CREDENTIAL)
    }

    /// What remains to be done after a bootstrap is requested.
    pub(super) fn after_bootstrap(&self) -> String {
        let unit = self.bootstrap().and(self.unit.as_ref());
        unit.map_or_else(String::new, |(name, _)| {
            format!("systemd copies its file when the service starts. If the file is newer: systemctl restart {name}\n")
        })
    }

    /// Why the agent gets no bootstrap kubeconfig from its unit, if it does not.
    pub(super) fn lacks(&self) -> Option<String> {
        let Some((name, service)) = &self.unit else {
            return Some("no unit of systemd starts an agent with this configuration".to_owned());
        };
        let lacks = service.credential(CREDENTIAL).is_none();
        lacks.then(|| format!("{name} has no LoadCredential={CREDENTIAL}"))
    }

    /// A bootstrap kubeconfig in its usual place that the unit does not hand over.
    pub(super) fn stray(&self) -> Option<PathBuf> {
        if self.bootstrap().is_some() || set(self.own, "KUBERNETES_SERVICE_HOST").is_some() {
            return None;
        }
        let folder = self.config.parent()?;
        let own = folder.join(self.config.file_stem()?);
        let folder = if own.is_dir() { own } else { folder.to_owned() };
        Some(folder.join("bootstrap.kubeconfig")).filter(|path| path.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str = include_str!("../../packaging/systemd/gardenlet.service");
    const OF_SEVERAL: &str = include_str!("../../packaging/systemd/gardenlet@.service");
    const BOOTSTRAP: &str = include_str!("../../packaging/systemd/bootstrap.conf");
    const BOOTSTRAP_OF_SEVERAL: &str = include_str!("../../packaging/systemd/bootstrap@.conf");

    fn read(files: &[&str], instance: &str) -> Service {
        Service::read(&files.iter().map(ToString::to_string).collect::<Vec<_>>(), instance)
    }

    #[test]
    fn the_packaged_units_say_what_they_hand_over() {
        let table = [
            (&[SERVICE][..], "", "/etc/gardenlet/config.yaml", "/etc/gardenlet", None),
            (
                &[SERVICE, BOOTSTRAP],
                "",
                "/etc/gardenlet/config.yaml",
                "/etc/gardenlet",
                Some("/etc/gardenlet/bootstrap.kubeconfig"),
            ),
            (
                &[OF_SEVERAL, BOOTSTRAP_OF_SEVERAL],
                "edge-1",
                "/etc/gardenlet/edge-1.yaml",
                "/etc/gardenlet/edge-1",
                Some("/etc/gardenlet/edge-1/bootstrap.kubeconfig"),
            ),
        ];
        for (files, instance, config, folder, bootstrap) in table {
            let service = read(files, instance);
            assert_eq!(service.config().as_deref(), Some(Path::new(config)));
            assert_eq!(service.credential(CREDENTIAL), bootstrap);
            let variable = |name| service.variable(name).unwrap_or_default();
            assert_eq!(variable("KUBECONFIG"), format!("{folder}/seed.kubeconfig"));
            assert_eq!(variable("NAMESPACE"), "garden");
            let dash = if instance.is_empty() { "" } else { "-" };
            assert_eq!(variable("STATE_DIRECTORY"), format!("/var/lib/gardenlet{dash}{instance}"));
            assert_eq!(service.variable("HOSTNAME"), None, "only systemd knows %H");
        }
    }

    #[test]
    fn a_unit_names_its_configuration_in_each_way_of_the_agent() {
        let start = |start: &str, more: &str| {
            let unit = format!("[Service]\nExecStart={start}\n{more}");
            read(&[&unit], "edge-1").config().map(|path| path.display().to_string())
        };
        let variable = "Environment=GARDENLET_CONFIG=/srv/%i.yaml\n";
        let table = [
            ("/g --config=/c.yaml", variable, Some("/c.yaml")),
            ("/g run --config /c.yaml", variable, Some("/c.yaml")),
            ("/usr/bin/gardenlet run", variable, Some("/srv/edge-1.yaml")),
            ("/usr/bin/gardenlet run", "", Some("/etc/gardenlet/config.yaml")),
            ("/g run", "Environment=GARDENLET_CONFIG=\n", Some("/etc/gardenlet/config.yaml")),
            ("/g --config=${GARDENLET_CONFIG}", variable, Some("/srv/edge-1.yaml")),
            ("/g --config $GARDENLET_CONFIG", variable, Some("/srv/edge-1.yaml")),
            ("/g --config=$OTHER", variable, None),
            // Only systemd knows this folder.
            ("/g run", "Environment=GARDENLET_CONFIG=%h/g.yaml\n", None),
            ("", variable, None),
        ];
        for (command, more, expected) in table {
            assert_eq!(start(command, more).as_deref(), expected, "{command} {more}");
        }
    }

    /// The order in which systemd finds files: by place, and in each place the instance before its template.
    #[test]
    fn the_files_of_an_instance_hide_those_of_its_template() {
        let root = std::env::temp_dir().join(format!("gardenlet-unit-{}", crate::base::random::hex(12)));
        let places = format!("{0}/etc::{0}/lib", root.display());
        let write = |file: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        };
        let found = |instance: &str| files(&places, "gardenlet@", instance).unwrap_or_default().join(" ");
        assert_eq!(found("edge-1"), "");
        // Each file hides what was found before.
        let table = [
            ("lib/gardenlet@.service", "lib/gardenlet@.service"),
            ("etc/gardenlet@.service", "etc/gardenlet@.service"),
            ("lib/gardenlet@edge-1.service", "lib/gardenlet@edge-1.service"),
            ("etc/gardenlet@edge-1.service", "etc/gardenlet@edge-1.service"),
        ];
        for (file, expected) in table {
            write(file);
            assert_eq!(found("edge-1"), expected);
        }
        assert_eq!(found("edge-2"), "etc/gardenlet@.service");
        for folder in ["lib/gardenlet@", "lib/gardenlet@edge-1", "etc/gardenlet@", "etc/gardenlet@edge-1"] {
            let file = format!("{folder}.service.d/b.conf");
            write(&file);
            assert_eq!(found("edge-1"), format!("etc/gardenlet@edge-1.service {file}"));
        }
        write("lib/gardenlet@.service.d/a.conf");
        write("lib/gardenlet@edge-1.service.d/c.conf");
        assert_eq!(
            found("edge-1"),
            "etc/gardenlet@edge-1.service lib/gardenlet@.service.d/a.conf etc/gardenlet@edge-1.service.d/b.conf \
             lib/gardenlet@edge-1.service.d/c.conf"
        );
        assert_eq!(
            found("edge-2"),
            "etc/gardenlet@.service lib/gardenlet@.service.d/a.conf etc/gardenlet@.service.d/b.conf"
        );
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_file_replaces_variables_of_the_unit() {
        let path = std::env::temp_dir().join(format!("gardenlet-variables-{}", crate::base::random::hex(12)));
        fs::write(&path, "# proxies\n HTTPS_PROXY = \"http://p:2\"\n;B=1\nNO_PROXY=a,\\\nb\n\nword\n")
            .unwrap();
        let unit = format!(
            "[Service]\nEnvironmentFile={0}\nEnvironment=HTTPS_PROXY=http://p:1 A=b\nEnvironmentFile=-{0}.gone\n",
            path.display()
        );
        let service = read(&[&unit], "");
        let all = ["HTTPS_PROXY", "NO_PROXY", "A", "B", "word"]
            .map(|name| service.variable(name).unwrap_or_default());
        assert_eq!(all, ["http://p:2", "a,b", "b", "", ""]);
        let service = read(&[&unit, "[Service]\nEnvironmentFile=\n"], "");
        assert_eq!(service.variable("HTTPS_PROXY").as_deref(), Some("http://p:1"));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn own_variables_replace_those_of_the_unit() {
        let folder = std::env::temp_dir().join(format!("gardenlet-handed-{}", crate::base::random::hex(12)));
        fs::create_dir_all(&folder).unwrap();
        let config = folder.join("config.yaml");
        fs::write(&config, "").unwrap();
        let unit = format!(
            "[Service]\nExecStart=/g run --config={}\nEnvironment=HTTPS_PROXY=http://p:1 NO_PROXY=a HTTP_PROXY=http://p:2\n",
            config.display()
        );
        fs::write(folder.join("gardenlet.service"), unit).unwrap();
        let own = |name: &str| match name {
            "SYSTEMD_UNIT_PATH" => Some(folder.display().to_string()),
            "NO_PROXY" => Some("b".to_owned()),
            // An empty value counts as none.
            "HTTP_PROXY" => Some(String::new()),
            _ => None,
        };
        let way = ClusterOptions::default();
        let all = CommandEnvironment::new(&config, &own, &way).variables();
        let expected = [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "b"), ("HTTP_PROXY", "http://p:2")];
        assert_eq!(all, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_drop_in_adds_and_removes() {
        let proxy = "[Service]\nEnvironment=\"HTTPS_PROXY=http://p:1\" 'A=b c' \\\n  KUBECONFIG=/k\n";
        let service = read(&[SERVICE, proxy], "");
        let variable = |name| service.variable(name);
        assert_eq!(variable("HTTPS_PROXY").as_deref(), Some("http://p:1"));
        assert_eq!((variable("A").as_deref(), variable("KUBECONFIG").as_deref()), (Some("b c"), Some("/k")));
        let other = "[Unit]\nEnvironment=B=c\n[Service]\n# LoadCredential=bootstrap-kubeconfig:/x\n\
                     ExecStart=\nExecStart=/g run --config /c.yaml\nLoadCredential=\nEnvironment=\nEnvironment=C=%d/gone\n";
        let service = read(&[SERVICE, BOOTSTRAP, other], "");
        assert_eq!(service.config().as_deref(), Some(Path::new("/c.yaml")));
        assert_eq!((service.credentials.len(), service.credential(CREDENTIAL)), (0, None));
        assert_eq!(
            (service.variable("B"), service.variable("C"), service.variable("NAMESPACE")),
            (None, None, None)
        );
    }
}
