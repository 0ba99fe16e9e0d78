//! Bugs that can be injected, to see that they are found.

use server::Canaries;

use crate::cluster::Focus;

/// A bug that can be injected.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its effect.
    pub about: &'static str,
    /// It shows in a cluster only, and is looked for there.
    pub in_cluster: bool,
    /// The scenario that finds it; none for that of any seed.
    pub focus: Option<Focus>,
    /// Seeds, from 0 on, within which it must be found.
    pub seeds_max: u64,
    /// The seed with which a quick look begins: as many seeds from there on have to find it. None when there is no quick look.
    pub quick_from: Option<u64>,
    /// The checker that must find it; none for any.
    pub checker: Option<&'static str>,
    inject: fn(&mut Canaries),
}

/// Seeds of a single node within which its bugs must be found.
const SINGLE_SEEDS_MAX: u64 = 150;

/// One that shows in a single node.
const fn single(name: &'static str, about: &'static str, inject: fn(&mut Canaries)) -> Canary {
    let (seeds_max, quick_from) = (SINGLE_SEEDS_MAX, Some(0));
    Canary { name, about, in_cluster: false, focus: None, seeds_max, quick_from, checker: None, inject }
}

/// A canary that shows in a cluster, in a scenario, within so many seeds; and a seed that is known to find it.
const fn cluster(
    name: &'static str,
    about: &'static str,
    (focus, seeds_max, quick_from): (Focus, u64, Option<u64>),
    inject: fn(&mut Canaries),
) -> Canary {
    Canary { name, about, in_cluster: true, focus: Some(focus), seeds_max, quick_from, checker: None, inject }
}

/// One that a certain checker must find in a cluster.
const fn checked(
    name: &'static str,
    about: &'static str,
    (focus, seeds_max, quick_from): (Focus, u64, Option<u64>),
    checker: &'static str,
    inject: fn(&mut Canaries),
) -> Canary {
    Canary { checker: Some(checker), ..cluster(name, about, (focus, seeds_max, quick_from), inject) }
}

impl Canary {
    /// All of them.
    pub const ALL: &'static [Canary] = &[
        single(
            "skipped-sync",
            "the commit log acknowledges without syncing where its mode promises a sync",
            |injected| injected.engine.skip_commitlog_sync = true,
        ),
        single("short-replay", "the replay of the commit log stops before the last segment", |injected| {
            injected.engine.replay_stops_early = true;
        }),
        single("dropped-range-tombstone", "a flush leaves range tombstones out", |injected| {
            injected.engine.drop_range_tombstones = true;
        }),
        single(
            "early-purge",
            "compaction forgets tombstones without looking at the data beside it",
            |injected| injected.engine.purge_too_soon = true,
        ),
        single("dropped-static-row", "a flush leaves static rows out", |injected| {
            injected.engine.drop_static_rows = true;
        }),
        single("unlocked-counter", "increments of one counter do not wait for each other", |injected| {
            injected.engine.skip_counter_locks = true;
        }),
        cluster(
            "short-quorum",
            "a read is content with one answer less than its level asks for",
            (Focus::Lag, 5, Some(0)),
            |injected| injected.coordinator.short_quorum = true,
        ),
        checked(
            "dropped-hints",
            "hints are acknowledged, and are not stored",
            (Focus::Away, 10, Some(2)),
            "delivered",
            |injected| {
                injected.coordinator.dropped_hints = true;
            },
        ),
        checked(
            "forgotten-promises",
            "a voter promises without remembering it",
            (Focus::Votes, 5, Some(0)),
            "serial",
            |injected| injected.coordinator.forgotten_promises = true,
        ),
        cluster(
            "early-commit",
            "a lightweight transaction is acknowledged before any replica stored it",
            (Focus::Votes, 10, Some(0)),
            |injected| injected.coordinator.early_commit = true,
        ),
        cluster(
            "blind-digest",
            "digests leave the values of cells and their deletions out",
            (Focus::Lag, 5, Some(0)),
            |injected| injected.coordinator.blind_digest = true,
        ),
        cluster("skipped-repair", "a read repair is not written", (Focus::Lag, 10, Some(2)), |injected| {
            injected.coordinator.skipped_repair = true
        }),
        cluster(
            "unclipped-pages",
            "pages that end at different places are merged as if they did not",
            (Focus::Lag, 10, Some(1)),
            |injected| injected.coordinator.unclipped_pages = true,
        ),
        checked(
            "early-removal",
            "a logged batch is taken out of the batchlog before it is applied",
            (Focus::Batches, 10, Some(1)),
            "atomic",
            |injected| injected.coordinator.early_removal = true,
        ),
        cluster(
            "no-pending-writes",
            "pending replicas do not receive writes",
            (Focus::Joining, 10, Some(0)),
            |injected| injected.coordinator.no_pending_writes = true,
        ),
        checked(
            "lost-range",
            "a node that joins leaves ranges out",
            (Focus::Joining, 5, Some(0)),
            "kept",
            |injected| {
                injected.coordinator.lost_range = true;
            },
        ),
        cluster(
            "one-source",
            "one node's data of a range count as a quorum's",
            (Focus::Stale, 10, Some(2)),
            |injected| injected.coordinator.one_source = true,
        ),
        cluster(
            "no-fence",
            "replicas take requests that use a stale topology version",
            (Focus::Deaf, 10, Some(3)),
            |injected| {
                // A change would wait for the leaving replica, and does not reach a node that receives nothing.
                injected.coordinator.leaving_left_out = true;
                injected.coordinator.no_fence = true;
            },
        ),
        checked(
            "early-schema",
            "a change of the schema is said to be done before other nodes have it",
            (Focus::Votes, 5, Some(0)),
            "schema",
            |injected| injected.coordinator.early_schema = true,
        ),
        cluster(
            "repeated-increment",
            "an increment is sent again to a replica that leads it",
            (Focus::Lag, 5, Some(2)),
            |injected| injected.coordinator.repeated_increment = true,
        ),
        checked(
            "long-quorum",
            "a read waits for one answer more than its level asks for",
            (Focus::Repairs, 5, Some(0)),
            "available",
            |injected| injected.coordinator.long_quorum = true,
        ),
        checked(
            "torn-commit",
            "of a lightweight transaction on several rows, replicas write all but the last",
            (Focus::Votes, 5, Some(0)),
            "lwt",
            |injected| injected.coordinator.torn_commit = true,
        ),
        checked(
            "truncated-rounds",
            "voters go on with rounds from before a TRUNCATE",
            (Focus::Rows, 35, Some(12)),
            "lwt",
            |injected| injected.coordinator.rounds_outlive_truncate = true,
        ),
        checked(
            "unmoved-replication",
            "nodes that become replicas by ALTER KEYSPACE fetch neither data nor votes",
            (Focus::Rows, 60, Some(20)),
            "lwt",
            |injected| injected.coordinator.unmoved_replication = true,
        ),
        checked(
            "long-write",
            "a write waits for one replica more than its level asks for",
            (Focus::Steady, 5, Some(0)),
            "steady",
            |injected| injected.coordinator.long_write = true,
        ),
        checked(
            "long-quorum-under-faults",
            "a read waits for one answer more than its level asks for, while a node is faulty",
            (Focus::Steady, 5, Some(0)),
            "steady",
            |injected| injected.coordinator.long_quorum = true,
        ),
        checked(
            "skipped-tokens",
            "a repair sends nothing of every second token",
            (Focus::Repairs, 20, Some(6)),
            "repaired",
            |injected| injected.repair.skipped_tokens = true,
        ),
        checked(
            "lone-elements",
            "a repair does not send what one replica alone has",
            (Focus::Repairs, 20, Some(6)),
            "monotonic",
            |injected| injected.repair.lone_elements = true,
        ),
        checked(
            "all-repaired",
            "compaction takes everything for repaired, where deletions wait for a repair",
            (Focus::Repairs, 60, Some(40)),
            "resurrection",
            |injected| injected.engine.all_repaired = true,
        ),
        checked(
            "unlimited-memtables",
            "memtables are neither flushed nor writes held back at their limit",
            (Focus::Batches, 5, Some(0)),
            "bounded",
            |injected| injected.engine.unlimited_memtables = true,
        ),
        checked(
            "lost-places",
            "the index of an SSTable leaves out one row in four",
            (Focus::Rows, 2, Some(0)),
            "indexed",
            |injected| injected.engine.lost_places = true,
        ),
        checked(
            "lost-view-updates",
            "updates of views are not stored with the write that they follow from",
            (Focus::Views, 120, Some(115)),
            "views",
            |injected| injected.coordinator.lost_view_updates = true,
        ),
        checked(
            "kept-view-rows",
            "deletions of rows of views are not written",
            (Focus::Views, 5, Some(1)),
            "views",
            |injected| injected.coordinator.kept_view_rows = true,
        ),
        checked(
            "unsynchronised-views",
            "writes do not wait for synchronous updates of views",
            (Focus::Views, 5, Some(1)),
            "synchronous",
            |injected| injected.coordinator.unsynchronised_views = true,
        ),
        checked(
            "former-streams",
            "changes go to the streams of the generation before that of their time",
            (Focus::Changes, 10, Some(4)),
            "changes",
            |injected| injected.coordinator.former_streams = true,
        ),
        checked(
            "unlogged-deletions",
            "deletions of rows are not logged as changes",
            (Focus::Changes, 5, Some(0)),
            "changes",
            |injected| injected.coordinator.unlogged_deletions = true,
        ),
        checked(
            "skipped-repair-of-all",
            "a read repair is not written when all replicas have answered the read",
            (Focus::Stale, 5, Some(0)),
            "equal",
            |injected| injected.coordinator.skipped_repair_of_all = true,
        ),
        checked(
            "partial-truncate",
            "a truncation keeps one SSTable",
            (Focus::Rows, 5, Some(0)),
            "truncating",
            |injected| injected.engine.partial_truncate = true,
        ),
        cluster(
            "late-after-truncate",
            "replicas take late writes of a table that was truncated meanwhile",
            (Focus::Rows, 20, Some(0)),
            |injected| injected.engine.late_after_truncate = true,
        ),
        checked(
            "unmoved-data",
            "nodes that become replicas by ALTER KEYSPACE fetch no data",
            (Focus::Rows, 5, Some(0)),
            "replicating",
            |injected| injected.coordinator.unmoved_replication = true,
        ),
        checked(
            "kept-hint-file",
            "the file of delivered hints is not removed",
            (Focus::Away, 5, Some(0)),
            "left_behind",
            |injected| injected.hints.keep_files = true,
        ),
        checked(
            "stale-timestamps",
            "a coordinator's timestamp lies three seconds back now and then",
            (Focus::Lag, 20, Some(11)),
            "stamps",
            |injected| injected.stale_timestamps = true,
        ),
        cluster(
            "skipped-cleanup",
            "a node keeps the ranges that it loses, and has them still when it regains them",
            (Focus::Graces, 5, Some(0)),
            |injected| injected.engine.skipped_cleanup = true,
        ),
        checked(
            "leaked-bytes",
            "of every sixteenth request the bytes in flight are not given back",
            (Focus::Scarce, 10, Some(0)),
            "overloaded",
            |injected| injected.session.leaked_bytes = true,
        ),
        checked(
            "partial-commit",
            "of a committed transaction of the DynamoDB API the last item is left as it was",
            (Focus::Items, 5, Some(1)),
            "transactions",
            |injected| injected.dynamo.partial_commit = true,
        ),
        checked(
            "partial-commit-of-one",
            "the same, as the requests to one item show it",
            (Focus::Items, 5, Some(0)),
            "items",
            |injected| injected.dynamo.partial_commit = true,
        ),
        checked(
            "stale-condition",
            "a condition of the DynamoDB API is decided on an item that was read before the agreement",
            (Focus::Items, 5, Some(0)),
            "items",
            |injected| injected.dynamo.stale_condition = true,
        ),
        checked(
            "expiring-record",
            "the record of a pending transaction of the DynamoDB API expires by the clock of any node",
            (Focus::Items, 120, None),
            "transactions",
            |injected| injected.dynamo.expiring_record = true,
        ),
        checked(
            "lost-item-places",
            "the index of an SSTable leaves out one row in four, of items",
            (Focus::Items, 5, Some(0)),
            "item_index",
            |injected| injected.engine.lost_places = true,
        ),
        checked(
            "unlogged-item-deletions",
            "deletions of rows are not logged as changes, of items",
            (Focus::Items, 40, Some(9)),
            "item_stream",
            |injected| injected.coordinator.unlogged_deletions = true,
        ),
        checked(
            "newest-generation-alone",
            "a read of a stream of the DynamoDB API leaves out the changes of former generations",
            (Focus::Moves, 5, Some(2)),
            "item_stream",
            |injected| injected.dynamo.newest_generation_alone = true,
        ),
        checked(
            "logged-failed-batches",
            "the changes of a logged batch are logged although it failed before any of it was written",
            (Focus::Changes, 20, Some(4)),
            "changes",
            |injected| injected.coordinator.logged_failed_batches = true,
        ),
        checked(
            "rollback-unnoticed",
            "a node whose disk was restored from an older image serves",
            (Focus::Rollback, 2, Some(0)),
            "rollback",
            |injected| injected.rollback_unnoticed = true,
        ),
    ];

    /// Whether this failure shows that it was found by its own checker.
    pub fn is_found_by(self, failure: &str) -> bool {
        self.checker.is_none_or(|name| failure.contains(&format!("checker {name}")))
    }

    /// The canary of this name.
    pub fn find(name: &str) -> Option<Canary> {
        Self::ALL.iter().find(|canary| canary.name == name).copied()
    }

    pub(crate) fn injected(self) -> Canaries {
        let mut injected = Canaries::default();
        (self.inject)(&mut injected);
        injected
    }
}
