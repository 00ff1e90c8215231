//! Parses the command line of `etcd`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use super::super::arguments::is_json;
use super::super::usage::Usage;
use crate::net::Url;
use crate::shoot::window::DailyWindow;
use crate::snapshot::copy::CopyOrder;
use crate::snapshot::gateway::EtcdTlsFiles;
use crate::snapshot::restore;

/// The command and its arguments.
#[derive(Debug)]
pub(super) enum EtcdCommand {
    /// The help of this command.
    Help(&'static str),
    Install {
        directory: PathBuf,
        give: Option<PathBuf>,
    },
    Start(Start),
    Snapshot(EtcdRun),
    Copy(SnapshotCopy),
    List {
        place: StorePlace,
        as_json: bool,
    },
}

/// The place of a store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StorePlace {
    Directory { root: PathBuf, prefix: String },
    S3 { credentials: PathBuf, prefix: String },
}

/// The arguments for starting etcd.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) place: restore::EtcdPaths,
    pub(super) store: StorePlace,
}

/// The arguments of one run.
#[derive(Debug)]
pub(super) struct EtcdRun {
    pub(super) endpoint: String,
    /// There are none without TLS.
    pub(super) files: Option<EtcdTlsFiles>,
    pub(super) order: RunOrder,
    /// How long to wait for an etcd that does not answer.
    pub(super) patience: Duration,
    pub(super) result: Option<PathBuf>,
    pub(super) store: StorePlace,
}

/// Which snapshot a run takes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunOrder {
    /// The next one of many.
    Regular { keep: usize, window: Option<DailyWindow> },
    /// The last one before the etcd moves.
    Final,
}

/// The arguments of a copy.
#[derive(Debug)]
pub(super) struct SnapshotCopy {
    pub(super) from: StorePlace,
    pub(super) to: StorePlace,
    pub(super) order: CopyOrder,
    pub(super) result: Option<PathBuf>,
}

/// The options of all commands.
#[derive(Default)]
struct Options {
    paths: Vec<(&'static str, PathBuf)>,
    texts: Vec<(&'static str, String)>,
    as_json: bool,
    is_final: bool,
    accepts_loss: bool,
}

const PATHS: [&str; 13] = [
    "give",
    "etcd",
    "etcdutl",
    "etcd-config",
    "data-dir",
    "ca",
    "cert",
    "key",
    "result",
    "directory",
    "s3",
    "from-directory",
    "from-s3",
];
const TEXTS: [&str; 5] = ["endpoint", "keep", "maintenance-window", "prefix", "wait"];

/// The options of each command.
fn belongs(verb: &str, option: &str) -> bool {
    let own: &[&str] = match verb {
        "install" => return option == "give",
        "start" => &["etcd", "etcdutl", "etcd-config", "data-dir"],
        "snapshot" => {
            &["endpoint", "ca", "cert", "key", "keep", "maintenance-window", "final", "result", "wait"]
        }
        "copy" => &["from-directory", "from-s3", "accept-loss", "result", "wait"],
        _ => &[],
    };
    own.contains(&option) || ["directory", "s3", "prefix"].contains(&option)
}

/// The commands of `etcd`.
const COMMANDS: [&str; 5] = ["etcd install", "etcd start", "etcd snapshot", "etcd copy", "etcd list"];

/// How long a copy waits for a final snapshot, unless an option sets it.
const PATIENCE_S: u64 = 300;

/// Parses the arguments after `etcd`.
pub(super) fn parse(args: Vec<OsString>) -> Result<EtcdCommand, Usage> {
    let mut parser = Parser::from_args(args);
    let verb = match parser.next().map_err(|error| Usage::from(error).of("etcd"))? {
        Some(Value(word)) => word.to_string_lossy().into_owned(),
        Some(Long("help") | Short('h')) => return Ok(EtcdCommand::Help("etcd")),
        Some(other) => return Err(Usage::unexpected("etcd", &other)),
        None => return Err(Usage::incomplete("etcd")),
    };
    let wanted = format!("etcd {verb}");
    match COMMANDS.into_iter().find(|command| *command == wanted) {
        Some(command) => task(command, &verb, &mut parser).map_err(|usage| usage.of(command)),
        None if verb == "help" => Ok(EtcdCommand::Help("etcd")),
        None => Err(Usage::unknown(&wanted)),
    }
}

fn task(command: &'static str, verb: &str, parser: &mut Parser) -> Result<EtcdCommand, Usage> {
    let (mut words, mut options) = (Vec::new(), Options::default());
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(EtcdCommand::Help(command)),
            Long("output") | Short('o') if verb == "list" => options.as_json = is_json(&parser.value()?)?,
            Long("final") if belongs(verb, "final") => options.is_final = true,
            Long("accept-loss") if belongs(verb, "accept-loss") => options.accepts_loss = true,
            Long(option) if belongs(verb, option) => {
                let name = |names: &[&'static str]| names.iter().copied().find(|name| *name == option);
                if let Some(name) = name(&PATHS) {
                    options.paths.push((name, parser.value()?.into()));
                } else if let Some(name) = name(&TEXTS) {
                    options.texts.push((name, parser.value()?.to_string_lossy().into_owned()));
                }
            }
            Value(word) if verb == "install" && words.is_empty() => words.push(word),
            other => return Err(Usage::unexpected(command, &other)),
        }
    }
    Ok(match verb {
        "install" => {
            let directory = words.into_iter().next().ok_or_else(|| missing("the directory"))?.into();
            EtcdCommand::Install { directory, give: options.path("give") }
        }
        "start" => EtcdCommand::Start(options.start()?),
        "snapshot" => EtcdCommand::Snapshot(options.run()?),
        "copy" => EtcdCommand::Copy(options.copy()?),
        _ => EtcdCommand::List { place: options.store()?, as_json: options.as_json },
    })
}

fn missing(what: &str) -> Usage {
    wrong(format!("{what} is missing"))
}

fn wrong(why: impl Into<String>) -> Usage {
    Usage::new("", why)
}

impl Options {
    /// The last one wins.
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.paths.iter().rfind(|(known, _)| *known == name).map(|(_, path)| path.clone())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.texts.iter().rfind(|(known, _)| *known == name).map(|(_, text)| text.clone())
    }

    fn store(&self) -> Result<StorePlace, Usage> {
        self.store_of("directory", "s3")
    }

    /// The store that one of two options names.
    fn store_of(&self, directory: &str, s3: &str) -> Result<StorePlace, Usage> {
        let prefix = self.text("prefix").ok_or_else(|| missing("--prefix"))?;
        match (self.path(directory), self.path(s3)) {
            (Some(root), None) => Ok(StorePlace::Directory { root, prefix }),
            (None, Some(credentials)) => Ok(StorePlace::S3 { credentials, prefix }),
            (Some(_), Some(_)) => Err(wrong(format!("give --{directory} or --{s3}, and not both"))),
            (None, None) => Err(missing(&format!("--{directory} or --{s3}"))),
        }
    }

    /// The seconds to wait.
    fn wait(&self, usual_s: u64) -> Result<Duration, Usage> {
        let seconds =
            |text: String| text.parse().map_err(|_| wrong(format!("--wait={text}: expected seconds")));
        let seconds = self.text("wait").map(seconds).transpose()?.unwrap_or(usual_s);
        Ok(Duration::from_secs(seconds))
    }

    fn copy(&self) -> Result<SnapshotCopy, Usage> {
        Ok(SnapshotCopy {
            from: self.store_of("from-directory", "from-s3")?,
            to: self.store()?,
            order: CopyOrder { patience: self.wait(PATIENCE_S)?, accepts_loss: self.accepts_loss },
            result: self.path("result"),
        })
    }

    fn order(&self) -> Result<RunOrder, Usage> {
        let (keep, window) = (self.text("keep"), self.text("maintenance-window"));
        if self.is_final {
            return match (keep, window) {
                (None, None) => Ok(RunOrder::Final),
                _ => Err(wrong(
                    "--final removes no snapshot and releases no space: give it without --keep and --maintenance-window",
                )),
            };
        }
        let keep = keep.ok_or_else(|| missing("--keep"))?;
        let number = keep.parse().ok().filter(|keep| *keep > 0);
        let keep = number.ok_or_else(|| wrong(format!("--keep={keep}: expected a number of 1 or more")))?;
        let window = |text: String| {
            let window = text.split_once(',').and_then(|(begin, end)| DailyWindow::parse(begin, end));
            window.ok_or_else(|| {
                wrong(format!(
                    "--maintenance-window={text}: expected BEGIN,END, for example 220000+0100,230000+0100"
                ))
            })
        };
        let window = self.text("maintenance-window").map(window).transpose()?;
        Ok(RunOrder::Regular { keep, window })
    }

    fn start(&self) -> Result<Start, Usage> {
        let need = |name: &str, option| self.path(name).ok_or_else(|| missing(option));
        Ok(Start {
            place: restore::EtcdPaths {
                etcd: need("etcd", "--etcd")?,
                etcdutl: need("etcdutl", "--etcdutl")?,
                config: need("etcd-config", "--etcd-config")?,
                data: need("data-dir", "--data-dir")?,
            },
            store: self.store()?,
        })
    }

    fn run(&self) -> Result<EtcdRun, Usage> {
        let endpoint = self.text("endpoint").ok_or_else(|| missing("--endpoint"))?;
        let files = match (self.path("ca"), self.path("cert"), self.path("key")) {
            (Some(ca), Some(certificate), Some(key)) => Some(EtcdTlsFiles { ca, certificate, key }),
            (None, None, None) => None,
            _ => return Err(missing("one of --ca, --cert and --key")),
        };
        let scheme = if files.is_some() { "https" } else { "http" };
        if !Url::parse(&endpoint)
            .is_ok_and(|url| url.scheme == scheme && url.path.is_empty() && url.login.is_none())
        {
            return Err(wrong(format!(
                "--endpoint={endpoint}: expected https://HOST:PORT, or http://HOST:PORT without --ca, --cert, --key"
            )));
        }
        Ok(EtcdRun {
            endpoint,
            files,
            order: self.order()?,
            patience: self.wait(0)?,
            result: self.path("result"),
            store: self.store()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<EtcdCommand, String> {
        parse(line.split_whitespace().map(OsString::from).collect()).map_err(|usage| usage.to_string())
    }

    #[test]
    fn command_lines_say_what_to_do() {
        let directory = || StorePlace::Directory { root: "d".into(), prefix: "p/q".to_owned() };
        let s3 = || StorePlace::S3 { credentials: "c".into(), prefix: "p".to_owned() };
        let Ok(EtcdCommand::Install { directory: to, give }) = parsed("install /agent --give=/data") else {
            panic!()
        };
        assert_eq!((to, give), ("/agent".into(), Some("/data".into())));
        let line = "start --etcd=e --etcdutl=u --etcd-config=f --data-dir=d --directory=d --prefix=p/q";
        let Ok(EtcdCommand::Start(start)) = parsed(line) else { panic!() };
        let place = restore::EtcdPaths {
            etcd: "e".into(),
            etcdutl: "u".into(),
            config: "f".into(),
            data: "d".into(),
        };
        assert_eq!((start.place, start.store), (place, directory()));
        let line = "snapshot --endpoint=https://etcd-main-client:2379 --ca=a --cert=b --key=c --keep=7 \
                    --maintenance-window=220000+0100,230000+0100 --result=r --s3=c --prefix p --wait=600";
        let Ok(EtcdCommand::Snapshot(run)) = parsed(line) else { panic!() };
        assert_eq!((run.endpoint.as_str(), run.store), ("https://etcd-main-client:2379", s3()));
        let window = DailyWindow::parse("210000+0000", "220000+0000");
        assert_eq!((run.order, run.result), (RunOrder::Regular { keep: 7, window }, Some("r".into())));
        assert_eq!(run.files.map(|files| files.key), Some("c".into()));
        assert_eq!(run.patience, Duration::from_secs(600));
        let line = "snapshot --endpoint=http://127.0.0.1:2379 --keep 1 --s3 c --prefix=p";
        let Ok(EtcdCommand::Snapshot(run)) = parsed(line) else { panic!() };
        assert!(run.files.is_none() && run.result.is_none() && run.patience.is_zero());
        assert_eq!(run.order, RunOrder::Regular { keep: 1, window: None });
        let line = "snapshot --endpoint=http://127.0.0.1:2379 --final --s3 c --prefix=p";
        let Ok(EtcdCommand::Snapshot(run)) = parsed(line) else { panic!() };
        assert_eq!(run.order, RunOrder::Final);
        let Ok(EtcdCommand::List { place, as_json }) = parsed("list --directory=d --prefix=p/q -o json")
        else {
            panic!()
        };
        assert_eq!((place, as_json), (directory(), true));
        let Ok(EtcdCommand::Copy(copy)) = parsed("copy --from-s3=x --s3=c --prefix=p") else { panic!() };
        let from = StorePlace::S3 { credentials: "x".into(), prefix: "p".to_owned() };
        let order = CopyOrder { patience: Duration::from_secs(300), accepts_loss: false };
        assert_eq!((copy.from, copy.to, copy.order, copy.result), (from, s3(), order, None));
        let line = "copy --from-directory=x --directory=d --prefix=p/q --wait=7 --accept-loss --result=/r";
        let Ok(EtcdCommand::Copy(copy)) = parsed(line) else { panic!() };
        let from = StorePlace::Directory { root: "x".into(), prefix: "p/q".to_owned() };
        let order = CopyOrder { patience: Duration::from_secs(7), accepts_loss: true };
        assert_eq!((copy.from, copy.to, copy.order), (from, directory(), order));
        assert_eq!(copy.result, Some("/r".into()));
        for (line, page) in
            [("--help", "etcd"), ("help", "etcd"), ("list -h", "etcd list"), ("start --help", "etcd start")]
        {
            assert!(matches!(parsed(line), Ok(EtcdCommand::Help(about)) if about == page), "{line}");
        }
    }

    #[test]
    fn command_lines_without_meaning_say_why() {
        let verbs = "a command is missing:\n  install ";
        let snapshot = "snapshot --directory=d --prefix=p";
        let endpoint = "expected https://HOST:PORT, or http://HOST:PORT without --ca, --cert, --key";
        let table = [
            ("".to_owned(), verbs.to_owned()),
            ("x".to_owned(), "unknown command \"etcd x\"".to_owned()),
            ("lst".to_owned(), "unknown command \"etcd lst\"; did you mean \"etcd list\"?".to_owned()),
            ("--keep=1".to_owned(), "--keep belongs to gardenlet etcd snapshot".to_owned()),
            ("install".to_owned(), "the directory is missing".to_owned()),
            ("install a b".to_owned(), "unexpected argument \"b\"".to_owned()),
            ("install a --keep=1".to_owned(), "--keep belongs to gardenlet etcd snapshot".to_owned()),
            ("snapshot -o json".to_owned(), "-o is not an option of this command: its output has".to_owned()),
            ("list".to_owned(), "--prefix is missing".to_owned()),
            ("list --prefix=p".to_owned(), "--directory or --s3 is missing".to_owned()),
            (
                "list --prefix=p --s3=a --directory=b".to_owned(),
                "give --directory or --s3, and not both".to_owned(),
            ),
            (
                "list --prefix=p --s3=a -o xml".to_owned(),
                "--output=xml: expected text, json or yaml".to_owned(),
            ),
            ("list --prefix=p --s3=a --scratch=x".to_owned(), "unknown option --scratch".to_owned()),
            ("start --prefix=p --s3=a".to_owned(), "--etcd is missing".to_owned()),
            (snapshot.to_owned(), "--endpoint is missing".to_owned()),
            (format!("{snapshot} --endpoint=https://h"), format!("--endpoint=https://h: {endpoint}")),
            (
                format!("{snapshot} --endpoint=http://h/x --keep=1"),
                format!("--endpoint=http://h/x: {endpoint}"),
            ),
            (format!("{snapshot} --endpoint=http://h"), "--keep is missing".to_owned()),
            (
                format!("{snapshot} --endpoint=http://h --keep=0"),
                "--keep=0: expected a number of 1 or more".to_owned(),
            ),
            (
                format!("{snapshot} --endpoint=http://h --keep=1 --final"),
                "--final removes no snapshot and releases no space".to_owned(),
            ),
            (
                "list --prefix=p --s3=a --final".to_owned(),
                "--final belongs to gardenlet etcd snapshot".to_owned(),
            ),
            ("copy --from-s3=a --prefix=p".to_owned(), "--directory or --s3 is missing".to_owned()),
            ("copy --s3=a --prefix=p".to_owned(), "--from-directory or --from-s3 is missing".to_owned()),
            (
                "copy --from-s3=a --from-directory=b --s3=c --prefix=p".to_owned(),
                "give --from-directory or --from-s3, and not both".to_owned(),
            ),
            (
                "copy --from-s3=a --s3=c --prefix=p --wait=5m".to_owned(),
                "--wait=5m: expected seconds".to_owned(),
            ),
            (
                format!("{snapshot} --endpoint=http://h --keep=1 --wait=10m"),
                "--wait=10m: expected seconds".to_owned(),
            ),
            (
                format!("{snapshot} --endpoint=http://h --keep=1 --maintenance-window=22,23"),
                "--maintenance-window=22,23: expected BEGIN,END, for example 220000+0100,230000+0100"
                    .to_owned(),
            ),
            (
                format!("{snapshot} --endpoint=https://h --ca=x"),
                "one of --ca, --cert and --key is missing".to_owned(),
            ),
        ];
        for (line, expected) in table {
            let said = parsed(&line).map(drop).unwrap_err();
            let (_, why) = said.split_once(": ").unwrap();
            assert!(why.starts_with(&expected), "{line}: {said}");
        }
    }
}
