//! A site that reaches everything through a proxy that wants a login: garden, seed and registry, by names that nobody else
//! knows.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use gardenlet::base::thread;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::story_outside::{files, without_secrets};
use crate::support::encoding::base64;
use crate::support::garden::prepare;
use crate::support::registry::Registry;
use crate::world::{Agent, Options, World};

const STACK_BYTES: usize = 128 << 10;
/// `user:word`.
const LOGIN: &str = "Proxy-Authorization: Basic dXNlcjp3b3Jk";

/// A proxy that knows some names and takes one login. It ends when dropped.
struct Proxy {
    listener: TcpListener,
    asked: Arc<Mutex<Vec<String>>>,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    fn start(names: Vec<(&'static str, SocketAddr)>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (taken, told) = (listener.try_clone().unwrap(), asked.clone());
        let accept = move || {
            while let Ok((client, _)) = taken.accept() {
                let (names, told) = (names.clone(), told.clone());
                // A connection that breaks off is the client's affair.
                let serve = move || drop(serve(client, &names, &told));
                drop(thread::spawn("connect", STACK_BYTES, serve).unwrap());
            }
        };
        let accepting = thread::spawn("proxy", STACK_BYTES, accept).unwrap();
        Self { listener, asked, accepting: Some(accepting) }
    }

    fn url(&self) -> String {
        format!("http://user:word@{}", self.listener.local_addr().unwrap())
    }

    fn asked_for(&self, name: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.starts_with(name)).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn serve(mut client: TcpStream, names: &[(&str, SocketAddr)], told: &Mutex<Vec<String>>) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < 8_192 {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let asked = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    told.lock().unwrap().push(asked.to_owned());
    let known = names.iter().find(|(name, _)| asked == format!("{name}:443"));
    let refusal = match known {
        _ if !head.to_lowercase().contains(&LOGIN.to_lowercase()) => "407 Proxy Authentication Required",
        None => "502 Bad Gateway",
        Some((_, address)) => {
            let server = TcpStream::connect(address)?;
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            return carry(&client, &server);
        }
    };
    client.write_all(format!("HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n").as_bytes())
}

fn carry(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn("connect-back", STACK_BYTES, move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    })?;
    let _ = io::copy(&mut &*client, &mut &*server);
    let _ = server.shutdown(Shutdown::Both);
    let _ = back.join();
    Ok(())
}

/// A kubeconfig whose server has another name than its certificate.
fn renamed(world: &World, file: &str, name: &str) -> String {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    cluster["server"] = json!(format!("https://{name}"));
    cluster["tls-server-name"] = json!("127.0.0.1");
    let written = world.file(&format!("{name}.kubeconfig"), &config.to_string());
    written.to_str().unwrap().to_owned()
}

#[test]
fn garden_seed_and_registry_are_reached_through_a_proxy_with_a_login() {
    let world = World::start(&Options::new("proxied"));
    let registry = Registry::start(&world.clock);
    registry.push("charts/echo", "1", &charts::extension());
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let proxy = Proxy::start(vec![
        ("garden.example.org", address(&World::address(&world.garden))),
        ("seed.example.org", address(&World::address(&world.seed))),
        ("registry.example.org", address(&registry.address)),
    ]);
    let (garden, seed) = files(&world);
    let variables = [
        ("GARDEN_KUBECONFIG", renamed(&world, &garden, "garden.example.org")),
        ("KUBECONFIG", renamed(&world, &seed, "seed.example.org")),
        ("HTTPS_PROXY", proxy.url()),
        ("NO_PROXY", "10.0.0.0/8,.internal".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
    let config = without_secrets(&world);
    let agent = Agent::new(&world, "host-1", &config, variables);
    let mut objects = prepare::extension("echo", b"", &json!({"greeting": "hello"}));
    objects[0]["helm"] = json!({"values": {"greeting": "hello"},
        "ociRepository": {"ref": "oci://registry.example.org/charts/echo:1", "caBundleSecretRef": {"name": "ca"}}});
    world.garden.apply(&[json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": "garden",
        "labels": {"gardener.cloud/role": "oci-ca-bundle"}}, "data": {"bundle.crt": base64(registry.ca.as_bytes())}})]);
    world.garden.apply(&objects);
    agent.launch();
    world.wait_until_ready();
    installed(&world, "echo");
    for name in ["garden.example.org:443", "seed.example.org:443", "registry.example.org:443"] {
        assert!(proxy.asked_for(name) > 0, "{name}: {:?}", proxy.asked.lock().unwrap());
    }
    let others: Vec<String> = {
        let asked = proxy.asked.lock().unwrap();
        asked.iter().filter(|name| !name.ends_with(".example.org:443")).cloned().collect()
    };
    assert!(others.is_empty(), "{others:?}");
    assert!(!world.log().iter().any(|line| line.contains("user:word") || line.contains("dXNlcjp3b3Jk")));
    agent.stop();
}
