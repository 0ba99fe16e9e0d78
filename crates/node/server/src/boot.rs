//! The configuration that every shard of a node opens with, and where the node has its files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::NodeIdentity;
use coordinator::ClusterView;
use rt::Rt;
use schema::Schema;

use crate::directory::Directory;
use crate::settings::Settings;
use crate::{Canaries, Config, NodeError};

/// The configuration of every shard before it opens.
#[derive(Debug)]
pub(crate) struct Boot {
    /// As it was at the start.
    pub(crate) config: Config,
    /// As it is now.
    pub(crate) settings: Settings,
    /// Injected bugs; only the simulator plants any.
    pub(crate) canaries: rt::Injected<Canaries>,
    pub(crate) directories: Directories,
    pub(crate) identity: NodeIdentity,
    pub(crate) schema: Arc<Schema>,
    pub(crate) view: Arc<ClusterView>,
    /// TLS for clients.
    pub(crate) client_tls: Option<session::ClientTls>,
    /// The certificate of the DynamoDB API's port with TLS.
    pub(crate) alternator_tls: Option<Arc<tls::Credentials>>,
    /// The certificate of administration and metrics.
    pub(crate) api_tls: Option<Arc<tls::Credentials>>,
    /// The directory of users (LDAP).
    pub(crate) directory: Option<Arc<Directory>>,
    /// The service that has the files of exports and imports.
    pub(crate) objects: Option<dynamo::ObjectStore>,
    pub(crate) started_micros: i64,
}

/// The directories of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directories {
    pub(crate) data: PathBuf,
    pub(crate) commitlog: PathBuf,
    /// Identity, the cluster's log, lock.
    pub(crate) node: PathBuf,
    pub(crate) hints: PathBuf,
    pub(crate) audit: PathBuf,
}

impl Directories {
    pub(crate) fn of(config: &Config) -> Self {
        let data = config.data_file_directories.clone();
        let beside = |name: &str| data.parent().unwrap_or(Path::new("/")).join(name);
        let commitlog = config.commitlog_directory.clone().unwrap_or_else(|| beside("commitlog"));
        let hints = config.hints_directory.clone().unwrap_or_else(|| beside("hints"));
        let audit = config.audit_logging_options_audit_logs_dir.clone().unwrap_or_else(|| beside("audit"));
        Self { commitlog, node: data.join(".torc"), hints, audit, data }
    }

    /// Those that no other process may use: each that is not the data's own may have been given to two nodes, or lie beside the data of
    /// both.
    pub(crate) fn locked(&self) -> BTreeSet<&Path> {
        [&self.node, &self.commitlog, &self.hints].map(PathBuf::as_path).into()
    }
}

impl Boot {
    /// Keeps the number of shards that the data is now written by.
    pub(crate) async fn remember_shard_count(&self, rt: &Rt) -> Result<(), NodeError> {
        if self.identity.shard_count != rt.shard_count() {
            let identity = NodeIdentity { shard_count: rt.shard_count(), ..self.identity.clone() };
            identity.save(rt, &self.directories.node).await?;
        }
        Ok(())
    }
}
