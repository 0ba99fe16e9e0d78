//! The shards that own the tokens of tables: by the token, and of a table with tablets by those.

use std::cell::RefCell;

use rt::Rt;
use schema::TableId;
use sstable::Owner;
use topology::{HostId, Sharder, TableSharder, TabletMaps};

use crate::EngineConfig;

/// The owner that an SSTable is marked with, so that the next start need not look into it; none where another shard may own its tokens by
/// then.
pub(crate) fn mark_of(sharder: &TableSharder, shard: u16) -> Option<Owner> {
    sharder.is_by_token().then(|| Owner { shard, shards: sharder.shard_count() })
}

/// The shards of this node, and the tablets as of the last view.
pub(crate) struct Sharding {
    host: HostId,
    by_token: Sharder,
    tablets: RefCell<TabletMaps>,
}

impl Sharding {
    pub(crate) fn new(rt: &Rt, config: &EngineConfig) -> Self {
        let tablets = RefCell::new(config.tablets.clone());
        Self { host: HostId(config.host_id), by_token: Sharder::new(rt.shard_count()), tablets }
    }

    #[inline]
    pub(crate) fn shard_of(&self, table: TableId, token: i64) -> u16 {
        self.tablets.borrow().shard_of(self.host, self.by_token, table, token)
    }

    /// The shards of this node that own a table's tokens.
    pub(crate) fn sharder_of(&self, table: TableId) -> TableSharder {
        self.sharder(self.host, self.by_token.shard_count(), table)
    }

    pub(crate) fn sharder(&self, node: HostId, shard_count: u16, table: TableId) -> TableSharder {
        self.tablets.borrow().sharder(node, shard_count, table)
    }

    pub(crate) fn use_tablets(&self, tablets: &TabletMaps) {
        if *self.tablets.borrow() != *tablets {
            self.tablets.replace(tablets.clone());
        }
    }
}
