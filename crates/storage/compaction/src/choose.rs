//! The choice: figures of a table's SSTables in, a group to merge out. Pure.

use std::collections::BTreeMap;

use mutation::{Seconds, Timestamp};

use crate::leveled::Leveled;
use crate::size_tiered::SizeTiered;
use crate::time_window::TimeWindow;
use crate::unified::Unified;

/// What a strategy knows of an SSTable that takes part in no compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The caller's name for it.
    pub id: usize,
    /// Bytes of its data.
    pub bytes: u64,
    /// Its level; 0 outside of leveled compaction.
    pub level: u32,
    /// Token of its first partition.
    pub first: i64,
    /// Token of its last partition.
    pub last: i64,
    /// Largest write timestamp in it.
    pub timestamp_max: Timestamp,
    /// Estimated share of cells that are tombstones past their grace.
    pub droppable: f64,
    /// Seconds since it was written.
    pub age: u64,
    /// Whether all of it has expired and it hides nothing elsewhere that has not.
    pub expired: bool,
    /// Whether other SSTables overlap its tokens, so that its tombstones may be needed.
    pub overlapped: bool,
}

/// Figures of a table beside those of its SSTables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFigures {
    /// The server's clock.
    pub now: Seconds,
    /// Bytes of data of a flushed SSTable, on average; 0 while nothing was flushed.
    pub flush_bytes: u64,
}

/// Why SSTables were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Several of one size.
    Tier,
    /// A level is too large, or there are too many new ones.
    Level,
    /// A time window is complete.
    Window,
    /// Mostly tombstones that can go.
    Tombstones,
    /// Nothing in them is alive.
    Expired,
}

impl Reason {
    /// The word that the history shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Level => "level",
            Self::Window => "window",
            Self::Tombstones => "tombstones",
            Self::Expired => "expired",
        }
    }
}

/// A group to merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Ids of the SSTables.
    pub inputs: Vec<usize>,
    /// Why.
    pub reason: Reason,
    /// Level of the result.
    pub level: u32,
    /// The result is split when an SSTable has so many bytes; none for a single one.
    pub output_bytes_max: Option<u64>,
    /// The result is split at the tokens that divide the ring into so many equal parts; 1 for none.
    pub shards: u32,
}

impl Choice {
    /// The choice as far as there is room for its result: `bytes` are those of its inputs on disk, in their order, and the result
    /// may take as many. Where any of the inputs may be left out the largest are; none when that does not help.
    pub fn within(&self, bytes: &[u64], room: u64) -> Option<Self> {
        let mut left: Vec<(u64, usize)> = bytes.iter().copied().zip(self.inputs.iter().copied()).collect();
        let total = |left: &[(u64, usize)]| left.iter().map(|(bytes, _)| *bytes).sum::<u64>();
        // What has expired is removed without writing anything.
        if self.reason == Reason::Expired || total(&left) <= room {
            return Some(self.clone());
        }
        if !matches!(self.reason, Reason::Tier | Reason::Window) {
            return None;
        }
        while left.len() >= 2 {
            let largest = left.iter().enumerate().max_by_key(|(_, one)| **one).map(|(place, _)| place)?;
            left.remove(largest);
            if left.len() >= 2 && total(&left) <= room {
                let inputs = left.into_iter().map(|(_, id)| id).collect();
                return Some(Self { inputs, ..self.clone() });
            }
        }
        None
    }

    pub(crate) fn of(inputs: impl IntoIterator<Item = usize>, reason: Reason) -> Self {
        Self { inputs: inputs.into_iter().collect(), reason, level: 0, output_bytes_max: None, shards: 1 }
    }
}

/// When a single SSTable is rewritten for its tombstones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TombstoneRule {
    /// Least share of droppable tombstones.
    pub threshold: f64,
    /// Least age, seconds.
    pub interval: u64,
    /// Also where others overlap.
    pub unchecked: bool,
}

/// A table's compaction strategy with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Strategy {
    /// Nothing is compacted.
    Disabled,
    /// Groups of similar size.
    SizeTiered(SizeTiered, TombstoneRule),
    /// Levels without overlaps, each ten times the one before.
    Leveled(Leveled, TombstoneRule),
    /// Groups by the time of their writes.
    TimeWindow(TimeWindow, TombstoneRule),
    /// Levels by density.
    Unified(Unified, TombstoneRule),
}

/// Settings as a table's options have them, with defaults for what is absent or unreadable (options were checked when
/// the table was made).
pub(crate) struct Settings<'a>(pub(crate) &'a BTreeMap<String, String>);

impl Settings<'_> {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|text| text.trim())
    }

    pub(crate) fn get<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.0.get(name).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"))
    }
}

impl Strategy {
    /// The strategy of a table's `compaction` option. Those that the option's check does not know are size-tiered.
    pub fn of(options: &BTreeMap<String, String>) -> Self {
        let settings = Settings(options);
        if !settings.flag("enabled", true) {
            return Self::Disabled;
        }
        let rule = TombstoneRule {
            threshold: settings.get("tombstone_threshold", 0.2),
            interval: settings.get("tombstone_compaction_interval", 86_400),
            unchecked: settings.flag("unchecked_tombstone_compaction", false),
        };
        let class = options.get("class").map_or("", |class| class.rsplit('.').next().unwrap_or(class));
        match class {
            "LeveledCompactionStrategy" => Self::Leveled(Leveled::of(&settings), rule),
            "TimeWindowCompactionStrategy" => Self::TimeWindow(TimeWindow::of(&settings), rule),
            "UnifiedCompactionStrategy" => Self::Unified(Unified::of(&settings), rule),
            "IncrementalCompactionStrategy" => Self::Unified(Unified::incremental(&settings), rule),
            _ => Self::SizeTiered(SizeTiered::of(&settings), rule),
        }
    }

    /// Whether a table's `compaction` option says that what has expired goes although it may hide something elsewhere
    /// (`unsafe_aggressive_sstable_expiration`, of time windows and unified compaction).
    pub fn expires_aggressively(options: &BTreeMap<String, String>) -> bool {
        matches!(Self::of(options), Self::TimeWindow(..) | Self::Unified(..))
            && Settings(options).flag("unsafe_aggressive_sstable_expiration", false)
    }

    /// How the result of merging all of a table's SSTables is split: at so many bytes, and into so many parts of the ring.
    pub fn major_output(&self, candidates: &[Candidate]) -> (Option<u64>, u32) {
        match self {
            Self::Leveled(levels, _) => (Some(levels.sstable_bytes), 1),
            Self::Unified(unified, _) => (None, unified.shards_of(candidates.iter())),
            Self::Disabled | Self::SizeTiered(..) | Self::TimeWindow(..) => (None, 1),
        }
    }

    /// The next group to merge, if there is one. `candidates` are in order of age, oldest first.
    pub fn choose(&self, candidates: &[Candidate], figures: &TableFigures) -> Option<Choice> {
        let expired: Vec<usize> = candidates.iter().filter(|one| one.expired).map(|one| one.id).collect();
        let rule = match self {
            Self::Disabled => return None,
            Self::SizeTiered(_, rule)
            | Self::Leveled(_, rule)
            | Self::TimeWindow(_, rule)
            | Self::Unified(_, rule) => rule,
        };
        if !expired.is_empty() {
            return Some(Choice::of(expired, Reason::Expired));
        }
        let choice = match self {
            Self::Disabled => None,
            Self::SizeTiered(tiers, _) => tiers.choose(candidates),
            Self::Leveled(levels, _) => levels.choose(candidates),
            Self::TimeWindow(windows, _) => windows.choose(candidates, figures.now),
            Self::Unified(unified, _) => unified.choose(candidates, figures),
        };
        choice.or_else(|| self.tombstones(rule, candidates))
    }

    /// How many compactions would follow one another if nothing were written any more; an estimate.
    pub fn pending(&self, candidates: &[Candidate], figures: &TableFigures) -> u64 {
        let mut left = candidates.to_vec();
        let mut pending = 0;
        while let Some(choice) = self.choose(&left, figures) {
            left.retain(|one| !choice.inputs.contains(&one.id));
            pending += 1;
        }
        pending
    }

    fn tombstones(&self, rule: &TombstoneRule, candidates: &[Candidate]) -> Option<Choice> {
        let worth = |one: &&Candidate| {
            one.droppable > rule.threshold && one.age >= rule.interval && (rule.unchecked || !one.overlapped)
        };
        let best = candidates.iter().filter(worth).max_by(|a, b| a.droppable.total_cmp(&b.droppable))?;
        let mut choice = Choice::of([best.id], Reason::Tombstones);
        choice.level = best.level;
        Some(choice)
    }
}
