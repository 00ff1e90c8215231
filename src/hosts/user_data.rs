//! The user data of a host: a POSIX shell script that writes the files and starts the units of an OperatingSystemConfig.
//!
//! A machine of a cloud gets its user data from the cloud. A host gets it from its owner, who runs it. The placeholders for the token and the name of
//! the machine stay in it as plain text.

use std::fmt::Write;

use serde_json::Value;

use crate::api::meta::text;

const UNITS: &str = "/etc/systemd/system";
const HEAD: &str = "\
#!/bin/sh
# Writes the files of a new node and starts its units.
set -eu

# put MODE FILE: writes what it reads to a file, whole or not at all.
put() {
  mkdir -p \"${2%/*}\"
  (umask 077 && cat >\"$2.partial\")
  chmod \"$1\" \"$2.partial\"
  mv -f \"$2.partial\" \"$2\"
}
";
/// Files that the owner of the folder does not limit can be read by all.
const MODE: u64 = 0o600;
const UNIT_MODE: &str = "0644";

/// The script for a spec.
pub(super) fn script(spec: &Value) -> String {
    let mut script = HEAD.to_owned();
    for file in spec["files"].as_array().into_iter().flatten() {
        let inline = &file["content"]["inline"];
        let mode = format!("{:04o}", file["permissions"].as_u64().unwrap_or(MODE));
        let (path, data) = (text(&file["path"]), text(&inline["data"]));
        put(&mut script, &mode, path, data, inline["encoding"] == "b64");
    }
    let units: Vec<&Value> = spec["units"].as_array().into_iter().flatten().collect();
    for unit in &units {
        let name = text(&unit["name"]);
        if let Some(content) = unit["content"].as_str() {
            put(&mut script, UNIT_MODE, &format!("{UNITS}/{name}"), content, false);
        }
        for drop_in in unit["dropIns"].as_array().into_iter().flatten() {
            let path = format!("{UNITS}/{name}.d/{}", text(&drop_in["name"]));
            put(&mut script, UNIT_MODE, &path, text(&drop_in["content"]), false);
        }
    }
    script.push_str("\nsystemctl daemon-reload\n");
    for unit in units {
        let name = quoted(text(&unit["name"]));
        if unit["enable"] != false {
            // Its text is written to a string, which does not fail.
            let _ = writeln!(script, "systemctl enable {name}");
        }
        if let Some(command) = unit["command"].as_str() {
            let _ = writeln!(script, "systemctl --no-block {} {name}", quoted(command));
        }
    }
    script
}

/// Adds one file to the script.
fn put(script: &mut String, mode: &str, path: &str, data: &str, is_encoded: bool) {
    let path = quoted(path);
    let _ = if is_encoded {
        writeln!(script, "\nbase64 -d <<'END' | put {mode} {path}\n{}\nEND", folded(data))
    } else {
        writeln!(script, "\nprintf %s {} | put {mode} {path}", quoted(data))
    };
}

/// Breaks a long line.
fn folded(data: &str) -> String {
    const WIDTH: usize = 120;
    let lines: Vec<&str> =
        data.as_bytes().chunks(WIDTH).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    lines.join("\n")
}

/// A word of the shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::base::json::json;
    use crate::format::base64;

    /// The script runs in a folder of its own: paths of the test begin there.
    #[test]
    fn it_writes_each_file_as_it_is() {
        let folder = std::env::temp_dir().join(format!("gardenlet-user-data-{}", std::process::id()));
        let place = |name: &str| folder.join(name).display().to_string();
        let odd = "it's\n$HOME `x` \\ \"y\"\n";
        let binary: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        let spec = json!({"files": [
            {"path": place("a/text"), "permissions": 0o640, "content": {"inline": {"encoding": "", "data": odd}}},
            {"path": place("b"), "permissions": 0o755, "content": {"inline": {"encoding": "b64", "data": base64::encode(&binary)}}},
        ]});
        let script = script(&spec).replace("systemctl", ":");
        for shell in ["sh", "bash"] {
            let run = Command::new(shell).args(["-c", &script]).stdout(Stdio::null()).status().unwrap();
            assert!(run.success(), "{shell}: {script}");
            assert_eq!(std::fs::read_to_string(place("a/text")).unwrap(), odd, "{shell}");
            assert_eq!(std::fs::read(place("b")).unwrap(), binary, "{shell}");
            let mode = |name: &str| {
                use std::os::unix::fs::PermissionsExt;
                std::fs::metadata(place(name)).unwrap().permissions().mode() & 0o777
            };
            assert_eq!((mode("a/text"), mode("b")), (0o640, 0o755));
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn units_are_enabled_and_started() {
        let script = script(&json!({"units": [
            {"name": "a.service", "enable": true, "command": "start", "content": "[Unit]\n"},
            {"name": "b.service", "enable": false, "dropIns": [{"name": "1.conf", "content": "[Service]\n"}]},
        ]}));
        for line in ["systemctl enable 'a.service'", "systemctl --no-block 'start' 'a.service'"] {
            assert!(script.lines().any(|known| known == line), "{line}: {script}");
        }
        assert!(script.contains("put 0644 '/etc/systemd/system/b.service.d/1.conf'"));
        assert!(!script.contains("enable 'b.service'"));
    }
}
