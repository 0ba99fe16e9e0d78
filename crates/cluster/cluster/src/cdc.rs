//! The JSON of the schema's settings of change data capture.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use schema::{Cdc, CdcGeneration, CdcPreimage, CdcVnode};
use serde::{Deserialize, Serialize};

use crate::error::SchemaCodecError;

/// The option `cdc`. Of a table that never had it, it is the word `false`, as versions wrote it that had no more.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum StoredCdc {
    Word(bool),
    Map { enabled: bool, preimage: String, postimage: bool, keys_only: bool, ttl: u32 },
}

impl From<Cdc> for StoredCdc {
    fn from(cdc: Cdc) -> Self {
        if cdc == Cdc::default() {
            return Self::Word(false);
        }
        Self::Map {
            enabled: cdc.enabled,
            preimage: cdc.preimage.word().to_owned(),
            postimage: cdc.postimage,
            keys_only: cdc.keys_only,
            ttl: cdc.ttl,
        }
    }
}

impl StoredCdc {
    /// A preimage of a later version is the fullest one.
    pub(crate) fn load(self) -> Cdc {
        match self {
            Self::Word(enabled) => Cdc { enabled, ..Cdc::default() },
            Self::Map { enabled, preimage, postimage, keys_only, ttl } => {
                let preimage = CdcPreimage::from_word(&preimage).unwrap_or(CdcPreimage::Full);
                Cdc { enabled, preimage, postimage, keys_only, ttl }
            }
        }
    }
}

/// A generation of streams: each range with its last token and its number of shards.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredCdcGeneration {
    start_millis: i64,
    vnodes: Vec<(i64, u16)>,
}

impl From<&CdcGeneration> for StoredCdcGeneration {
    fn from(generation: &CdcGeneration) -> Self {
        let vnodes = generation.vnodes.iter().map(|vnode| (vnode.upto, vnode.shards)).collect();
        Self { start_millis: generation.start_millis, vnodes }
    }
}

impl StoredCdcGeneration {
    /// # Errors
    /// When it has no ranges, they do not rise, or one has no shard.
    pub(crate) fn load(self) -> Result<CdcGeneration, SchemaCodecError> {
        let rises = self.vnodes.is_sorted_by(|(one, _), (next, _)| one < next);
        if self.vnodes.is_empty() || !rises || self.vnodes.iter().any(|(_, shards)| *shards == 0) {
            let found = format!("{} ranges from {}", self.vnodes.len(), self.start_millis);
            return Err(SchemaCodecError::Value { what: "a generation of streams of changes", found });
        }
        let vnodes = self.vnodes.into_iter().map(|(upto, shards)| CdcVnode { upto, shards }).collect();
        Ok(CdcGeneration { start_millis: self.start_millis, vnodes })
    }
}
