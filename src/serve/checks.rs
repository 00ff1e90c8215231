//! Health checks as Kubernetes components answer them: `ok`, or a list of the failed checks. The reason appears only in
//! the log, because every client that reaches the port can read the answer.

use std::fmt::Write as _;

use super::{ServerRequest, ServerResponse};

type Check = Box<dyn Fn() -> bool + Send + Sync>;

/// The checks of `/healthz`, `/readyz` and `/livez`. An endpoint without checks of its own has `ping`, which succeeds.
#[derive(Default)]
pub(crate) struct Checks {
    healthz: Endpoint,
    readyz: Endpoint,
    livez: Endpoint,
}

impl Checks {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a check to `/healthz`. It returns true if all is well, and must not block.
    #[must_use]
    pub(crate) fn healthz(
        mut self,
        name: &'static str,
        check: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        self.healthz.checks.push((name, Box::new(check)));
        self
    }

    /// Adds a check to `/readyz`.
    #[must_use]
    pub(crate) fn readyz(
        mut self,
        name: &'static str,
        check: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        self.readyz.checks.push((name, Box::new(check)));
        self
    }

    /// Adds a check to `/livez`.
    #[must_use]
    pub(crate) fn livez(
        mut self,
        name: &'static str,
        check: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        self.livez.checks.push((name, Box::new(check)));
        self
    }

    pub(super) fn endpoints(self) -> [(&'static str, Endpoint); 3] {
        [("/healthz", self.healthz), ("/readyz", self.readyz), ("/livez", self.livez)].map(
            |(root, mut endpoint)| {
                endpoint.root = root.trim_start_matches('/');
                if endpoint.checks.is_empty() {
                    endpoint.checks.push(("ping", Box::new(|| true)));
                }
                (root, endpoint)
            },
        )
    }
}

/// One of the three endpoints with its checks.
#[derive(Default)]
pub(super) struct Endpoint {
    root: &'static str,
    checks: Vec<(&'static str, Check)>,
}

impl Endpoint {
    /// The answer for all checks: `ok`, or a list if one failed or the query contains `verbose`.
    /// `exclude=<check>` leaves one out.
    pub(super) fn all(&self, request: &ServerRequest) -> ServerResponse {
        let mut list = String::new();
        let mut passed = true;
        for (name, check) in &self.checks {
            // Writing to a String cannot fail.
            let _ = if request.values("exclude").any(|excluded| excluded == *name) {
                writeln!(list, "[+]{name} excluded: ok")
            } else if check() {
                writeln!(list, "[+]{name} ok")
            } else {
                passed = false;
                writeln!(list, "[-]{name} failed: reason withheld")
            };
        }
        match (passed, request.has("verbose")) {
            (true, false) => ServerResponse::text(200, "ok"),
            (true, true) => ServerResponse::text(200, format!("{list}{} check passed\n", self.root)),
            (false, _) => ServerResponse::text(500, format!("{list}{} check failed\n", self.root)),
        }
    }

    /// The answer for one check, if it exists.
    pub(super) fn one(&self, name: &str) -> Option<ServerResponse> {
        let (_, check) = self.checks.iter().find(|(known, _)| *known == name)?;
        Some(match check() {
            true => ServerResponse::text(200, "ok"),
            false => ServerResponse::text(500, "internal server error: reason withheld\n"),
        })
    }
}
