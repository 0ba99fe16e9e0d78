//! A node's identity: chosen at its first start, and never changed.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::{Path, PathBuf};

use rt::{DiskError, Rt};
use serde::{Deserialize, Serialize};

const FILE_NAME: &str = "node.json";
const BYTES_MAX: usize = 1 << 20;
const FORMAT_VERSION: u32 = 1;
/// Generations are seconds since 1970, and stay far below it.
const GENERATION_MAX: u64 = 1 << 62;

/// A node's lasting identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIdentity {
    /// Version of the data directory's layout.
    pub format: u32,
    /// The cluster it belongs to.
    pub cluster_name: String,
    /// Its id, in the form of a UUID.
    pub host_id: [u8; 16],
    /// Its places on the ring.
    pub tokens: Vec<i64>,
    /// Shards that the data was last written by.
    pub shard_count: u16,
    /// The generation of its last process: seconds since 1970 at its start, or more, so that each is later than the one before.
    #[serde(default)]
    pub generation: u64,
}

/// A data directory that this node must not use.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Not the file that was written.
    #[error("{path} is damaged ({error}); restore it from a backup of this node, nothing was changed")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The error.
        error: serde_json::Error,
    },
    /// Written by a later version of the server.
    #[error(
        "{path} was written by a newer version (layout {found}, this version reads up to {FORMAT_VERSION}); start the \
         newer version, nothing was changed"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The layout found.
        found: u32,
    },
    /// The directory belongs to another cluster.
    #[error(
        "the data directory belongs to cluster '{found}', but cluster_name is '{expected}'; correct cluster_name or \
         use another directory"
    )]
    OtherCluster {
        /// The configured name.
        expected: String,
        /// The directory's.
        found: String,
    },
}

/// The tokens of a node that has none yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewTokens {
    /// So many, at random.
    Random(u16),
    /// These, of which there is one at least.
    These(Vec<i64>),
}

impl NodeIdentity {
    /// Reads the identity in `directory` (which exists), or makes one with these tokens.
    ///
    /// # Errors
    /// [`IdentityError::Corrupt`] when the file is no identity, [`IdentityError::Newer`] when a later version wrote it,
    /// [`IdentityError::OtherCluster`] when it has another cluster's name, [`IdentityError::Disk`].
    pub async fn open(
        rt: &Rt,
        directory: &Path,
        cluster_name: &str,
        tokens: &NewTokens,
    ) -> Result<Self, IdentityError> {
        let path = directory.join(FILE_NAME);
        let bytes = match rt.disk().read_durably(&path, BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => {
                let identity = Self::fresh(rt, cluster_name, tokens);
                identity.save(rt, directory).await?;
                return Ok(identity);
            }
            Err(error) => return Err(error.into()),
        };
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let corrupt = |error| IdentityError::Corrupt { path: path.clone(), error };
        let Format { format: found } = serde_json::from_slice(&bytes).map_err(corrupt)?;
        if found > FORMAT_VERSION {
            return Err(IdentityError::Newer { path, found });
        }
        let identity: Self = serde_json::from_slice(&bytes).map_err(corrupt)?;
        if identity.generation >= GENERATION_MAX {
            let error = format!("generation {} lies too far ahead", identity.generation);
            return Err(corrupt(serde::de::Error::custom(error)));
        }
        if identity.cluster_name != cluster_name {
            return Err(IdentityError::OtherCluster {
                expected: cluster_name.to_owned(),
                found: identity.cluster_name,
            });
        }
        Ok(identity)
    }

    /// Keeps the identity in `directory`.
    ///
    /// # Errors
    /// A [`DiskError`] when the file cannot be replaced durably.
    #[expect(clippy::expect_used, reason = "plain values have a JSON form")]
    pub async fn save(&self, rt: &Rt, directory: &Path) -> Result<(), DiskError> {
        let bytes = serde_json::to_vec_pretty(self).expect("an identity is plain data");
        rt.disk().write_atomically(directory.join(FILE_NAME), &bytes).await
    }

    /// Begins another generation. Its number is on disk before it is returned, for others must not see it twice.
    ///
    /// # Errors
    /// A [`DiskError`] when the number cannot be stored; the node must not start with it then.
    pub async fn begin_life(&mut self, rt: &Rt, directory: &Path) -> Result<u64, DiskError> {
        let now = u64::try_from(rt.wall_micros() / 1_000_000).unwrap_or(0);
        let last = self.generation;
        self.generation = now.max(last + 1);
        assert!(self.generation > last, "a process lifetime is later than the one before");
        self.save(rt, directory).await?;
        Ok(self.generation)
    }

    fn fresh(rt: &Rt, cluster_name: &str, tokens: &NewTokens) -> Self {
        let mut host_id = [0; 16];
        rt.fill_random(&mut host_id);
        host_id[6] = (host_id[6] & 0x0f) | 0x40;
        host_id[8] = (host_id[8] & 0x3f) | 0x80;
        let mut tokens: Vec<i64> = match tokens {
            NewTokens::Random(count) => (0..(*count).max(1)).map(|_| rt.random_u64() as i64).collect(),
            NewTokens::These(tokens) => tokens.clone(),
        };
        tokens.sort_unstable();
        tokens.dedup();
        assert!(!tokens.is_empty(), "a node has a token");
        Self {
            format: FORMAT_VERSION,
            cluster_name: cluster_name.to_owned(),
            host_id,
            tokens,
            shard_count: rt.shard_count(),
            generation: 0,
        }
    }
}
