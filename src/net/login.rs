//! Values of the headers `Authorization` and `Proxy-Authorization`.

use crate::base::redact::Secret;
use crate::format::base64;

/// User and password (RFC 7617).
pub(crate) fn basic(user: &str, password: &Secret<String>) -> Secret<String> {
    let login = base64::encode(format!("{user}:{}", password.expose()).as_bytes());
    Secret::new(format!("Basic {login}"))
}

/// A token (RFC 6750).
pub fn bearer(token: &str) -> Secret<String> {
    Secret::new(format!("Bearer {token}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_headers() {
        assert_eq!(basic("u", &Secret::new("p:w".to_owned())).expose(), "Basic dTpwOnc=");
        assert_eq!(bearer("t").expose(), "Bearer t");
    }
}
