//! Tunnels through a proxy: HTTP CONNECT (RFC 9110) and SOCKS5 (RFC 1928, RFC 1929).

use std::io::{self, Read, Write};

use super::error::Error;
use super::login;
use super::url::Url;
use super::wire::Channel;
use crate::format::address::authority;

/// The whole response of a proxy to CONNECT.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Turns a connection to `proxy` into one to `host` and `port`.
pub(super) fn open(
    channel: &mut Channel,
    proxy: &Url,
    host: &str,
    port: u16,
    agent: &str,
) -> Result<(), Error> {
    if proxy.scheme.starts_with("socks5") {
        socks5(channel, proxy, host, port)
    } else {
        connect(channel, proxy, host, port, agent)
    }
}

fn connect(channel: &mut Channel, proxy: &Url, host: &str, port: u16, agent: &str) -> Result<(), Error> {
    let target = authority(host, port);
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: {agent}\r\n");
    if let Some((user, password)) = &proxy.login {
        let login = login::basic(user, password);
        request.push_str(&format!("Proxy-Authorization: {}\r\n", login.expose()));
    }
    request.push_str("\r\n");
    channel.write_all(request.as_bytes()).and_then(|()| channel.flush()).map_err(broken)?;
    let answer = read_head(channel)?;
    let line = answer.lines().next().unwrap_or_default();
    let status = line.split(' ').nth(1).unwrap_or_default();
    match status.parse::<u16>() {
        Ok(200..=299) if line.starts_with("HTTP/1.") => Ok(()),
        Ok(407) => Err(Error::Proxy(format!("{} requires other credentials", proxy.authority()))),
        Ok(code) => {
            Err(Error::Proxy(format!("{} refused to connect to {target}: {code}", proxy.authority())))
        }
        Err(_) => Err(Error::Proxy(format!("{} is not an HTTP proxy", proxy.authority()))),
    }
}

/// Reads up to the empty line and no further: the following bytes belong to the tunnel.
fn read_head(channel: &mut Channel) -> Result<String, Error> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= ANSWER_BYTES_MAX {
            return Err(Error::TooLarge { what: "answer of the proxy", bytes_max: ANSWER_BYTES_MAX });
        }
        head.push(read_exact::<1>(channel)?[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn socks5(channel: &mut Channel, proxy: &Url, host: &str, port: u16) -> Result<(), Error> {
    let refuse = |what: &str| Error::Proxy(format!("{} {what}", proxy.authority()));
    let methods: &[u8] = if proxy.login.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    channel.write_all(methods).and_then(|()| channel.flush()).map_err(broken)?;
    match (read_exact::<2>(channel)?, &proxy.login) {
        ([5, 0], _) => {}
        ([5, 2], Some((user, password))) => {
            let mut login = vec![1];
            push_short(&mut login, user.as_bytes())
                .ok_or_else(|| refuse("cannot accept a name this long"))?;
            push_short(&mut login, password.expose().as_bytes())
                .ok_or_else(|| refuse("cannot accept a password this long"))?;
            channel.write_all(&login).and_then(|()| channel.flush()).map_err(broken)?;
            if read_exact::<2>(channel)?[1] != 0 {
                return Err(refuse("requires other credentials"));
            }
        }
        ([5, _], _) => return Err(refuse("requires another login method")),
        _ => return Err(refuse("is not a SOCKS5 proxy")),
    }
    // Always by name: the proxy resolves it.
    let mut request = vec![5, 1, 0, 3];
    push_short(&mut request, host.as_bytes()).ok_or_else(|| refuse("cannot accept a host name this long"))?;
    request.extend(port.to_be_bytes());
    channel.write_all(&request).and_then(|()| channel.flush()).map_err(broken)?;
    let [version, code, _, kind] = read_exact::<4>(channel)?;
    if version != 5 || code != 0 {
        return Err(refuse(&format!("refused to connect to {}: code {code}", authority(host, port))));
    }
    let address_bytes = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(read_exact::<1>(channel)?[0]),
        _ => return Err(refuse("is not a SOCKS5 proxy")),
    };
    for _ in 0..address_bytes + 2 {
        read_exact::<1>(channel)?;
    }
    Ok(())
}

fn push_short(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.push(u8::try_from(bytes.len()).ok()?);
    out.extend(bytes);
    Some(())
}

fn read_exact<const N: usize>(channel: &mut Channel) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    channel.read_exact(&mut bytes).map_err(broken)?;
    Ok(bytes)
}

fn broken(error: io::Error) -> Error {
    Error::from_io("talk to the proxy", error)
}
