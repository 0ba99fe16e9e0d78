//! Bugs that can be planted, to see that they are found.

use server::Canaries;

/// A bug that can be planted.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it breaks.
    pub about: &'static str,
    /// It shows in a cluster only, and is looked for there.
    pub in_cluster: bool,
    /// Seeds, from 0 on, within which it must be found.
    pub seeds_max: u64,
    /// It is found so soon that every run of the tests looks for it.
    pub is_quick: bool,
    plant: fn(&mut Canaries),
}

/// Seeds of a single node within which its bugs must be found.
const SINGLE_SEEDS_MAX: u64 = 150;
/// A bug of clusters that needs more is looked for in long runs.
const QUICK_SEEDS_MAX: u64 = 40;

const fn single(name: &'static str, about: &'static str, plant: fn(&mut Canaries)) -> Canary {
    Canary { name, about, in_cluster: false, seeds_max: SINGLE_SEEDS_MAX, is_quick: true, plant }
}

const fn cluster(
    name: &'static str,
    about: &'static str,
    seeds_max: u64,
    plant: fn(&mut Canaries),
) -> Canary {
    Canary { name, about, in_cluster: true, seeds_max, is_quick: seeds_max <= QUICK_SEEDS_MAX, plant }
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
            30,
            |planted| {
                planted.coordinator.short_quorum = true;
            },
        ),
        cluster("dropped-hints", "hints are said to be kept, and are not", 60, |planted| {
            planted.coordinator.dropped_hints = true;
        }),
        cluster("forgotten-promises", "a voter promises without remembering it", 60, |planted| {
            planted.coordinator.forgotten_promises = true;
        }),
        cluster(
            "early-commit",
            "a lightweight transaction is said to be done before any replica has it",
            60,
            |planted| {
                planted.coordinator.early_commit = true;
            },
        ),
        cluster(
            "blind-digest",
            "digests leave the values of cells and their deletions out",
            100,
            |planted| {
                planted.coordinator.blind_digest = true;
            },
        ),
        cluster(
            "skipped-repair",
            "what a read finds replicas to lack is not written to them",
            60,
            |planted| {
                planted.coordinator.skipped_repair = true;
            },
        ),
        cluster(
            "unclipped-pages",
            "pages that end at different places are merged as if they did not",
            60,
            |planted| {
                planted.coordinator.unclipped_pages = true;
            },
        ),
        cluster(
            "early-removal",
            "a logged batch is taken out of the batchlog before it is applied",
            100,
            |planted| {
                planted.coordinator.early_removal = true;
            },
        ),
        cluster(
            "no-pending-writes",
            "nodes that are about to be replicas are not told of writes",
            100,
            |planted| {
                planted.coordinator.no_pending_writes = true;
            },
        ),
        cluster("lost-range", "a node that joins leaves ranges out", 30, |planted| {
            planted.coordinator.lost_range = true;
        }),
        cluster("early-schema", "a schema is said to be in use before the shards have it", 60, |planted| {
            planted.coordinator.early_schema = true;
        }),
        cluster(
            "repeated-increment",
            "an increment is sent again to a replica that leads it",
            40,
            |planted| {
                planted.coordinator.repeated_increment = true;
            },
        ),
    ];

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
