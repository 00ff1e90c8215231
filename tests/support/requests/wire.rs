//! Requests that the agent's client does not send: HEAD, requests in the name of another user, and the beginning of a watch.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::kube::{AuthorizationSource, Client, Connection, InlineOrFile, ServerTrust};
use gardenlet::net::{
    CertificatePair, ConnectionSettings, Http, HttpRequest, HttpResponse, ProxyPolicy, RequestLimits,
    SystemCas, SystemDialer, TlsError, TlsParty, Traffic, TrustedRoots, login,
};
use serde_json::Value;

use crate::options::patience;

const BODY_BYTES_MAX: usize = 16 << 20;

/// The user of a client.
#[derive(Debug)]
struct User(Arc<Connection>);

fn load(material: &InlineOrFile) -> Result<Arc<[u8]>, TlsError> {
    material.load().map_err(|error| TlsError::Material(error.to_string()))
}

impl TlsParty for User {
    fn roots(&self) -> Result<TrustedRoots, TlsError> {
        match &self.0.trust {
            ServerTrust::Bundle(material) => Ok(TrustedRoots::Pem(load(material)?)),
            ServerTrust::System | ServerTrust::Insecure => Ok(TrustedRoots::System(SystemCas::default())),
        }
    }

    fn certificate(&self) -> Result<Option<CertificatePair>, TlsError> {
        let Some(certificate) = &self.0.identity.certificate else { return Ok(None) };
        let (chain_pem, key_pem) = (load(&certificate.chain)?, load(&certificate.key)?);
        Ok(Some(CertificatePair { chain_pem, key_pem }))
    }
}

fn exchange(client: &Client, request: &HttpRequest<'_>) -> Result<HttpResponse, String> {
    let connection = client.connection();
    let http = Http::new(ConnectionSettings {
        dialer: Arc::new(SystemDialer),
        party: Arc::new(User(connection.clone())),
        server_name: connection.tls_server_name.clone(),
        proxy: ProxyPolicy::none(),
        system_cas: SystemCas::default(),
        clock: Clock::system(),
        second_clock: None,
        user_agent: "requests".to_owned(),
        idle_connections_max: 0,
        traffic: Traffic::default(),
    });
    let token = match &connection.identity.credentials {
        AuthorizationSource::Token(token) => Some(login::bearer(token.expose())),
        _ => None,
    };
    let mut headers = request.headers.to_vec();
    headers.push(("Accept", "application/json"));
    headers.extend(token.iter().map(|token| ("Authorization", token.expose().as_str())));
    let url = format!("{}{}", connection.server, request.url);
    let limit = patience(Duration::from_secs(20));
    let limits = RequestLimits { connect: limit, total: Some(limit), response: None, read: None };
    http.send(&HttpRequest { url: &url, headers: &headers, ..*request }, &limits)
        .map_err(|e| format!("{url}: {e}"))
}

fn whole(mut answer: HttpResponse) -> Result<(u16, Value), String> {
    let body = answer.body.read_all(BODY_BYTES_MAX).map_err(|e| e.to_string())?;
    Ok((answer.status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

/// Code and body of the answer. Headers without a value are left out.
pub(super) fn send(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> Result<(u16, Value), String> {
    let headers: Vec<_> = headers.iter().copied().filter(|(_, value)| !value.is_empty()).collect();
    whole(exchange(client, &HttpRequest { method, headers: &headers, body, ..HttpRequest::get(path) })?)
}

/// The first events of a watch, in a list; or a refusal.
pub(super) fn watch(client: &Client, path: &str, count: usize) -> Result<(u16, Value), String> {
    let answer = exchange(client, &HttpRequest::get(path))?;
    if answer.status != 200 {
        return whole(answer);
    }
    let mut events = Vec::new();
    for line in BufReader::new(answer.body).lines().take(count) {
        let line = line.map_err(|e| format!("{path}: {e}"))?;
        events.push(serde_json::from_str(&line).map_err(|e| format!("{path}: {line}: {e}"))?);
    }
    Ok((200, Value::Array(events)))
}
