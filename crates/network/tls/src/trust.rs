//! The authorities by which a node verifies a service that it is a client of: the service's certificate must be for its name.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;

use crate::TlsError;
use crate::credentials::{WallClock, roots};

/// Trusted authorities. No certificate of the node's own is shown.
pub struct Trust {
    clock: Arc<WallClock>,
    config: Arc<ClientConfig>,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// The authorities in a PEM file.
    ///
    /// # Errors
    /// [`TlsError::Pem`] when the file has none, or cannot be parsed.
    pub fn new(truststore: &[u8]) -> Result<Trust, TlsError> {
        let roots = roots(truststore)?;
        let clock = Arc::new(WallClock::default());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_details(provider, clock.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Pem(error.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Trust { clock, config: Arc::new(config) })
    }

    /// For connecting at this moment.
    pub(crate) fn client(&self, now_micros: i64) -> Arc<ClientConfig> {
        self.clock.set(now_micros);
        Arc::clone(&self.config)
    }
}
