//! A node's certificate, its truststore, and its policy for peers: made from PEM texts, shared by all shards, replaced while the
//! node runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rt::Replaceable;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::TlsError;
use crate::verify::AnyName;

/// The texts of the files.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The node's certificate, and those between it and the authority.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
    /// The authorities that are trusted.
    pub truststore: Option<Vec<u8>>,
}

/// The key does not belong into a log.
impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let truststore = self.truststore.as_ref().map_or(0, Vec::len);
        write!(f, "Pem({} and {truststore} bytes, and a key)", self.certificate.len())
    }
}

/// Whether a connecting peer shows a certificate. One that is shown must be of an authority in the truststore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// It is not asked for one.
    #[default]
    No,
    /// It may show one.
    Optional,
    /// It must show one.
    Required,
}

/// The demands on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether a connecting peer shows a certificate.
    pub client_auth: ClientAuth,
    /// The certificate of a peer to which this node connects must be for the address that was connected to.
    pub verify_names: bool,
}

/// The node's wall clock as of the last handshake: rustls has a clock that is shared by all threads, the runtime has one a
/// shard, which may be simulated.
#[derive(Debug, Default)]
pub(crate) struct WallClock(AtomicI64);

impl WallClock {
    pub(crate) fn set(&self, now_micros: i64) {
        self.0.store(now_micros, Ordering::Relaxed);
    }
}

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let micros = u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0);
        Some(UnixTime::since_unix_epoch(Duration::from_micros(micros)))
    }
}

/// The objects of rustls, made of one set of files.
struct Built {
    pem: Pem,
    server: Arc<ServerConfig>,
    /// None without a truststore: such a node cannot connect.
    client: Option<Arc<ClientConfig>>,
}

/// A node's certificate and truststore. Shared by all shards; the lock is taken once a connection.
pub struct Credentials {
    policy: Policy,
    clock: Arc<WallClock>,
    built: Replaceable<Built>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({:?})", self.policy)
    }
}

impl Credentials {
    /// Credentials of these files.
    ///
    /// # Errors
    /// [`TlsError::Pem`] when a file lacks a certificate or key, or cannot be parsed, or they do not match.
    pub fn new(pem: Pem, policy: Policy) -> Result<Credentials, TlsError> {
        let clock = Arc::new(WallClock::default());
        let built = Replaceable::new(build(pem, policy, &clock)?);
        Ok(Credentials { policy, clock, built })
    }

    /// Takes over changed files for the connections to come; whether they have changed. When they cannot be used, those
    /// of before stay.
    ///
    /// # Errors
    /// As [`Credentials::new`]; the present credentials stay then.
    pub fn replace(&self, pem: Pem) -> Result<bool, TlsError> {
        if self.built.get().pem == pem {
            return Ok(false);
        }
        self.built.replace(build(pem, self.policy, &self.clock)?);
        Ok(true)
    }

    /// For accepting at this moment.
    pub(crate) fn server(&self, now_micros: i64) -> Arc<ServerConfig> {
        self.clock.set(now_micros);
        Arc::clone(&self.built.get().server)
    }

    /// For connecting at this moment.
    pub(crate) fn client(&self, now_micros: i64) -> Result<Arc<ClientConfig>, TlsError> {
        self.clock.set(now_micros);
        let client = self.built.get().client.clone();
        client.ok_or_else(|| TlsError::Pem("there is no truststore to check the other side with".to_owned()))
    }
}

fn build(pem: Pem, policy: Policy, clock: &Arc<WallClock>) -> Result<Built, TlsError> {
    let certificates = certificates("certificate", &pem.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key)
        .map_err(|error| wrong("keyfile", &format!("no private key could be read from it: {error}")))?;
    let roots = pem.truststore.as_deref().map(roots).transpose()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = server(policy, clock, &provider, roots.clone(), (certificates.clone(), key.clone_key()))?;
    let client =
        roots.map(|roots| client(policy, clock, &provider, roots, (certificates, key))).transpose()?;
    Ok(Built { pem, server: Arc::new(server), client: client.map(Arc::new) })
}

type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn server(
    policy: Policy,
    clock: &Arc<WallClock>,
    provider: &Arc<CryptoProvider>,
    roots: Option<Arc<RootCertStore>>,
    (certificates, key): Shown,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_details(provider.clone(), clock.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Pem(error.to_string()))?;
    let builder = match (policy.client_auth, roots) {
        (ClientAuth::No, _) => builder.with_no_client_auth(),
        (_, None) => {
            return Err(wrong("truststore", "require_client_auth needs it: who may connect is in there"));
        }
        (client_auth, Some(roots)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            let verifier = match client_auth {
                ClientAuth::Optional => verifier.allow_unauthenticated().build(),
                _ => verifier.build(),
            };
            let verifier = verifier.map_err(|error| wrong("truststore", &error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut server = builder.with_single_cert(certificates, key).map_err(|error| mismatch(&error))?;
    // Connections last long: resumption saves little, and would outlive changed files.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(server)
}

fn client(
    policy: Policy,
    clock: &Arc<WallClock>,
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    (certificates, key): Shown,
) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_details(provider.clone(), clock.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Pem(error.to_string()))?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    let verifier = verifier.map_err(|error| wrong("truststore", &error.to_string()))?;
    let builder = match policy.verify_names {
        true => builder.with_webpki_verifier(verifier),
        false => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(verifier))),
    };
    let client = builder.with_client_auth_cert(certificates, key);
    let mut client = client.map_err(|error| mismatch(&error))?;
    client.resumption = Resumption::disabled();
    Ok(client)
}

fn wrong(file: &str, why: &str) -> TlsError {
    TlsError::Pem(format!("{file}: {why}"))
}

fn mismatch(error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => wrong("keyfile", "the key does not belong to the certificate"),
        error => wrong("certificate, keyfile", &error.to_string()),
    }
}

fn certificates(file: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(wrong(file, "there is no certificate in it (PEM is expected)")),
        Ok(all) => Ok(all),
        Err(error) => Err(wrong(file, &format!("it cannot be read as PEM: {error}"))),
    }
}

pub(crate) fn roots(pem: &[u8]) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("truststore", pem)? {
        roots.add(certificate).map_err(|error| wrong("truststore", &error.to_string()))?;
    }
    Ok(Arc::new(roots))
}
