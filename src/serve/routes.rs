//! Which path is answered by what.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Request;
use super::checks::{Checks, Endpoint};
use crate::base::metrics::Metrics;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    status: u16,
    content_type: &'static str,
    body: String,
}

impl Response {
    /// Plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// A body of another type.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Self { status, content_type, body: body.into() }
    }

    pub(super) fn bytes(&self, with_body: bool) -> Vec<u8> {
        let (status, reason) = (self.status, reason(self.status));
        let (content_type, length) = (self.content_type, self.body.len());
        let body = if with_body { self.body.as_str() } else { "" };
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

type Handler = Box<dyn Fn(&Request) -> Response + Send + Sync>;

/// The paths that a server knows.
#[derive(Default)]
pub struct Routes {
    exact: BTreeMap<&'static str, Handler>,
    checks: Vec<(&'static str, Endpoint)>,
}

impl Routes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers `path` by `handler`, which must not block.
    #[must_use]
    pub fn get(
        mut self,
        path: &'static str,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        self.exact.insert(path, Box::new(handler));
        self
    }

    /// `/healthz`, `/readyz`, `/livez` and one path below for each check.
    #[must_use]
    pub fn checks(mut self, checks: Checks) -> Self {
        self.checks.extend(checks.endpoints());
        self
    }

    /// `/metrics` in Prometheus' text format; `refresh` sets what is only known when it is asked for.
    #[must_use]
    pub fn metrics(self, metrics: Metrics, refresh: impl Fn(&Metrics) + Send + Sync + 'static) -> Self {
        self.get("/metrics", move |_| {
            refresh(&metrics);
            Response::new(200, "text/plain; version=0.0.4; charset=utf-8", metrics.text())
        })
    }

    pub(super) fn shared(self) -> Shared {
        Shared(Arc::new(self))
    }

    fn respond(&self, request: &Request) -> Option<Response> {
        let path = request.path().trim_end_matches('/');
        if let Some(handler) = self.exact.get(path) {
            return Some(handler(request));
        }
        self.checks.iter().find_map(|(root, endpoint)| {
            let rest = path.strip_prefix(root)?;
            match rest.strip_prefix('/') {
                Some(name) => endpoint.one(name),
                None => rest.is_empty().then(|| endpoint.all(request)),
            }
        })
    }
}

/// Routes for many threads.
#[derive(Clone)]
pub(super) struct Shared(Arc<Routes>);

impl Shared {
    pub(super) fn respond(&self, request: &Request) -> Response {
        self.0.respond(request).unwrap_or_else(|| Response::text(404, "404 page not found\n"))
    }
}
