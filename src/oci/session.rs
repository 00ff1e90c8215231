//! The API of one registry for one repository: answers challenges, follows redirects, turns statuses into errors.

use std::io::Read as _;
use std::time::Duration;

use serde::Deserialize;

use super::challenge::{self, Challenge};
use super::error::Error;
use super::login::Login;
use super::source::{Endpoint, host_key};
use super::wire::Wire;
use crate::base::redact::Secret;
use crate::format::{percent, view};
use crate::limits;
use crate::net::{self, AddressZone, HttpRequest, HttpResponse, Url, login};

/// Timeout of a request with a small response, without the body of a chart.
const SMALL_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Session<'a> {
    wire: Wire<'a>,
    endpoint: Endpoint,
    login: Option<Login>,
    /// The answer to the last challenge.
    authorization: Option<Secret<String>>,
}

/// A request to the registry.
#[derive(Clone, Copy)]
pub(super) struct Question<'q> {
    pub(super) method: &'static str,
    /// Path below the repository.
    pub(super) path: &'q str,
    pub(super) accept: &'static str,
    /// The first wanted byte; 0 for all.
    pub(super) from: u64,
    pub(super) total: Duration,
}

impl<'q> Question<'q> {
    pub(super) const fn small(method: &'static str, path: &'q str, accept: &'static str) -> Self {
        Self { method, path, accept, from: 0, total: SMALL_TIMEOUT }
    }
}

impl<'a> Session<'a> {
    pub(super) const fn new(wire: Wire<'a>, endpoint: Endpoint, login: Option<Login>) -> Self {
        Self { wire, endpoint, login, authorization: None }
    }

    pub(super) fn host(&self) -> &str {
        &self.endpoint.host
    }

    /// Sends a request, answers one challenge, and returns a response with status 200 or 206.
    pub(super) fn ask(&mut self, question: Question<'_>) -> Result<HttpResponse, Error> {
        let (mut response, host) = self.follow(question)?;
        if response.status == 401
            && host == self.endpoint.host
            && let Some(challenge) = challenge::pick(response.headers("www-authenticate"))
        {
            let before = self.authorization.take();
            let answer = self.answer(&challenge)?;
            // The same answer would be refused again.
            if answer.is_some() && answer != before {
                self.authorization = answer;
                response = self.follow(question)?.0;
            }
        }
        match response.status {
            200 | 206 => Ok(response),
            _ => Err(refusal(&host, question.path, &mut response)),
        }
    }

    /// Sends a request and follows redirects. Returns the host of the response too.
    fn follow(&mut self, question: Question<'_>) -> Result<(HttpResponse, String), Error> {
        let mut target = self.endpoint.url(question.path);
        for _ in 0..=limits::OCI_REDIRECTS_MAX {
            let (response, url) = self.send(question, &target)?;
            let host = host_key(&url);
            if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
                return Ok((response, host));
            }
            let refuse = |why| Error::Redirect { host: host.clone(), why };
            let location = response.header("location").ok_or_else(|| refuse("it has no location"))?;
            let next = resolve(&url, location).ok_or_else(|| refuse("its location is not a URL"))?;
            let parsed = Url::parse(&next).map_err(|_| refuse("its location is no usable URL"))?;
            if parsed.scheme != "https" && url.scheme == "https" {
                return Err(refuse("it leads from TLS to plain text"));
            }
            if parsed.scheme.starts_with("socks") || parsed.login.is_some() {
                return Err(refuse("its location is no usable URL"));
            }
            target = next;
        }
        Err(Error::Redirect { host: self.endpoint.host.clone(), why: "there are too many redirects" })
    }

    /// One request to one host. Only the registry itself gets credentials.
    fn send(&mut self, question: Question<'_>, target: &str) -> Result<(HttpResponse, Url), Error> {
        let url = Url::parse(target)
            .map_err(|_| Error::Redirect { host: self.endpoint.host.clone(), why: "no usable URL" })?;
        let range = format!("bytes={}-", question.from);
        let mut headers = vec![("Accept", question.accept)];
        if question.from > 0 {
            headers.push(("Range", range.as_str()));
        }
        if let Some(value) = self.authorization.as_ref().filter(|_| is_same_origin(&url, &self.endpoint.base))
        {
            headers.push(("Authorization", value.expose()));
        }
        let request =
            HttpRequest { method: question.method, url: target, headers: &headers, body: None, gzip: false };
        let response = exchange(&mut self.wire, &url, &request, question.total)?;
        Ok((response, url))
    }

    /// The header that answers a challenge; `None` without credentials for it.
    fn answer(&mut self, challenge: &Challenge) -> Result<Option<Secret<String>>, Error> {
        match (challenge, &self.login) {
            (Challenge::Basic, Some(Login::Basic(user, password))) => Ok(Some(login::basic(user, password))),
            (Challenge::Basic, _) => Ok(None),
            (Challenge::Bearer { .. }, Some(Login::Registry(token))) => {
                Ok(Some(login::bearer(token.expose())))
            }
            (Challenge::Bearer { realm, service, scope }, _) => {
                let token = self.token(realm, service.as_deref(), scope.as_deref())?;
                Ok(Some(login::bearer(token.expose())))
            }
        }
    }

    /// Gets a token: by POST with a refresh token, else by GET, with or without user and password.
    fn token(
        &mut self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<Secret<String>, Error> {
        let refuse = |why: &str| Error::Challenge { host: self.endpoint.host.clone(), why: why.to_owned() };
        let url = Url::parse(realm).map_err(|_| refuse("its token service has no usable URL"))?;
        let is_named = self.wire.is_named(&url);
        check_realm(&url, &self.endpoint.base, is_named).map_err(refuse)?;
        let ours = format!("repository:{}:pull", self.endpoint.repository);
        let mut query = vec![("scope", scope.unwrap_or(&ours))];
        query.extend(service.map(|service| ("service", service)));
        let mut refused = None;
        if let Some(Login::Identity(refresh)) = self.login.clone() {
            let mut form = query.clone();
            form.extend([("client_id", "gardenlet"), ("grant_type", "refresh_token")]);
            form.push(("refresh_token", refresh.expose()));
            match self.exchange_token(&url, realm, Some(&encode(&form)), None) {
                // Not every token service supports POST: Google's answers 404, Harbor's 405 or 400.
                Err(error @ Error::Status { status: 400 | 404 | 405, .. }) => refused = Some(error),
                result => return result,
            }
        }
        let login = match &self.login {
            Some(Login::Basic(user, password)) => Some(login::basic(user, password)),
            _ => None,
        };
        let separator = if realm.contains('?') { '&' } else { '?' };
        let target = format!("{realm}{separator}{}", encode(&query));
        // If the service supports POST after all, its refusal is the one that tells why.
        self.exchange_token(&url, &target, None, login.as_ref()).map_err(|error| refused.unwrap_or(error))
    }

    fn exchange_token(
        &mut self,
        url: &Url,
        target: &str,
        form: Option<&str>,
        login: Option<&Secret<String>>,
    ) -> Result<Secret<String>, Error> {
        let mut headers = vec![("Accept", "application/json")];
        if form.is_some() {
            headers.push(("Content-Type", "application/x-www-form-urlencoded"));
        }
        if let Some(login) = login {
            headers.push(("Authorization", login.expose()));
        }
        let method = if form.is_some() { "POST" } else { "GET" };
        let body = form.map(str::as_bytes);
        let request = HttpRequest { method, url: target, headers: &headers, body, gzip: false };
        let mut response = exchange(&mut self.wire, url, &request, SMALL_TIMEOUT)?;
        let host = host_key(url);
        if response.status != 200 {
            return Err(refusal(&host, "token", &mut response));
        }
        let body = response.body.read_all(limits::OCI_TOKEN_ANSWER_BYTES_MAX);
        let body = body.map_err(|source| Error::Net { host: host.clone(), source })?;
        read_token(&body)
            .ok_or_else(|| Error::Challenge { host, why: "its answer has no usable token".to_owned() })
    }
}

fn exchange(
    wire: &mut Wire<'_>,
    url: &Url,
    request: &HttpRequest<'_>,
    total: Duration,
) -> Result<HttpResponse, Error> {
    let http = wire.http(url)?;
    http.send(request, &wire.limits(total)).map_err(|source| match source {
        net::Error::Closed => Error::Stopped,
        source => Error::Net { host: host_key(url), source },
    })
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

fn read_token(body: &[u8]) -> Option<Secret<String>> {
    let answer: TokenAnswer = view::parse(body).ok()?;
    let token = if answer.access_token.is_empty() { answer.token } else { answer.access_token };
    let is_token = !token.is_empty()
        && token.len() <= limits::OCI_TOKEN_BYTES_MAX
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_token.then(|| Secret::new(token))
}

/// Credentials are sent to a token service over TLS only, or in plain text if the registry itself uses plain
/// text. As upstream, a private address must be that of the registry: a registry must not make the agent call
/// an internal network. This check sees only the written host; the dialler checks the resolved address. A
/// host in the configuration is trusted.
fn check_realm(realm: &Url, registry: &Url, is_named: bool) -> Result<(), &'static str> {
    if realm.scheme != "https" && realm.scheme != registry.scheme {
        return Err("its token service does not use TLS");
    }
    let is_inside = AddressZone::of_text(&realm.host).is_some_and(|zone| zone > AddressZone::World);
    if is_inside && realm.host != registry.host && !is_named {
        return Err("its token service is at a private address of another host");
    }
    Ok(())
}

fn is_same_origin(a: &Url, b: &Url) -> bool {
    (&a.scheme, &a.host, a.port) == (&b.scheme, &b.host, b.port)
}

/// Resolves a `Location` to an absolute URL.
fn resolve(from: &Url, location: &str) -> Option<String> {
    if location.is_empty() || !location.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let origin = format!("{}://{}", from.scheme, from.authority());
    if location.contains("://") && location.find("://") < location.find(['/', '?']) {
        return Some(location.to_owned());
    }
    if let Some(rest) = location.strip_prefix("//") {
        return Some(format!("{}://{rest}", from.scheme));
    }
    if location.starts_with('/') {
        return Some(format!("{origin}{location}"));
    }
    let folder = from.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    Some(format!("{origin}{folder}/{location}"))
}

/// `application/x-www-form-urlencoded`.
fn encode(pairs: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (key, value) in pairs {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(key);
        out.push('=');
        percent::encode(&mut out, value.as_bytes(), &percent::is_unreserved);
    }
    out
}

#[derive(Deserialize)]
struct RegistryRefusal {
    #[serde(default)]
    errors: Vec<RefusalItem>,
}

#[derive(Deserialize)]
struct RefusalItem {
    #[serde(default)]
    code: String,
}

fn refusal(host: &str, path: &str, response: &mut HttpResponse) -> Error {
    let seconds = response.header("retry-after").and_then(|text| text.trim().parse::<u32>().ok());
    let mut body = Vec::new();
    let max = u64::try_from(limits::OCI_ERROR_BYTES_MAX).unwrap_or(u64::MAX);
    // A truncated body does not change the status.
    let _ = (&mut response.body).take(max).read_to_end(&mut body);
    Error::Status {
        host: host.to_owned(),
        what: path.replacen("manifests/", "manifest ", 1).replacen("blobs/", "chart ", 1),
        status: response.status,
        code: error_code(&body),
        retry_after: seconds.map(|seconds| Duration::from_secs(seconds.into())),
    }
}

/// The code of a registry's error. The rest is not shown, because it may repeat the request.
fn error_code(body: &[u8]) -> Option<String> {
    let code = view::parse::<RegistryRefusal>(body).ok()?.errors.into_iter().next()?.code;
    let is_code = (1..=40).contains(&code.len()) && code.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
    is_code.then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn locations_are_resolved_against_the_url_that_sent_them() {
        let from = url("https://r:5000/v2/x/blobs/y");
        let table = [
            ("https://s3.example.org/b?sig=a://b", Some("https://s3.example.org/b?sig=a://b")),
            ("//s3.example.org/b", Some("https://s3.example.org/b")),
            ("/b?to=https://x", Some("https://r:5000/b?to=https://x")),
            ("b", Some("https://r:5000/v2/x/blobs/b")),
            ("?a=http://x", Some("https://r:5000/v2/x/blobs/?a=http://x")),
            ("", None),
            ("/a b", None),
            ("/a\r\nx: y", None),
        ];
        for (location, expected) in table {
            assert_eq!(resolve(&from, location).as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn token_services_are_trusted_within_limits() {
        let table = [
            ("https://auth.example.org/t", "https://r.example.org", true),
            ("http://auth.example.org/t", "https://r.example.org", false),
            ("http://auth.example.org/t", "http://r.example.org", true),
            ("https://169.254.169.254/t", "https://r.example.org", false),
            ("https://[fd00::1]/t", "https://r.example.org", false),
            ("https://10.0.0.1:5001/t", "https://10.0.0.1:5000", true),
            ("https://10.0.0.2/t", "https://10.0.0.1", false),
            ("socks5://auth/t", "https://r.example.org", false),
            ("https://localhost/t", "https://r.example.org", false),
            ("https://127.1/t", "https://r.example.org", false),
            ("https://2130706433/t", "https://r.example.org", false),
            ("https://0x7f000001/t", "https://r.example.org", false),
            ("https://[::ffff:127.0.0.1]/t", "https://r.example.org", false),
            ("https://localhost:5001/t", "https://localhost:5000", true),
        ];
        for (realm, registry, expected) in table {
            assert_eq!(check_realm(&url(realm), &url(registry), false).is_ok(), expected, "{realm}");
            let is_secret = !realm.starts_with("http:") || registry.starts_with("http:");
            let is_http = is_secret && realm.starts_with("http");
            assert_eq!(check_realm(&url(realm), &url(registry), true).is_ok(), is_http, "{realm}, named");
        }
    }

    #[test]
    fn tokens_and_error_codes_are_read_from_answers() {
        let token = |body: &str| read_token(body.as_bytes()).map(|token| token.expose().clone());
        assert_eq!(token(r#"{"token":"a","expires_in":60}"#).as_deref(), Some("a"));
        assert_eq!(token(r#"{"token":"a","access_token":"b"}"#).as_deref(), Some("b"));
        assert_eq!(token(&format!(r#"{{"token":"{}"}}"#, "a".repeat(12_289))), None);
        for body in ["", "{}", r#"{"token":""}"#, r#"{"token":"a\r\nb"}"#, "[]"] {
            assert_eq!(token(body), None, "{body}");
        }
        let code = |body: &str| error_code(body.as_bytes());
        let known = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"Bearer hunter2"}]}"#;
        assert_eq!(code(known).as_deref(), Some("MANIFEST_UNKNOWN"));
        for body in ["", "<html>", r#"{"errors":[]}"#, r#"{"errors":[{"code":"hunter2"}]}"#] {
            assert_eq!(code(body), None, "{body}");
        }
    }

    #[test]
    fn forms_are_escaped() {
        let scope = "repository:a/b c:pull";
        let form = encode(&[("scope", scope), ("service", "é&=")]);
        assert_eq!(form, "scope=repository%3Aa%2Fb%20c%3Apull&service=%C3%A9%26%3D");
    }
}
