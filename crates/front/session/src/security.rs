//! TLS to clients: the CQL ports with TLS, and the begin of their connections. The handshake runs on the shard that
//! owns the connection.

use std::net::SocketAddr;
use std::sync::Arc;

use rt::{Rt, Stream};
use tls::{Accepted, Credentials};

use crate::SessionConfig;

/// TLS for clients.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The node's certificate and truststore.
    pub credentials: Arc<Credentials>,
    /// The ports with TLS accept plain text, too.
    pub optional: bool,
    /// A port of its own; without one the ordinary port uses TLS.
    pub native_address: Option<SocketAddr>,
    /// The same for the shard-aware port.
    pub shard_aware_address: Option<SocketAddr>,
}

/// The protocol of a port.
#[derive(Clone, Debug, Default)]
pub(crate) enum Security {
    #[default]
    Plain,
    Tls {
        credentials: Arc<Credentials>,
        optional: bool,
    },
}

/// A port to listen on.
pub(crate) struct ListenOn {
    pub(crate) address: SocketAddr,
    pub(crate) shard_aware: bool,
    pub(crate) security: Security,
}

/// The ports of a node: the ordinary ones, and those of TLS where they are others.
pub(crate) fn ports(config: &SessionConfig, tls: Option<&ClientTls>) -> Vec<ListenOn> {
    let secured =
        |tls: &ClientTls| Security::Tls { credentials: tls.credentials.clone(), optional: tls.optional };
    let mut ports = Vec::new();
    for (plain, own, shard_aware) in [
        (Some(config.native_transport_address), tls.and_then(|tls| tls.native_address), false),
        (config.shard_aware_address, tls.and_then(|tls| tls.shard_aware_address), true),
    ] {
        let security = tls.filter(|_| own.is_none()).map(secured).unwrap_or_default();
        ports.extend(plain.map(|address| ListenOn { address, shard_aware, security }));
        let own = own.zip(tls);
        ports.extend(own.map(|(address, tls)| ListenOn { address, shard_aware, security: secured(tls) }));
    }
    ports
}

impl Security {
    /// Whether the port uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Security::Tls { .. })
    }

    /// The accepted connection, decrypted if it is encrypted.
    pub(crate) async fn secure(
        self,
        rt: &Rt,
        config: &SessionConfig,
        stream: Stream,
    ) -> Result<Accepted, tls::TlsError> {
        match self {
            Security::Plain => Ok(plain(stream)),
            Security::Tls { credentials, optional } => {
                tls::accept(rt, stream, &credentials, optional, config.handshake_timeout).await
            }
        }
    }
}

/// A connection without TLS.
pub(crate) fn plain(stream: Stream) -> Accepted {
    Accepted { stream, encrypted: false, certificate: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_has_the_ordinary_port_unless_it_has_one_of_its_own() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let config =
            SessionConfig { shard_aware_address: Some(address(2)), ..SessionConfig::new(address(1)) };
        let pem = tls::Pem {
            certificate: testkit::certificates::NODE.certificate.to_vec(),
            key: testkit::certificates::NODE.key.to_vec(),
            truststore: None,
        };
        let policy = tls::Policy { client_auth: tls::ClientAuth::No, verify_names: false };
        let credentials = Arc::new(tls::Credentials::new(pem, policy).expect("they are good"));
        let show = |native, shard_aware| {
            let credentials = credentials.clone();
            let (native_address, shard_aware_address) = (native, shard_aware);
            let tls = ClientTls { credentials, optional: false, native_address, shard_aware_address };
            let ports = ports(&config, Some(&tls));
            let show = |on: &ListenOn| (on.address.port(), on.shard_aware, on.security.is_tls());
            ports.iter().map(show).collect::<Vec<_>>()
        };
        assert_eq!(show(None, None), [(1, false, true), (2, true, true)]);
        assert_eq!(show(Some(address(3)), None), [(1, false, false), (3, false, true), (2, true, true)]);
        assert_eq!(
            show(Some(address(3)), Some(address(4))),
            [(1, false, false), (3, false, true), (2, true, false), (4, true, true)]
        );
        assert!(ports(&config, None).iter().all(|on| !on.security.is_tls()));
    }
}
