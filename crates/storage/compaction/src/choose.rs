//! The choice: figures of a table's SSTables in, a group to merge out. Pure.

use std::collections::BTreeMap;

use mutation::Granularity;

use crate::candidate::{Candidate, TableFigures};
use crate::choice::{Choice, Reason};
use crate::leveled::Leveled;
use crate::pending::Backlog;
use crate::settings::Settings;
use crate::size_tiered::SizeTiered;
use crate::time_window::TimeWindow;
use crate::unified::Unified;

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

impl TombstoneRule {
    fn is_met_by(&self, one: &Candidate) -> bool {
        one.droppable > self.threshold && one.age >= self.interval && (self.unchecked || !one.overlapped)
    }
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

    /// Whether a table's `compaction` option drops expired SSTables although they may hide rows elsewhere
    /// (`unsafe_aggressive_sstable_expiration`, of time windows and unified compaction).
    pub fn expires_aggressively(options: &BTreeMap<String, String>) -> bool {
        matches!(Self::of(options), Self::TimeWindow(..) | Self::Unified(..))
            && Settings(options).flag("unsafe_aggressive_sstable_expiration", false)
    }

    /// The data of SSTables beside a compaction's inputs by which it drops data of these (`provide_overlapping_tombstones`); none without the
    /// option.
    pub fn hides_by(options: &BTreeMap<String, String>) -> Option<Granularity> {
        let settings = Settings(options);
        let text = settings.text("provide_overlapping_tombstones")?;
        let named = [("ROW", Granularity::Row), ("CELL", Granularity::Cell)];
        named
            .into_iter()
            .find(|(name, _)| text.eq_ignore_ascii_case(name))
            .map(|(_, granularity)| granularity)
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

    /// The compactions that would follow one another if nothing were written any more; an estimate, in time of order n log n.
    pub fn backlog(&self, candidates: &[Candidate], figures: &TableFigures) -> Backlog {
        let (expired, alive): (Vec<&Candidate>, Vec<&Candidate>) =
            candidates.iter().partition(|one| one.expired);
        let (pending, rule) = match self {
            Self::Disabled => return Backlog::default(),
            Self::SizeTiered(tiers, rule) => (tiers.pending(alive.iter().copied()), rule),
            Self::Leveled(levels, rule) => (levels.pending(&alive), rule),
            Self::TimeWindow(windows, rule) => (windows.pending(alive.iter().copied(), figures.now), rule),
            Self::Unified(unified, rule) => (unified.pending(&alive, figures), rule),
        };
        let left = pending.left.iter().filter(|one| !rule.is_met_by(one));
        let (count, bytes) = left.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.bytes));
        let for_tombstones = pending.left.len() as u64 - count;
        let all: u64 = alive.iter().map(|one| one.bytes).sum();
        assert!(bytes <= all, "what is left over was there");
        Backlog {
            compactions: u64::from(!expired.is_empty()) + pending.compactions + for_tombstones,
            bytes: all - bytes,
        }
    }

    fn tombstones(&self, rule: &TombstoneRule, candidates: &[Candidate]) -> Option<Choice> {
        let worth = candidates.iter().filter(|one| rule.is_met_by(one));
        let best = worth.max_by(|a, b| a.droppable.total_cmp(&b.droppable))?;
        let mut choice = Choice::of([best.id], Reason::Tombstones);
        choice.level = best.level;
        Some(choice)
    }
}
