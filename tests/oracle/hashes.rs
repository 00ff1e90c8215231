//! Random configurations of the secrets manager: our checksums must equal those of Go's library
//! (tests/cluster/tools/hashstructure).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gardenlet::base::sorted::SortedMap;
use gardenlet::format::base64;
use gardenlet::secrets::{SecretConfig, TokenUser};
use serde_json::{Value, json};

use support::random::Random;

/// Pieces of texts. Go treats an empty text as missing, like 0.
const PIECES: &[&str] =
    &["ca", "-", "kubernetes", "", "ä", "\u{1f511}", "\n", "\"", "server.local", "0", " "];
/// Differences that are shown.
const SHOWN: usize = 5;

/// Returns how many checksums differ.
pub(crate) fn run(seed: u64, cases: usize, program: &Path) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let configs: Vec<SecretConfig> = (0..cases).map(|_| config(&mut random)).collect();
    let lines: Vec<String> = configs.iter().map(|config| as_go(config).to_string()).collect();
    let theirs = ask(program, &lines)?;
    if theirs.len() != cases {
        return Err(format!("{} checksums of {cases} configurations", theirs.len()));
    }
    let mut different = 0;
    for ((config, line), theirs) in configs.iter().zip(&lines).zip(theirs) {
        let own = config.checksum().to_string();
        if own != theirs {
            different += 1;
            if different <= SHOWN {
                println!("differs: {line}\n  hashstructure: {theirs}\n  gardenlet:     {own}");
            }
        }
    }
    println!("seed {seed}: {cases} configurations of Secrets hashed");
    Ok(different)
}

fn ask(program: &Path, lines: &[String]) -> Result<Vec<String>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", program.display());
    let started = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(failed)?;
    // Its answers are short: they fit into a pipe while it still reads.
    let mut input = child.stdin.take().ok_or("no standard input")?;
    let text = lines.join("\n");
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    writer.join().map_err(|_| "the writer panicked".to_owned())?.map_err(failed)?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", program.display(), output.status));
    }
    let text = String::from_utf8(output.stdout).map_err(|e| e.to_string())?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn text(random: &mut Random) -> String {
    (0..random.below(4)).map(|_| *random.pick(PIECES)).collect()
}

fn bytes(random: &mut Random) -> Vec<u8> {
    (0..random.below(40)).map(|_| u8::try_from(random.below(256)).unwrap_or_default()).collect()
}

fn number(random: &mut Random) -> u32 {
    let below = *random.pick(&[1, 2, 300, 70_000, 1 << 31]);
    u32::try_from(random.below(below)).unwrap_or_default()
}

fn several<T>(random: &mut Random, one: impl Fn(&mut Random) -> T) -> Vec<T> {
    (0..random.below(4)).map(|_| one(random)).collect()
}

fn config(random: &mut Random) -> SecretConfig {
    let name = text(random);
    match random.below(8) {
        0 => {
            let hours = u64::from(number(random));
            let validity = random.chance(50).then(|| Duration::from_secs(hours));
            SecretConfig::Ca { name, common_name: text(random), validity }
        }
        1 => SecretConfig::RsaKey { name, bits: number(random), for_ssh: random.chance(50) },
        2 => SecretConfig::EncryptionKey { name, provider: text(random), length: number(random) },
        3 => {
            let user = |random: &mut Random| TokenUser {
                username: text(random),
                user_id: text(random),
                groups: several(random, text),
            };
            let tokens: SortedMap<_, _> =
                several(random, |random| (text(random), user(random))).into_iter().collect();
            SecretConfig::StaticToken { name, tokens }
        }
        4 => SecretConfig::CertificateBundle { name, pems: several(random, bytes) },
        5 => SecretConfig::KeyBundle { name, pems: several(random, bytes) },
        6 => SecretConfig::BasicAuth {
            name,
            format: text(random),
            username: text(random),
            password_length: number(random),
        },
        _ => SecretConfig::Kubeconfig {
            name,
            context: text(random),
            server: text(random),
            ca: bytes(random),
            token_file: text(random),
            namespace: text(random),
        },
    }
}

/// The configuration with the fields of Go's structs, under the name of the type.
fn as_go(config: &SecretConfig) -> Value {
    // Gardener omits empty values. The library distinguishes that from a list without items; our configurations cannot.
    let or_nil = |empty: bool, value: Value| if empty { Value::Null } else { value };
    let data = |bytes: &Vec<u8>| or_nil(bytes.is_empty(), json!(base64::encode(bytes)));
    // A key in a bundle may be empty; it counts as an item.
    let all = |pems: &[Vec<u8>]| {
        let encoded: Vec<_> = pems.iter().map(|pem| base64::encode(pem)).collect();
        or_nil(pems.is_empty(), json!(encoded))
    };
    match config {
        SecretConfig::Leaf { .. } | SecretConfig::ClientKubeconfig { .. } => Value::Null,
        SecretConfig::Ca { name, common_name, validity } => json!({"CertificateSecretConfig": {
            "Name": name, "CommonName": common_name, "CertType": "ca",
            "Validity": validity.map(|time| time.as_secs() * 1_000_000_000)}}),
        SecretConfig::RsaKey { name, bits, for_ssh } => {
            json!({"RSASecretConfig": {"Name": name, "Bits": bits, "UsedForSSH": for_ssh}})
        }
        SecretConfig::EncryptionKey { name, provider, length } => json!({"ETCDEncryptionKeySecretConfig": {
            "Name": name, "Provider": provider, "SecretLength": length}}),
        SecretConfig::StaticToken { name, tokens } => {
            let user = |user: &TokenUser| {
                let groups = or_nil(user.groups.is_empty(), json!(user.groups));
                json!({"Username": user.username, "UserID": user.user_id, "Groups": groups})
            };
            let users: serde_json::Map<_, _> =
                tokens.iter().map(|(key, each)| (key.clone(), user(each))).collect();
            let tokens = or_nil(users.is_empty(), Value::Object(users));
            json!({"StaticTokenSecretConfig": {"Name": name, "Tokens": tokens}})
        }
        SecretConfig::CertificateBundle { name, pems } => {
            json!({"CertificateBundleSecretConfig": {"Name": name, "CertificatePEMs": all(pems)}})
        }
        SecretConfig::KeyBundle { name, pems } => {
            json!({"RSAPrivateKeyBundleSecretConfig": {"Name": name, "PrivateKeyPEMs": all(pems)}})
        }
        SecretConfig::BasicAuth { name, format, username, password_length } => {
            json!({"BasicAuthSecretConfig": {
            "Name": name, "Format": format, "Username": username, "PasswordLength": password_length}})
        }
        SecretConfig::Kubeconfig { name, context, server, ca, token_file, namespace } => {
            json!({"KubeconfigSecretConfig": {
                "Name": name, "ContextName": context, "Namespace": namespace,
                "Cluster": {"Server": server, "CertificateAuthorityData": data(ca)},
                "AuthInfo": {"TokenFile": token_file}}})
        }
    }
}
