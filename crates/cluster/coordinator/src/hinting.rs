//! Writes that a shard coordinates, and the hints of them that are left for nodes that are down: when each began, and their keeper.

use std::cell::{Cell, OnceCell};

use bytes::Bytes;
use hints::HintFigures;
use replica::Replica;
use rt::Rt;
use schema::Table;
use topology::HostId;

/// Keeps updates for nodes that are down.
pub trait HintKeeper {
    /// Keeps an update: for which node, of which table, as a message, of a write that began then (its coordinator); whether
    /// it is kept.
    fn keep(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool;
    /// The hints on this shard, by node.
    fn kept(&self) -> Vec<(HostId, HintFigures)>;
    /// When the latest write began of which something was kept, microseconds since the epoch; [`i64::MIN`] for none.
    fn latest_micros(&self) -> i64;
}

/// When writes begin, and the keeper of their hints.
pub(crate) struct Hinting {
    rt: Rt,
    replica: Replica,
    keeper: OnceCell<Box<dyn HintKeeper>>,
    /// The latest of [`Hinting::begin_write`].
    begun_latest: Cell<i64>,
}

impl Hinting {
    pub(crate) fn new(rt: &Rt, replica: &Replica) -> Self {
        let (rt, replica) = (rt.clone(), replica.clone());
        Self { rt, replica, keeper: OnceCell::new(), begun_latest: Cell::new(i64::MIN) }
    }

    /// When a write begins, microseconds since 1970: later than every truncation that this shard knows of, and known to those that come
    /// (`LatestPending`), also when the wall clock is behind. The rest of the write, a hint, counts as of then: a truncation removes it
    /// with the write's rows on the other replicas.
    pub(crate) fn begin_write(&self) -> i64 {
        let truncated = self.replica.engine().truncated_latest();
        let begun_micros = self.rt.wall_micros().max(truncated.saturating_add(1));
        assert!(
            begun_micros > truncated || truncated == i64::MAX,
            "a write begins after each truncation that is known"
        );
        self.begun_latest.set(self.begun_latest.get().max(begun_micros));
        begun_micros
    }

    /// When this shard took up its last write, or that of its last hint, microseconds; [`i64::MIN`] for never.
    pub(crate) fn latest_write(&self) -> i64 {
        let hint = self.keeper.get().map_or(i64::MIN, |keeper| keeper.latest_micros());
        hint.max(self.begun_latest.get())
    }

    /// Keeps updates for nodes that are down with `keeper` from now on.
    ///
    /// # Panics
    /// When it is called twice.
    pub(crate) fn keep_with(&self, keeper: Box<dyn HintKeeper>) {
        assert!(self.keeper.set(keeper).is_ok(), "hints have one keeper");
    }

    /// Keeps an update for a node that is down; whether it was kept.
    pub(crate) fn keep(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool {
        self.keeper.get().is_some_and(|keeper| keeper.keep(host, table, update, begun_micros))
    }

    /// The hints that this shard stores for nodes that are down.
    pub(crate) fn stored(&self) -> Vec<(HostId, HintFigures)> {
        self.keeper.get().map(|keeper| keeper.kept()).unwrap_or_default()
    }
}
