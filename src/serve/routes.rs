//! The paths of a server and their handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ServerRequest;
use super::checks::{Checks, Endpoint};
use crate::base::metrics::Metrics;
use crate::base::sorted::SortedMap;
use crate::limits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerResponse {
    status: u16,
    content_type: &'static str,
    /// The path to which a redirect leads.
    location: Option<&'static str>,
    body: String,
}

impl ServerResponse {
    pub(crate) fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    /// A body of another type.
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Self { status, content_type, location: None, body: body.into() }
    }

    /// Redirects to `path` of this server.
    pub(crate) fn elsewhere(path: &'static str) -> Self {
        let body = format!("<a href=\"{path}\">{path}</a>\n");
        Self { location: Some(path), ..Self::new(302, "text/html; charset=utf-8", body) }
    }

    pub(super) fn bytes(&self, with_body: bool) -> Vec<u8> {
        let (status, reason) = (self.status, reason(self.status));
        let (content_type, length) = (self.content_type, self.body.len());
        let body = if with_body { self.body.as_str() } else { "" };
        let location = self.location.map(|path| format!("Location: {path}\r\n")).unwrap_or_default();
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{location}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

type Handler = Box<dyn Fn(&ServerRequest) -> ServerResponse + Send + Sync>;

/// The paths that a server knows.
#[derive(Default)]
pub(crate) struct Routes {
    exact: SortedMap<&'static str, Handler>,
    checks: Vec<(&'static str, Endpoint)>,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Answers requests for `path` with `handler`, which must not block.
    #[must_use]
    pub(crate) fn get(
        mut self,
        path: &'static str,
        handler: impl Fn(&ServerRequest) -> ServerResponse + Send + Sync + 'static,
    ) -> Self {
        self.exact.insert(path, Box::new(handler));
        self
    }

    /// Adds `/healthz`, `/readyz`, `/livez` and one path below them for each check.
    #[must_use]
    pub(crate) fn checks(mut self, checks: Checks) -> Self {
        self.checks.extend(checks.endpoints());
        self
    }

    /// Adds `/metrics` in Prometheus' text format; `refresh` first sets the metrics that are computed on request.
    #[must_use]
    pub(crate) fn metrics(
        self,
        metrics: Metrics,
        refresh: impl Fn(&Metrics) + Send + Sync + 'static,
    ) -> Self {
        self.get("/metrics", move |_| {
            refresh(&metrics);
            ServerResponse::new(200, "text/plain; version=0.0.4; charset=utf-8", metrics.text())
        })
    }

    /// Like [`Routes::add`], for clients on this machine only: for answers with more information than a probe's.
    #[must_use]
    pub(crate) fn get_local(
        self,
        path: &'static str,
        handler: impl Fn(&ServerRequest) -> ServerResponse + Send + Sync + 'static,
    ) -> Self {
        self.get(path, move |request| match (request.is_local(), request.is_by_address()) {
            (true, true) => handler(request),
            (false, _) => ServerResponse::text(403, "only clients on this machine may see this page\n"),
            (true, false) => {
                ServerResponse::text(403, "ask for an IP address or for localhost, not for another name\n")
            }
        })
    }

    pub(super) fn shared(self) -> SharedRoutes {
        SharedRoutes(Arc::new(ServedRoutes { routes: self, pages: AtomicUsize::new(0) }))
    }

    fn page(&self, request: &ServerRequest) -> Option<&Handler> {
        self.exact.get(request.path().trim_end_matches('/'))
    }

    fn probe(&self, request: &ServerRequest) -> Option<ServerResponse> {
        let path = request.path().trim_end_matches('/');
        self.checks.iter().find_map(|(root, endpoint)| {
            let rest = path.strip_prefix(root)?;
            match rest.strip_prefix('/') {
                Some(name) => endpoint.one(name),
                None => rest.is_empty().then(|| endpoint.all(request)),
            }
        })
    }
}

struct ServedRoutes {
    routes: Routes,
    /// The number of answers other than probes that are being sent.
    pages: AtomicUsize,
}

/// Routes that several threads share.
#[derive(Clone)]
pub(super) struct SharedRoutes(Arc<ServedRoutes>);

impl SharedRoutes {
    /// Answers a request with `send`. An answer other than a probe's counts until it is sent.
    pub(super) fn respond<T>(&self, request: &ServerRequest, send: impl FnOnce(&ServerResponse) -> T) -> T {
        let ServedRoutes { routes, pages } = &*self.0;
        let Some(handler) = routes.page(request) else {
            let probe = routes.probe(request);
            return send(&probe.unwrap_or_else(|| ServerResponse::text(404, "404 page not found\n")));
        };
        let before = pages.fetch_add(1, Ordering::SeqCst);
        let _counted = Counted(pages);
        if before >= limits::SERVE_PAGES_MAX {
            return send(&ServerResponse::text(503, "too many connections\n"));
        }
        send(&handler(request))
    }
}

/// Reduces the count again, even if a handler panics.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
