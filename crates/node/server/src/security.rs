//! The files of TLS: read at the start, and again when they have changed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rpc::{EncryptBetween, Secure};
use rt::{Group, Rt, Task};
use session::ClientTls;
use tls::{ClientAuth, Credentials, Pem, Policy};

use crate::config::EncryptionFiles;
use crate::{Config, NodeError};

/// No certificate is longer.
const FILE_LEN_MAX: usize = 1 << 20;
/// How often the files are looked at.
const RELOAD_PAUSE: Duration = Duration::from_secs(10);

/// The node's certificate and truststore.
pub(crate) struct Security {
    internode: Option<Watched>,
    clients: Option<Watched>,
    alternator: Option<Watched>,
    api: Option<Watched>,
}

/// Credentials and the files that they are of.
#[derive(Clone)]
struct Watched {
    what: &'static str,
    files: EncryptionFiles,
    credentials: Arc<Credentials>,
}

impl Security {
    /// Reads the files that the configuration names.
    pub(crate) async fn read(rt: &Rt, config: &Config) -> Result<Security, NodeError> {
        let wrong = |error: crate::ConfigError| NodeError::Open(error.to_string());
        let internode = Policy {
            client_auth: match config.server_encryption_options_require_client_auth {
                true => ClientAuth::Required,
                false => ClientAuth::No,
            },
            verify_names: config.server_encryption_options_require_endpoint_verification,
        };
        let clients =
            Policy { client_auth: config.client_encryption_options_require_client_auth, verify_names: false };
        Ok(Security {
            internode: match config.internode_files().map_err(wrong)? {
                Some(files) => Some(Watched::read(rt, "server_encryption_options", files, internode).await?),
                None => None,
            },
            clients: match config.client_files().map_err(wrong)? {
                Some(files) => Some(Watched::read(rt, "client_encryption_options", files, clients).await?),
                None => None,
            },
            alternator: match config.alternator_files().map_err(wrong)? {
                Some(files) => {
                    // Clients of the DynamoDB API sign their requests instead.
                    let policy = Policy { client_auth: ClientAuth::No, verify_names: false };
                    Some(Watched::read(rt, "alternator_encryption_options", files, policy).await?)
                }
                None => None,
            },
            api: match config.api_files().map_err(wrong)? {
                Some(files) => {
                    let client_auth = config.api_encryption_options_require_client_auth;
                    let policy = Policy { client_auth, verify_names: false };
                    Some(Watched::read(rt, "api_encryption_options", files, policy).await?)
                }
                None => None,
            },
        })
    }

    /// The certificate of administration and metrics.
    pub(crate) fn api(&self) -> Option<Arc<Credentials>> {
        self.api.as_ref().map(|watched| watched.credentials.clone())
    }

    /// The certificate of the DynamoDB API's port with TLS.
    pub(crate) fn alternator(&self) -> Option<Arc<Credentials>> {
        self.alternator.as_ref().map(|watched| watched.credentials.clone())
    }

    /// How connections between nodes are encrypted.
    pub(crate) fn internode(&self, config: &Config) -> Option<Secure> {
        let between = match &*config.server_encryption_options_internode_encryption {
            "dc" => EncryptBetween::Datacenters,
            "rack" => EncryptBetween::Racks,
            // The configuration was checked; with `none` there are no files.
            _ => EncryptBetween::Nodes,
        };
        self.internode.as_ref().map(|watched| Secure { credentials: watched.credentials.clone(), between })
    }

    /// How those of clients are.
    pub(crate) fn clients(&self, config: &Config) -> Option<ClientTls> {
        let own = |port: u16| (port != 0).then(|| (config.rpc_address, port).into());
        self.clients.as_ref().map(|watched| ClientTls {
            credentials: watched.credentials.clone(),
            optional: config.client_encryption_options_optional,
            native_address: own(config.native_transport_port_ssl),
            shard_aware_address: own(config.native_shard_aware_transport_port_ssl),
        })
    }

    /// Takes over files that change, until the task ends.
    pub(crate) fn watch(&self, rt: &Rt) -> Option<Task<()>> {
        let watched: Vec<Watched> = [&self.internode, &self.clients, &self.alternator, &self.api]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        if watched.is_empty() {
            return None;
        }
        let clock = rt.clone();
        let task = async move {
            let mut logged = vec![String::new(); watched.len()];
            loop {
                clock.sleep(RELOAD_PAUSE).await;
                for (one, logged) in watched.iter().zip(&mut logged) {
                    one.reload(&clock, logged).await;
                }
            }
        };
        Some(rt.spawn(Group::Maintenance, task))
    }
}

impl Watched {
    async fn read(
        rt: &Rt,
        what: &'static str,
        files: EncryptionFiles,
        policy: Policy,
    ) -> Result<Watched, NodeError> {
        let failed = |error: &dyn std::fmt::Display| NodeError::Open(format!("{what}: {error}"));
        let pem = read(rt, &files).await.map_err(|error| failed(&error))?;
        let credentials = Credentials::new(pem, policy).map_err(|error| failed(&error))?;
        Ok(Watched { what, files, credentials: Arc::new(credentials) })
    }

    /// Loads files that have changed. An error in them is logged once.
    async fn reload(&self, rt: &Rt, logged: &mut String) {
        let what = self.what;
        let replaced = match read(rt, &self.files).await {
            Ok(pem) => self.credentials.replace(pem).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match replaced {
            Ok(false) => logged.clear(),
            Ok(true) => tracing::info!("{what}: the files have changed and count for new connections"),
            // Files are often replaced one after another: the next look finds them all.
            Err(error) if *logged == error => {}
            Err(error) => {
                tracing::warn!("{what}: the files cannot be used, those of before stay: {error}");
                *logged = error;
            }
        }
    }
}

async fn read(rt: &Rt, files: &EncryptionFiles) -> Result<Pem, rt::DiskError> {
    let file = async |path: &Path| rt.disk().read_to_end(path, FILE_LEN_MAX).await;
    Ok(Pem {
        certificate: file(&files.certificate).await?,
        key: file(&files.key).await?,
        truststore: match &files.truststore {
            Some(path) => Some(file(path).await?),
            None => None,
        },
    })
}
