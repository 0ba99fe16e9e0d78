//! Bugs that can be planted, to see that they are found.

use server::Canaries;

use crate::cluster::Focus;

/// A bug that can be planted.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it breaks.
    pub about: &'static str,
    /// It shows in a cluster only, and is looked for there.
    pub in_cluster: bool,
    /// The drawing in which it is looked for; none for that of any seed.
    pub focus: Option<Focus>,
    /// Seeds, from 0 on, within which it must be found.
    pub seeds_max: u64,
    /// The seed with which a quick look begins: as many seeds from there on have to find it. None when there is no quick look.
    pub quick_from: Option<u64>,
    /// The checker that must find it; none for any.
    pub checker: Option<&'static str>,
    plant: fn(&mut Canaries),
}

/// Seeds of a single node within which its bugs must be found.
const SINGLE_SEEDS_MAX: u64 = 150;

/// One that shows in a single node.
const fn single(name: &'static str, about: &'static str, plant: fn(&mut Canaries)) -> Canary {
    let (seeds_max, quick_from) = (SINGLE_SEEDS_MAX, Some(0));
    Canary { name, about, in_cluster: false, focus: None, seeds_max, quick_from, checker: None, plant }
}

/// One that shows in a cluster, in a drawing, within so many seeds; and a seed that is known to find it.
const fn cluster(
    name: &'static str,
    about: &'static str,
    (focus, seeds_max, quick_from): (Focus, u64, Option<u64>),
    plant: fn(&mut Canaries),
) -> Canary {
    Canary { name, about, in_cluster: true, focus: Some(focus), seeds_max, quick_from, checker: None, plant }
}

/// One that a certain checker must find in a cluster.
const fn checked(
    name: &'static str,
    about: &'static str,
    (focus, seeds_max, quick_from): (Focus, u64, Option<u64>),
    checker: &'static str,
    plant: fn(&mut Canaries),
) -> Canary {
    Canary { checker: Some(checker), ..cluster(name, about, (focus, seeds_max, quick_from), plant) }
}

impl Canary {
    /// All of them.
    pub const ALL: &'static [Canary] = &[
        single(
            "skipped-sync",
            "the commit log acknowledges without syncing where its mode promises a sync",
            |planted| planted.engine.skip_commitlog_sync = true,
        ),
        single("short-replay", "the replay of the commit log stops before the last segment", |planted| {
            planted.engine.replay_stops_early = true;
        }),
        single("dropped-range-tombstone", "a flush leaves range tombstones out", |planted| {
            planted.engine.drop_range_tombstones = true;
        }),
        single(
            "early-purge",
            "compaction forgets tombstones without looking at the data beside it",
            |planted| planted.engine.purge_too_soon = true,
        ),
        single("dropped-static-row", "a flush leaves static rows out", |planted| {
            planted.engine.drop_static_rows = true;
        }),
        single("unlocked-counter", "increments of one counter do not wait for each other", |planted| {
            planted.engine.skip_counter_locks = true;
        }),
        cluster(
            "short-quorum",
            "a read is content with one answer less than its level asks for",
            (Focus::Lag, 5, Some(0)),
            |planted| planted.coordinator.short_quorum = true,
        ),
        cluster(
            "dropped-hints",
            "hints are said to be kept, and are not",
            (Focus::Away, 10, Some(6)),
            |planted| {
                planted.coordinator.dropped_hints = true;
            },
        ),
        cluster(
            "forgotten-promises",
            "a voter promises without remembering it",
            (Focus::Votes, 5, Some(0)),
            |planted| planted.coordinator.forgotten_promises = true,
        ),
        cluster(
            "early-commit",
            "a lightweight transaction is said to be done before any replica has it",
            (Focus::Votes, 10, Some(0)),
            |planted| planted.coordinator.early_commit = true,
        ),
        cluster(
            "blind-digest",
            "digests leave the values of cells and their deletions out",
            (Focus::Lag, 5, Some(0)),
            |planted| planted.coordinator.blind_digest = true,
        ),
        cluster(
            "skipped-repair",
            "what a read finds replicas to lack is not written to them",
            (Focus::Lag, 10, Some(2)),
            |planted| planted.coordinator.skipped_repair = true,
        ),
        cluster(
            "unclipped-pages",
            "pages that end at different places are merged as if they did not",
            (Focus::Lag, 10, Some(1)),
            |planted| planted.coordinator.unclipped_pages = true,
        ),
        cluster(
            "early-removal",
            "a logged batch is taken out of the batchlog before it is applied",
            (Focus::Batches, 10, Some(1)),
            |planted| planted.coordinator.early_removal = true,
        ),
        cluster(
            "no-pending-writes",
            "nodes that are about to be replicas are not told of writes",
            (Focus::Joining, 10, Some(0)),
            |planted| planted.coordinator.no_pending_writes = true,
        ),
        cluster(
            "lost-range",
            "a node that joins leaves ranges out",
            (Focus::Joining, 5, Some(0)),
            |planted| {
                planted.coordinator.lost_range = true;
            },
        ),
        cluster(
            "one-source",
            "what one node had of a range is taken for what a quorum has",
            (Focus::Stale, 10, Some(2)),
            |planted| planted.coordinator.one_source = true,
        ),
        cluster(
            "no-fence",
            "replicas take requests that go by a ring that is over",
            (Focus::Deaf, 10, Some(3)),
            |planted| {
                // A change would wait for who loses a range, and does not go by a node that hears nothing.
                planted.coordinator.loser_left_out = true;
                planted.coordinator.no_fence = true;
            },
        ),
        cluster(
            "early-schema",
            "a change of the schema is said to be done before other nodes have it",
            (Focus::Votes, 5, Some(0)),
            |planted| planted.coordinator.early_schema = true,
        ),
        cluster(
            "repeated-increment",
            "an increment is sent again to a replica that leads it",
            (Focus::Lag, 5, Some(2)),
            |planted| planted.coordinator.repeated_increment = true,
        ),
        checked(
            "long-quorum",
            "a read waits for one answer more than its level asks for",
            (Focus::Repairs, 5, Some(0)),
            "available",
            |planted| planted.coordinator.long_quorum = true,
        ),
        checked(
            "torn-commit",
            "of a lightweight transaction on several rows, replicas write all but the last",
            (Focus::Votes, 5, Some(0)),
            "lwt",
            |planted| planted.coordinator.torn_commit = true,
        ),
        checked(
            "truncated-rounds",
            "voters go on with rounds from before a TRUNCATE",
            (Focus::Rows, 10, Some(0)),
            "lwt",
            |planted| planted.coordinator.rounds_outlive_truncate = true,
        ),
        checked(
            "unmoved-replication",
            "nodes that become replicas by ALTER KEYSPACE fetch neither data nor votes",
            (Focus::Rows, 10, Some(3)),
            "lwt",
            |planted| planted.coordinator.unmoved_replication = true,
        ),
        checked(
            "long-write",
            "a write waits for one replica more than its level asks for",
            (Focus::Steady, 5, Some(0)),
            "steady",
            |planted| planted.coordinator.long_write = true,
        ),
        checked(
            "long-quorum-in-trouble",
            "a read waits for one answer more than its level asks for, while a node is in trouble",
            (Focus::Steady, 5, Some(0)),
            "steady",
            |planted| planted.coordinator.long_quorum = true,
        ),
        checked(
            "skipped-tokens",
            "a repair sends nothing of every second token",
            (Focus::Repairs, 20, Some(6)),
            "repaired",
            |planted| planted.repair.skipped_tokens = true,
        ),
        checked(
            "lone-elements",
            "a repair does not send what one replica alone has",
            (Focus::Repairs, 20, Some(6)),
            "monotonic",
            |planted| planted.repair.lone_elements = true,
        ),
        checked(
            "all-repaired",
            "compaction takes everything for repaired, where deletions wait for a repair",
            (Focus::Repairs, 60, Some(40)),
            "resurrection",
            |planted| planted.engine.all_repaired = true,
        ),
        checked(
            "unlimited-memtables",
            "memtables are neither flushed nor writes held back at their limit",
            (Focus::Batches, 5, Some(0)),
            "bounded",
            |planted| planted.engine.unlimited_memtables = true,
        ),
        checked(
            "rollback-unnoticed",
            "a node whose disk was restored from an older image serves",
            (Focus::Rollback, 2, Some(0)),
            "rollback",
            |planted| planted.rollback_unnoticed = true,
        ),
    ];

    /// Whether this failure shows that it was found by whom it is for.
    pub fn is_found_by(self, failure: &str) -> bool {
        self.checker.is_none_or(|name| failure.contains(&format!("checker {name}")))
    }

    /// The canary of this name.
    pub fn find(name: &str) -> Option<Canary> {
        Self::ALL.iter().find(|canary| canary.name == name).copied()
    }

    pub(crate) fn planted(self) -> Canaries {
        let mut planted = Canaries::default();
        (self.plant)(&mut planted);
        planted
    }
}
