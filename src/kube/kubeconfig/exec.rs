//! Credential plugins: programs that print a token or a client certificate.

use std::path::PathBuf;

/// How to call a credential plugin.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ExecPlugin {
    /// The program.
    pub command: PathBuf,
}
