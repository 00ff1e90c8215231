//! The mounted Secret of a bucket: one file for each key, with the names that Gardener and etcd-backup-restore use.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use super::sign::Key;
use crate::base::capped;
use crate::base::redact::Secret;
use crate::limits;
use crate::net::Url;
use crate::snapshot::Error;

/// A bucket with its credentials.
#[derive(Clone, Debug)]
pub struct Bucket {
    pub(crate) name: String,
    /// The key that signs requests.
    pub(crate) key: Key,
    /// `https://host[:port]`, without the bucket.
    pub(crate) endpoint: String,
    /// Whether requests name the bucket in the path instead of the host.
    pub(crate) is_in_path: bool,
    /// CAs of the server, if they are not the system's.
    pub(crate) ca: Option<Arc<[u8]>>,
    /// Whether the server's certificate is not verified.
    pub(crate) is_insecure: bool,
}

const EXPECTED: &str = "expected https://HOST[:PORT]";

/// Keys of credentials that we do not support.
pub(crate) const UNKNOWN: [&str; 4] =
    ["roleARN", "sseCustomerKey", "sseCustomerKeyConf", "sseCustomerAlgorithm"];

impl Bucket {
    /// Reads the files of a folder. Errors repeat no value: any of them may be secret. Errors: the
    /// missing or invalid file.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let place = |name: &str| folder.join(name).display().to_string();
        let find =
            |name: &str| match capped::read_file(&folder.join(name), limits::SNAPSHOT_CREDENTIAL_BYTES_MAX) {
                Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
                Err(error) => Err(Error::io(format!("read {}", place(name)))(error)),
            };
        let need = |name: &str| match find(name)? {
            text if text.is_empty() => Err(Error::Unusable(format!("{} is missing or empty", place(name)))),
            text => Ok(text),
        };
        let flag = |name: &str| match find(name)?.as_str() {
            "" | "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(false),
            "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(true),
            _ => Err(Error::Unusable(format!("{}: expected true or false", place(name)))),
        };
        if let Some(name) = UNKNOWN.iter().find(|name| folder.join(name).exists()) {
            let why =
                "is not supported: snapshots need an access key, and no encryption with a key of one's own";
            return Err(Error::Unusable(format!("{} {why}", place(name))));
        }
        let name = need("bucketName")?;
        let is_name = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
        if !name.bytes().all(is_name) {
            return Err(Error::Unusable(format!("{}: no name of a bucket", place("bucketName"))));
        }
        // Storage other than AWS usually has no regions, and accepts AWS's first one.
        let configured = find("endpoint")?;
        let region = match find("region")? {
            region if region.is_empty() && !configured.is_empty() => "us-east-1".to_owned(),
            region if region.is_empty() => need("region")?,
            region => region,
        };
        let is_word = region.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        if configured.is_empty() && !is_word {
            return Err(Error::Unusable(format!("{}: no name of a region", place("region"))));
        }
        let endpoint = endpoint(&configured, &region)
            .map_err(|why| Error::Unusable(format!("{}: {why}", place("endpoint"))))?;
        let is_in_path = flag("s3ForcePathStyle")? || !can_be_host(&endpoint, &name);
        let ca = find("trustedCaCert")?;
        Ok(Self {
            is_in_path,
            key: Key { id: need("accessKeyID")?, secret: Secret::new(need("secretAccessKey")?), region },
            endpoint,
            name,
            ca: (!ca.is_empty()).then(|| ca.into_bytes().into()),
            is_insecure: flag("insecureSkipVerify")?,
        })
    }

    /// The `Host` header.
    pub(crate) fn host(&self) -> String {
        let host = self.endpoint.split_once("://").map_or("", |(_, host)| host);
        if self.is_in_path { host.to_owned() } else { format!("{}.{host}", self.name) }
    }

    /// Scheme and host of each request.
    pub(crate) fn origin(&self) -> String {
        let scheme = self.endpoint.split_once("://").map_or("https", |(scheme, _)| scheme);
        format!("{scheme}://{}", self.host())
    }

    /// The path of a key, not escaped; an empty key stands for the bucket itself.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.is_in_path { format!("/{}/{key}", self.name) } else { format!("/{key}") }
    }
}

/// The configured endpoint, or AWS's endpoint of the region. A port that the scheme implies is omitted, like in `Host`.
fn endpoint(configured: &str, region: &str) -> Result<String, String> {
    if configured.is_empty() {
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        return Ok(format!("https://s3.{region}.{domain}"));
    }
    let whole =
        if configured.contains("://") { configured.to_owned() } else { format!("https://{configured}") };
    let (scheme, _) = whole.split_once("://").unwrap_or_default();
    // Checked here, because the parser's words repeat the scheme.
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(EXPECTED.to_owned());
    }
    let url = Url::parse(&whole)?;
    if !url.path.is_empty() || url.login.is_some() {
        return Err(EXPECTED.to_owned());
    }
    let implied = if url.scheme == "http" { 80 } else { 443 };
    let host = url.authority();
    let host = if url.port == implied { host.trim_end_matches(&format!(":{implied}")) } else { &host };
    Ok(format!("{}://{host}", url.scheme))
}

/// Whether the bucket's name can be part of the host: wildcard certificates do not match names with dots, and IP
/// addresses have no subdomains.
fn can_be_host(endpoint: &str, bucket: &str) -> bool {
    let host = Url::parse(endpoint).map(|url| url.host).unwrap_or_default();
    let is_label = !bucket.contains(['.', '_']) && !bucket.bytes().any(|c| c.is_ascii_uppercase());
    is_label && host.parse::<IpAddr>().is_err() && host != "localhost"
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::base::random;

    /// Reads a Secret with these keys.
    fn read(keys: &[(&str, &str)]) -> Result<Bucket, String> {
        let folder = std::env::temp_dir().join(format!("gardenlet-bucket-{}", random::hex(12)));
        fs::create_dir_all(&folder).unwrap();
        let usual = [
            ("accessKeyID", "id\n"),
            ("secretAccessKey", "hunter2"),
            ("region", "eu-west-1"),
            ("bucketName", "b-1"),
        ];
        for (name, text) in usual.iter().chain(keys) {
            fs::write(folder.join(name), text).unwrap();
        }
        let found = Bucket::read(&folder)
            .map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""));
        fs::remove_dir_all(&folder).unwrap();
        found
    }

    type Keys = &'static [(&'static str, &'static str)];

    #[test]
    fn bucket_and_endpoint_of_a_secret() {
        let table: [(Keys, &str, &str); 9] = [
            (&[], "https://b-1.s3.eu-west-1.amazonaws.com", "/k"),
            (&[("region", "cn-north-1")], "https://b-1.s3.cn-north-1.amazonaws.com.cn", "/k"),
            (&[("bucketName", "b.1")], "https://s3.eu-west-1.amazonaws.com", "/b.1/k"),
            (&[("s3ForcePathStyle", "true")], "https://s3.eu-west-1.amazonaws.com", "/b-1/k"),
            (&[("endpoint", "minio.example.org:9000")], "https://b-1.minio.example.org:9000", "/k"),
            (&[("endpoint", "https://minio.example.org:443/")], "https://b-1.minio.example.org", "/k"),
            (&[("endpoint", "http://10.0.0.1:9000\n")], "http://10.0.0.1:9000", "/b-1/k"),
            (&[("endpoint", "https://[fd00::1]")], "https://[fd00::1]", "/b-1/k"),
            (&[("endpoint", "http://localhost:80")], "http://localhost", "/b-1/k"),
        ];
        for (keys, origin, path) in table {
            let bucket = read(keys).unwrap();
            assert_eq!((bucket.origin().as_str(), bucket.path("k").as_str()), (origin, path), "{keys:?}");
            assert_eq!(
                (bucket.key.id.as_str(), bucket.ca.is_some(), bucket.is_insecure),
                ("id", false, false)
            );
            assert!(!format!("{bucket:?}").contains("hunter2"));
        }
        let bucket = read(&[("trustedCaCert", "PEM"), ("insecureSkipVerify", "True")]).unwrap();
        assert_eq!((bucket.ca.as_deref(), bucket.is_insecure), (Some(&b"PEM"[..]), true));
    }

    #[test]
    fn reasons_why_a_secret_cannot_be_used() {
        let table: [(Keys, &str); 9] = [
            (&[("accessKeyID", "")], "accessKeyID is missing or empty"),
            (&[("secretAccessKey", " \n")], "secretAccessKey is missing or empty"),
            (&[("region", "")], "region is missing or empty"),
            (&[("region", "hunter2/b")], "region: no name of a region"),
            (&[("bucketName", "a/b")], "bucketName: no name of a bucket"),
            (&[("s3ForcePathStyle", "yes")], "s3ForcePathStyle: expected true or false"),
            (&[("endpoint", "https://s3/path")], "endpoint: expected https://HOST[:PORT]"),
            (&[("endpoint", "hunter2://s3")], "endpoint: expected https://HOST[:PORT]"),
            (
                &[("roleARN", "x")],
                "roleARN is not supported: snapshots need an access key, and no encryption with a key of one's own",
            ),
        ];
        for (keys, expected) in table {
            assert_eq!(read(keys).unwrap_err(), expected, "{keys:?}");
        }
    }
}
