//! TLS of the server: certificates that can be swapped, client certificates that are checked per request.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};

use crate::pki::{Identity, Subject, certificate_subject};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

#[derive(Debug)]
struct Time(Clock);

fn unix(clock: &Clock) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(clock.now().unix().unsigned_abs()))
}

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix(&self.0))
    }
}

/// Accepts every client certificate in the handshake. Like the real server, this one checks it per request and answers
/// 401 instead of breaking the handshake.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Shows one certificate to all clients, even an invalid one.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// The configuration of a server with this certificate. It does not check that certificate and key match.
pub fn server_config(identity: &Identity, clock: &Clock) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let key = provider().key_provider.load_private_key(key).unwrap();
    let shown = CertifiedKey::new(certificates(&identity.certificate), key);
    let config = ServerConfig::builder_with_details(provider(), Arc::new(Time(clock.clone())))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(AnyClient(provider())))
        .with_cert_resolver(Arc::new(Shown(Arc::new(shown))));
    Arc::new(config)
}

/// The CAs of trusted client certificates.
#[derive(Clone, Debug)]
pub struct Trust(Option<Arc<dyn ClientCertVerifier>>);

impl Trust {
    /// Certificates of these CAs (PEM); none at all if there is no CA.
    pub fn new(authorities: &[String]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in authorities.iter().flat_map(|pem| certificates(pem)) {
            roots.add(certificate).unwrap();
        }
        if roots.is_empty() {
            return Self(None);
        }
        Self(Some(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap()))
    }

    /// The subject of a presented chain, if it is trusted now.
    pub fn subject(&self, chain: &[CertificateDer<'_>], clock: &Clock) -> Option<Subject> {
        let (end, rest) = chain.split_first()?;
        self.0.as_ref()?.verify_client_cert(end, rest, unix(clock)).ok()?;
        certificate_subject(end)
    }
}

/// Bytes on the wire, TLS included.
#[derive(Debug, Default)]
pub struct Traffic {
    pub received: AtomicU64,
    pub sent: AtomicU64,
    pub connections: AtomicU64,
}

/// A socket that counts.
pub struct Counted {
    pub tcp: TcpStream,
    traffic: Arc<Traffic>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.tcp.read(buf)?;
        self.traffic.received.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl Write for Counted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.tcp.write(buf)?;
        self.traffic.sent.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

/// The server's end of a TLS connection.
pub struct Stream(rustls::StreamOwned<ServerConnection, Counted>);

impl Stream {
    /// Takes a connection and does the handshake.
    pub fn accept(config: Arc<ServerConfig>, tcp: TcpStream, traffic: Arc<Traffic>) -> io::Result<Self> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut counted = Counted { tcp, traffic };
        while tls.is_handshaking() {
            tls.complete_io(&mut counted)?;
        }
        Ok(Self(rustls::StreamOwned::new(tls, counted)))
    }

    /// The client's certificate chain, unverified.
    pub fn peer(&self) -> Vec<CertificateDer<'static>> {
        let chain = self.0.conn.peer_certificates().unwrap_or_default();
        chain.iter().cloned().map(CertificateDer::into_owned).collect()
    }

    pub fn tcp(&self) -> &TcpStream {
        &self.0.sock.tcp
    }

    /// Whether the client has closed the connection. Does not wait.
    pub fn is_closed(&mut self) -> bool {
        let waits = |on: bool| self.0.sock.tcp.set_nonblocking(!on).is_ok();
        if !waits(false) {
            return true;
        }
        let closed = loop {
            match self.0.conn.read_tls(&mut self.0.sock) {
                Ok(0) => break true,
                Ok(_) => match self.0.conn.process_new_packets() {
                    Ok(state) if state.peer_has_closed() => break true,
                    Ok(_) => {}
                    Err(_) => break true,
                },
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
        };
        self.0.sock.tcp.set_nonblocking(false).is_err() || closed
    }

    /// Ends the TLS session properly.
    pub fn close(&mut self) {
        self.0.conn.send_close_notify();
        // The peer may have closed the connection.
        let _ = self.0.conn.write_tls(&mut self.0.sock);
        let _ = self.0.sock.tcp.shutdown(std::net::Shutdown::Both);
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
