//! Scheduling groups: which kind of work a task belongs to, and how much CPU that kind may have when all want it.

/// A kind of work. Tasks of one group are run in the order in which they became ready; between groups the
/// CPU is divided by shares, and a group that is idle leaves its part to the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Group {
    /// Client requests and everything done on their behalf, on any shard.
    Statement = 0,
    /// Merging SSTables; its shares follow the backlog.
    Compaction = 1,
    /// Writing memtables out and merging them into the cache.
    Flush = 2,
    /// Bulk transfer: bootstrap, repair, rebuild.
    Streaming = 3,
    /// Everything else that is not urgent: metrics, deleting files, hints.
    Maintenance = 4,
    /// Liveness and leadership: gossip, Raft, accepting nodes. Little work that must not wait behind data.
    Membership = 5,
    /// [`Group::Statement`] of the clients of the first service level, in the order of their names; its shares are the level's.
    Level1 = 6,
    /// The second.
    Level2 = 7,
    /// The third.
    Level3 = 8,
    /// The fourth.
    Level4 = 9,
    /// The fifth.
    Level5 = 10,
    /// The sixth.
    Level6 = 11,
    /// The seventh.
    Level7 = 12,
}

impl Group {
    /// Number of groups.
    pub const COUNT: usize = 13;

    /// All groups, in the order of their index.
    pub const ALL: [Group; Group::COUNT] = [
        Group::Statement,
        Group::Compaction,
        Group::Flush,
        Group::Streaming,
        Group::Maintenance,
        Group::Membership,
        Group::Level1,
        Group::Level2,
        Group::Level3,
        Group::Level4,
        Group::Level5,
        Group::Level6,
        Group::Level7,
    ];

    /// The groups of service levels.
    pub const LEVELS: [Group; 7] = {
        let [_, _, _, _, _, _, levels @ ..] = Self::ALL;
        levels
    };

    /// Position in arrays that hold one entry a group.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Shares when nobody has changed them. Only the relation between the groups matters.
    pub const fn default_shares(self) -> u32 {
        match self {
            Group::Compaction => 100,
            Group::Flush => 200,
            Group::Streaming => 200,
            Group::Maintenance => 100,
            // Liveness, and statements of any service level.
            _ => 1000,
        }
    }

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Statement => "statement",
            Group::Compaction => "compaction",
            Group::Flush => "flush",
            Group::Streaming => "streaming",
            Group::Maintenance => "maintenance",
            Group::Membership => "membership",
            Group::Level1 => "service_level_1",
            Group::Level2 => "service_level_2",
            Group::Level3 => "service_level_3",
            Group::Level4 => "service_level_4",
            Group::Level5 => "service_level_5",
            Group::Level6 => "service_level_6",
            Group::Level7 => "service_level_7",
        }
    }
}

/// The usage of a group so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// CPU time of the group's tasks, nanoseconds.
    pub run_ns: u64,
    /// Tasks polled.
    pub polls: u64,
    /// Polls that took longer than the stall detector allows, where it runs.
    pub stalls: u64,
    /// Tasks that are ready to run now.
    pub ready: usize,
    /// Tasks alive, ready or waiting.
    pub tasks: usize,
    /// Shares in force.
    pub shares: u32,
}
