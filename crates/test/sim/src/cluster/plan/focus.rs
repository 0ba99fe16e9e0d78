//! The focus of a scenario, which looks closely at one thing: a seed in four has one, and each injected bug is looked for in the one that shows
//! it. A focus is drawn with numbers of its own, so that the seeds without one stay as they are; `focused` has its effect on the plan.

use rt_sim::Rng;

use crate::plan::{one_in, pick};

/// Draws of the focus of a seed.
const STREAM: u64 = 11;
/// One seed in so many has a focus.
const ONE_IN: u64 = 4;
/// The random stream of later draws, and how many of the other seeds make one.
const LATER_STREAM: u64 = 14;
const LATER_ONE_IN: u64 = 12;
/// The same for the latest draws.
const LAST_STREAM: u64 = 16;
const LAST_ONE_IN: u64 = 6;
/// The same of restored disks.
const ROLLBACK_STREAM: u64 = 22;
const ROLLBACK_ONE_IN: u64 = 20;
/// The same of rows of partitions under transactions.
const ROWS_STREAM: u64 = 24;
const ROWS_ONE_IN: u64 = 20;
/// The same of materialized views.
const VIEWS_STREAM: u64 = 26;
const VIEWS_ONE_IN: u64 = 20;
/// The same of change data capture.
const CHANGES_STREAM: u64 = 28;
const CHANGES_ONE_IN: u64 = 20;
/// The same of topology changes with a grace period between them.
const GRACES_STREAM: u64 = 30;
const GRACES_ONE_IN: u64 = 20;
/// The same of the DynamoDB API.
const ITEMS_STREAM: u64 = 32;
const ITEMS_ONE_IN: u64 = 20;
/// The same of it with topology changes and several datacenters.
const MOVES_STREAM: u64 = 34;
const MOVES_ONE_IN: u64 = 20;

/// The focus of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// Few rows that everybody writes and reads, and replicas that hear of a write at very different times.
    Lag,
    /// The same of lightweight transactions and of the schema.
    Votes,
    /// Nodes that are down for a while and lose nothing: hints alone bring their missed writes.
    Away,
    /// Nodes that join under load, while others do not reach each other.
    Joining,
    /// Logged batches over partitions that few nodes have, whose coordinators end in the middle of them.
    Batches,
    /// A topology change of which a node does not hear, while clients ask it.
    Deaf,
    /// Nodes that join when a replica has just missed writes without hints.
    Stale,
    /// Replicas that miss writes without hints, and repairs; and deletions that are purged after them.
    Repairs,
    /// A disk whose files of tables rot, until the machine gets another.
    Rot,
    /// A node alone to which others are added, and the replication factor with them.
    Growth,
    /// Topology changes one after the other, some of them aborted or forced.
    Rings,
    /// A minority under fault after fault, while QUORUM must succeed in time through all others.
    Steady,
    /// Lightweight transactions on several rows of tables that are truncated, or whose replication factor changes.
    Rows,
    /// Disks that are restored from older images.
    Rollback,
    /// A table with materialized views whose rows few nodes have, while nodes end and the topology changes.
    Views,
    /// The same of such a table whose changes are captured.
    Changes,
    /// Nodes that join and leave, one a round: between two changes everything is repaired, and deletions are purged.
    Graces,
    /// Nodes that hold little of clients' requests at a time, and give it back when these are answered. No seed draws it by itself, for
    /// many have low limits.
    Scarce,
    /// Items of the DynamoDB API, transactions over several, indexes and a stream of their changes.
    Items,
    /// The same beside topology changes, in one or two datacenters.
    Moves,
}

impl Focus {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Lag,
        Self::Votes,
        Self::Away,
        Self::Joining,
        Self::Batches,
        Self::Deaf,
        Self::Stale,
        Self::Repairs,
        Self::Rot,
        Self::Growth,
        Self::Rings,
        Self::Steady,
        Self::Rows,
        Self::Rollback,
        Self::Views,
        Self::Changes,
        Self::Graces,
        Self::Scarce,
        Self::Items,
        Self::Moves,
    ];
    /// Those that existed when the first seeds were recorded.
    const FIRST: [Self; 7] =
        [Self::Lag, Self::Votes, Self::Away, Self::Joining, Self::Batches, Self::Deaf, Self::Stale];
    const LATER: [Self; 2] = [Self::Repairs, Self::Rot];
    const LAST: [Self; 3] = [Self::Growth, Self::Rings, Self::Steady];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lag => "lag",
            Self::Votes => "votes",
            Self::Away => "away",
            Self::Joining => "joining",
            Self::Batches => "batches",
            Self::Deaf => "deaf",
            Self::Stale => "stale",
            Self::Repairs => "repairs",
            Self::Rot => "rot",
            Self::Growth => "growth",
            Self::Rings => "rings",
            Self::Steady => "steady",
            Self::Rows => "rows",
            Self::Rollback => "rollback",
            Self::Views => "views",
            Self::Changes => "changes",
            Self::Graces => "graces",
            Self::Scarce => "scarce",
            Self::Items => "items",
            Self::Moves => "moves",
        }
    }

    /// The focus of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|focus| focus.name() == name)
    }

    /// The focus of a seed, and the random generator of its details.
    pub(crate) fn of(seed: u64, wanted: Option<Self>) -> Option<(Self, Rng)> {
        let mut rng = Rng::new(seed, STREAM);
        let drawn = one_in(&mut rng, ONE_IN).then(|| *pick(&mut rng, &Self::FIRST));
        let mut later = Rng::new(seed, LATER_STREAM);
        let drawn =
            drawn.or_else(|| one_in(&mut later, LATER_ONE_IN).then(|| *pick(&mut later, &Self::LATER)));
        let mut last = Rng::new(seed, LAST_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut last, LAST_ONE_IN).then(|| *pick(&mut last, &Self::LAST)));
        let mut restored = Rng::new(seed, ROLLBACK_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut restored, ROLLBACK_ONE_IN).then_some(Self::Rollback));
        let mut rows = Rng::new(seed, ROWS_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut rows, ROWS_ONE_IN).then_some(Self::Rows));
        let mut views = Rng::new(seed, VIEWS_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut views, VIEWS_ONE_IN).then_some(Self::Views));
        let mut changes = Rng::new(seed, CHANGES_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut changes, CHANGES_ONE_IN).then_some(Self::Changes));
        let mut graces = Rng::new(seed, GRACES_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut graces, GRACES_ONE_IN).then_some(Self::Graces));
        let mut items = Rng::new(seed, ITEMS_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut items, ITEMS_ONE_IN).then_some(Self::Items));
        let mut moves = Rng::new(seed, MOVES_STREAM);
        let drawn = drawn.or_else(|| one_in(&mut moves, MOVES_ONE_IN).then_some(Self::Moves));
        wanted.or(drawn).map(|focus| (focus, rng))
    }

    /// How many nodes it takes.
    pub(crate) fn size(self, rng: &mut Rng) -> usize {
        match self {
            Self::Lag | Self::Votes | Self::Rows | Self::Scarce | Self::Items => *pick(rng, &[3, 3, 4]),
            Self::Away => *pick(rng, &[3, 3, 4, 5]),
            Self::Joining => *pick(rng, &[4, 4, 5]),
            Self::Batches => *pick(rng, &[4, 5, 6]),
            Self::Deaf => 4,
            Self::Stale => *pick(rng, &[4, 5, 5]),
            Self::Repairs | Self::Rot => *pick(rng, &[3, 3, 4]),
            Self::Growth => *pick(rng, &[2, 3, 3, 4]),
            Self::Rings | Self::Views | Self::Changes | Self::Graces => *pick(rng, &[4, 5]),
            Self::Rollback => *pick(rng, &[3, 3, 4, 5]),
            Self::Steady => *pick(rng, &[3, 3, 4, 5]),
            Self::Moves => *pick(rng, &[4, 5, 6, 7]),
        }
    }
}
