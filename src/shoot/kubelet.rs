//! Whether the API server of a Shoot reaches a kubelet: the way goes through the tunnel.

use crate::base::cut;
use crate::base::error::chain;
use crate::kube::Client;
use crate::limits;

/// Asks the kubelet of a node through the API server. Errors: why there is no good answer.
pub(crate) fn ask(client: &Client, node: &str) -> Result<(), String> {
    let cut = |text: &str| cut::head(text.trim(), limits::SHOOT_NODE_BYTES_MAX).to_owned();
    let answer = client
        .get_raw(&format!("/api/v1/nodes/{node}/proxy/healthz"))
        .map_err(|error| cut(&chain(&error)))?;
    if answer.status == 200 {
        return Ok(());
    }
    // The API server answers itself if it gets no answer.
    Err(cut(&format!("status code {}: {}", answer.status, String::from_utf8_lossy(&answer.body))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Connection, Options};
    use crate::net::testing::{Act, TestServer};

    #[test]
    fn only_a_good_answer_of_the_kubelet_counts() {
        let ask_with = |status: u16| {
            let server = TestServer::plain(move |request| {
                assert_eq!(request.path, "/api/v1/nodes/h1/proxy/healthz");
                Act::json(status, "no agent available")
            });
            let client = Client::new(Connection::new(server.url()), Options::default()).unwrap();
            ask(&client, "h1")
        };
        assert_eq!(ask_with(200), Ok(()));
        for status in [500, 502, 503, 403] {
            let why = ask_with(status).unwrap_err();
            assert_eq!(why, format!("status code {status}: no agent available"));
        }
        let nobody =
            Client::new(Connection::new("http://127.0.0.1:9".to_owned()), Options::default()).unwrap();
        assert!(ask(&nobody, "h1").is_err());
    }
}
