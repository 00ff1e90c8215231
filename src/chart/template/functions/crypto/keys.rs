//! Private keys for charts.

use super::super::{Args, Cause, FunctionResult};
use super::{DSA_STEPS, RSA_2048_STEPS, RSA_4096_STEPS};
use crate::pki::AnyKey;

/// `genPrivateKey`: an error is a result too.
pub(super) fn generate(a: &Args<'_>) -> FunctionResult {
    let kind = a.str(0);
    let key = match &*kind {
        "" | "rsa" => {
            a.engine.shared.charge(RSA_4096_STEPS)?;
            rsa(4_096)?
        }
        "dsa" => {
            a.engine.shared.charge(DSA_STEPS)?;
            AnyKey::new_dsa().map_err(|e| format!("error generating dsa key: {e}"))?
        }
        "ecdsa" => AnyKey::new_p256()?,
        "ed25519" => AnyKey::new_ed25519(),
        other => return Ok(format!("Unknown type {other}").into()),
    };
    Ok(key.to_pem().into())
}

/// A key of 2048 bits, as for certificates.
pub(super) fn rsa_2048(a: &Args<'_>) -> Result<AnyKey, Cause> {
    a.engine.shared.charge(RSA_2048_STEPS)?;
    rsa(2_048)
}

fn rsa(bits: usize) -> Result<AnyKey, Cause> {
    Ok(AnyKey::new_rsa(bits, &|| false).map_err(|e| format!("error generating rsa key: {e}"))?)
}
