//! Certificates for tests, with Ed25519 keys: the lengths of their signatures, and so a simulation's messages, are always the
//! same. Made once with openssl; all but one are valid until 2120.

/// A certificate and its key, as PEM texts.
#[derive(Clone, Copy, Debug)]
pub struct Certificate {
    /// The certificate.
    pub certificate: &'static [u8],
    /// Its private key, which protects nothing.
    pub key: &'static [u8],
}

macro_rules! certificate {
    ($name:literal) => {
        Certificate {
            certificate: include_bytes!(concat!("../testdata/tls/", $name, ".pem")),
            key: include_bytes!(concat!("../testdata/tls/", $name, ".key")),
        }
    };
}

/// The authority that the test trusts.
pub const AUTHORITY: &[u8] = include_bytes!("../testdata/tls/authority.pem");
/// Issued by the authority, for 10.0.0.1 to 10.0.0.3, 127.0.0.1 and localhost.
pub const NODE: Certificate = certificate!("node");
/// The same, but expired in 2021.
pub const EXPIRED: Certificate = certificate!("expired");
/// Issued by the authority, for 10.9.9.9.
pub const MISNAMED: Certificate = certificate!("misnamed");
/// Issued by another authority.
pub const STRANGER: Certificate = certificate!("stranger");
/// An authority of clients.
pub const CLIENT_AUTHORITY: &[u8] = include_bytes!("../testdata/tls/clients.pem");
/// Issued by that authority, with `spiffe://torc/ann` among its alternative names, and the organization `Torc, CN=root`.
pub const ANN: Certificate = certificate!("ann");
