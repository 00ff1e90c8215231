//! The token service of a registry, like a company's identity provider: JSON web tokens for users.

use gardenlet::base::clock::Clock;
use gardenlet::base::random;
use gardenlet::format::base64;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use support::encoding::unescape;
use support::http::message::{Request, Response};
use support::registry::{Answer, Registry as Server, refusal};

/// The issuer and the audience of the tokens.
pub(crate) const ISSUER: &str = "tokens.example.org";
pub(crate) const SERVICE: &str = "charts";
const KEY: &str = "key-1";

/// A running token service. It ends when dropped.
pub(crate) struct Tokens {
    server: Server,
    /// The keys with which a registry verifies tokens (JWKS).
    pub(crate) keys: Value,
}

impl Tokens {
    /// Starts it for one user.
    pub(crate) fn start(user: &str, password: &str) -> Result<Self> {
        let random = SystemRandom::new();
        let bad = |_| Failure::new("no key for tokens");
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(bad)?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        let key = key.map_err(|_| Failure::new("no key for tokens"))?;
        let point = key.public_key().as_ref();
        let (x, y) = (base64::encode_url(&point[1..33]), base64::encode_url(&point[33..]));
        let keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": KEY, "x": x, "y": y}]});
        let server = Server::start(&Clock::system());
        let login = format!("Basic {}", base64::encode(format!("{user}:{password}").as_bytes()));
        let form = format!("password={password}");
        server.twist(move |request, _| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let is_known = request.header("authorization") == Some(&login) || body.contains(&form);
            let answer = if is_known { issue(&key, request, &body) } else { refusal(401, "UNAUTHORIZED") };
            Some(Answer::Reply(answer))
        });
        Ok(Self { server, keys })
    }

    pub(crate) fn realm(&self) -> String {
        format!("https://{}/token", self.server.address)
    }

    /// The CA of its certificate, PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.server.ca
    }

    /// The number of requests since the last call.
    pub(crate) fn asked(&self) -> usize {
        self.server.take_seen().len()
    }
}

/// A token for all requested scopes.
fn issue(key: &EcdsaKeyPair, request: &Request, form: &str) -> Response {
    let query = format!("{}&{form}", request.raw_query);
    let scopes = query.split('&').filter_map(|pair| Some(unescape(pair.strip_prefix("scope=")?, true)));
    let scopes: Vec<String> =
        scopes.flat_map(|all| all.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    let access = scopes.iter().filter_map(|scope| {
        let (kind, rest) = scope.split_once(':')?;
        let (name, actions) = rest.rsplit_once(':')?;
        let actions: Vec<&str> = actions.split(',').collect();
        Some(json!({"type": kind, "name": name, "actions": actions}))
    });
    let now = Clock::system().now().unix();
    let claims = json!({"iss": ISSUER, "sub": "robot", "aud": SERVICE, "iat": now, "nbf": now - 60, "exp": now + 300,
        "jti": random::hex(16), "access": access.collect::<Vec<_>>()});
    let head = json!({"typ": "JWT", "alg": "ES256", "kid": KEY});
    let part = |value: &Value| base64::encode_url(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&head), part(&claims));
    let Ok(signature) = key.sign(&SystemRandom::new(), signed.as_bytes()) else {
        return refusal(500, "UNKNOWN");
    };
    let token = format!("{signed}.{}", base64::encode_url(signature.as_ref()));
    Response::json(200, &json!({"token": token, "expires_in": 300}))
}
