//! Unified compaction: levels by density, which is bytes for the share of the token ring that an SSTable spans, and results that
//! are split at fixed tokens. The scaling parameter of a level makes it tiered or leveled.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use schema::units::{scaling_parameter, share, size};

use crate::candidate::{Candidate, TableFigures};
use crate::choice::{Choice, Reason};
use crate::pending::Pending;
use crate::settings::Settings;

/// More levels hold petabytes even at the smallest fanout.
const LEVELS_MAX: usize = 32;
/// Shards are split in two at most so often.
const SHARD_SHIFT_MAX: f64 = 20.0;
/// A result is not split into shards of less than so many bytes, regardless of the options.
const SHARD_BYTES_MIN: u64 = 1 << 20;
/// The base of the levels, bytes, while nothing was flushed.
const FLUSH_BYTES_MIN: u64 = 1 << 20;
/// An SSTable of a smaller share of the ring has too few partitions for its density to mean anything.
const SPAN_MIN: f64 = 1.0 / (1u64 << 48) as f64;

/// Which SSTables join those that are too many at one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inclusion {
    /// None.
    None,
    /// Those that overlap one of them.
    Single,
    /// Those that overlap one of them or another one that joins.
    Transitive,
}

/// Settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Unified {
    /// One a level, the last also for all that follow: below 0 leveled, above 0 tiered.
    scaling: Vec<i32>,
    /// Bytes that an SSTable is to have.
    target_bytes: u64,
    /// Least bytes of an SSTable that is split.
    min_bytes: u64,
    /// Part of the growth of the data by which SSTables grow instead of becoming more (0 to 1).
    growth: f64,
    /// Shards from the first level on.
    base_shards: u32,
    /// Bytes of a flushed SSTable; as measured when none.
    flush_bytes: Option<u64>,
    /// So many are merged at once at most, unless the fanout is larger; 0 for any number.
    sstables_max: usize,
    inclusion: Inclusion,
    /// The two highest levels are merged when together they have so many times the bytes of the highest (`space_amplification_goal`).
    amplification_goal: Option<f64>,
}

impl Unified {
    pub(crate) fn of(settings: &Settings<'_>) -> Self {
        let bytes = |name: &str, default: u64| {
            let bytes = settings.text(name).and_then(|text| size(text).ok());
            bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(default)
        };
        let scaling = settings.text("scaling_parameters").unwrap_or("T4");
        let scaling: Vec<i32> =
            scaling.split(',').filter_map(|one| scaling_parameter(one.trim()).ok()).collect();
        Self {
            scaling: if scaling.is_empty() { vec![2] } else { scaling },
            target_bytes: bytes("target_sstable_size", 1 << 30).max(SHARD_BYTES_MIN),
            min_bytes: bytes("min_sstable_size", 100 << 20).max(SHARD_BYTES_MIN),
            growth: settings.text("sstable_growth").and_then(share).unwrap_or(0.333).clamp(0.0, 1.0),
            base_shards: settings.get("base_shard_count", 4u32).max(1),
            flush_bytes: Some(bytes("flush_size_override", 0)).filter(|bytes| *bytes > 0),
            sstables_max: settings.get("max_sstables_to_compact", 0i32).max(0) as usize,
            inclusion: match settings.text("overlap_inclusion_method").map(str::to_ascii_uppercase).as_deref()
            {
                Some("NONE") => Inclusion::None,
                Some("SINGLE") => Inclusion::Single,
                _ => Inclusion::Transitive,
            },
            amplification_goal: None,
        }
    }

    /// Incremental compaction: tiers of SSTables of about one size, which the same levels give.
    pub(crate) fn incremental(settings: &Settings<'_>) -> Self {
        let min_threshold = settings.get("min_threshold", 4i32).clamp(2, 1 << 20);
        Self {
            scaling: vec![min_threshold - 2],
            target_bytes: settings.get("sstable_size_in_mb", 1000u64).clamp(1, 1 << 40) << 20,
            min_bytes: SHARD_BYTES_MIN,
            growth: 0.0,
            base_shards: 1,
            flush_bytes: settings.text("min_sstable_size").and_then(|text| text.parse().ok()),
            sstables_max: settings.get("max_threshold", 32),
            inclusion: Inclusion::Transitive,
            amplification_goal: settings.text("space_amplification_goal").and_then(|text| text.parse().ok()),
        }
    }

    fn scaling_of(&self, level: usize) -> i32 {
        self.scaling.get(level).or(self.scaling.last()).copied().unwrap_or(0)
    }

    /// How much denser a level may be than the one below.
    fn fanout(&self, level: usize) -> f64 {
        2.0 + f64::from(self.scaling_of(level).unsigned_abs())
    }

    /// SSTables over one token from which on a level is merged.
    fn threshold(&self, level: usize) -> usize {
        2 + usize::try_from(self.scaling_of(level)).unwrap_or(0)
    }

    /// The densities at which levels end, ascending; the last level has no end. The first begins a little below the size of a
    /// flush, so that flushes that are somewhat smaller than others do not make a level of their own.
    fn level_ends(&self, flush_bytes: u64) -> Vec<f64> {
        let flush = self.flush_bytes.unwrap_or(flush_bytes).max(FLUSH_BYTES_MIN) as f64;
        let mut end = flush * (1.0 - 0.9 / self.fanout(0));
        (0..LEVELS_MAX - 1)
            .map(|level| {
                end = (end * self.fanout(level)).floor();
                end
            })
            .collect()
    }

    /// Into how many equal parts of the ring SSTables of a density are split.
    pub(crate) fn shards(&self, density: f64) -> u32 {
        let base = self.base_shards;
        let least = density / self.min_bytes as f64;
        if least < f64::from(base) {
            // Only at tokens where larger ones are split too.
            let common = base & base.wrapping_neg();
            return (1u32 << (least as u32 | 1).ilog2()).min(common);
        }
        let wanted = (density / (self.target_bytes as f64 * f64::from(base))).log2() * (1.0 - self.growth);
        let shift = (wanted + 0.5).clamp(0.0, SHARD_SHIFT_MAX) as u32;
        base.saturating_mul(1 << shift)
    }

    /// Into how many parts the result of merging these is split.
    pub(crate) fn shards_of<'a>(&self, inputs: impl Iterator<Item = &'a Candidate> + Clone) -> u32 {
        let bytes: u64 = inputs.clone().map(|one| one.bytes).sum();
        let first = inputs.clone().map(|one| one.first).min().unwrap_or(i64::MIN);
        let last = inputs.map(|one| one.last).max().unwrap_or(i64::MAX);
        self.shards(bytes as f64 / span(first, last))
    }

    /// The SSTables by their level, which their density decides.
    fn levels<'a>(
        &self,
        candidates: impl IntoIterator<Item = &'a Candidate>,
        figures: &TableFigures,
    ) -> Vec<Vec<&'a Candidate>> {
        let ends = self.level_ends(figures.flush_bytes);
        let mut levels: Vec<Vec<&Candidate>> = vec![Vec::new(); LEVELS_MAX];
        for one in candidates {
            levels[ends.partition_point(|end| *end <= density(one))].push(one);
        }
        levels
    }

    pub(crate) fn pending<'a>(&self, candidates: &[&'a Candidate], figures: &TableFigures) -> Pending<'a> {
        let mut levels = self.levels(candidates.iter().copied(), figures);
        let mut pending = Pending::default();
        for (level, members) in levels.iter_mut().enumerate() {
            let threshold = self.threshold(level);
            let most = match self.sstables_max {
                0 => usize::MAX,
                most => most.max(self.fanout(level) as usize).max(threshold),
            };
            let mut left = Pending::default();
            for (depth, group) in groups(members, threshold, self.inclusion) {
                if depth >= threshold {
                    left.add_group(&group, (threshold, most));
                } else {
                    left.left.extend(group);
                }
            }
            pending.compactions += left.compactions;
            *members = left.left;
        }
        // Each of them empties one of two levels of the SSTables that overlap the other, so that they are no more than there are levels.
        for _ in 0..LEVELS_MAX {
            let Some(merged) = self.amplified(&levels) else { break };
            let merged: BTreeSet<usize> = merged.iter().map(|one| one.id).collect();
            levels.iter_mut().for_each(|members| members.retain(|one| !merged.contains(&one.id)));
            pending.compactions += 1;
        }
        pending.left = levels.concat();
        pending
    }

    pub(crate) fn choose(&self, candidates: &[Candidate], figures: &TableFigures) -> Option<Choice> {
        let levels = self.levels(candidates, figures);
        let mut best: Option<(usize, Bucket<'_>)> = None;
        for (level, members) in levels.iter().enumerate() {
            if let Some(bucket) = deepest(members, self.threshold(level), self.inclusion)
                && best.as_ref().is_none_or(|(_, other)| bucket.depth > other.depth)
            {
                best = Some((level, bucket));
            }
        }
        let chosen = match best {
            Some((level, bucket)) => self.oldest(bucket, level),
            None => self.amplified(&levels)?,
        };
        let mut choice = Choice::of(chosen.iter().map(|one| one.id), Reason::Tier);
        choice.shards = self.shards_of(chosen.iter().copied());
        Some(choice)
    }

    /// As many of a bucket as may be merged at once: those over its deepest token first, so that some of them overlap, and of
    /// these the oldest.
    fn oldest<'a>(&self, bucket: Bucket<'a>, level: usize) -> Vec<&'a Candidate> {
        let mut members = bucket.members;
        let most = self.sstables_max.max(self.fanout(level) as usize);
        if self.sstables_max > 0 && members.len() > most {
            members.sort_by_key(|one| !(one.first <= bucket.token && bucket.token <= one.last));
            members.truncate(most);
        }
        members
    }

    /// The two highest levels that have SSTables, if the lower one is too large for the goal.
    fn amplified<'a>(&self, levels: &[Vec<&'a Candidate>]) -> Option<Vec<&'a Candidate>> {
        let goal = self.amplification_goal?;
        let mut held = levels.iter().rev().filter(|members| !members.is_empty());
        let (highest, next) = (held.next()?, held.next()?);
        let bytes = |members: &[&Candidate]| members.iter().map(|one| one.bytes).sum::<u64>() as f64;
        let is_met = 1.0 + bytes(next) / bytes(highest) <= goal;
        if is_met {
            return None;
        }
        // SSTables without overlap in the other level would only be copied, and chosen again for ever.
        let (met_above, met_below) = (Tokens::of(highest), Tokens::of(next));
        let upper = highest.iter().filter(|one| met_below.overlap(one));
        let lower = next.iter().filter(|one| met_above.overlap(one));
        let chosen: Vec<&Candidate> = upper.chain(lower).copied().collect();
        (!chosen.is_empty()).then_some(chosen)
    }
}

/// The share of the ring between two tokens, both included; the whole where it is too small to mean anything.
fn span(first: i64, last: i64) -> f64 {
    let share = last.abs_diff(first) as f64 / u64::MAX as f64;
    if share < SPAN_MIN { 1.0 } else { share }
}

fn density(one: &Candidate) -> f64 {
    one.bytes as f64 / span(one.first, one.last)
}

/// The tokens that a group of SSTables spans.
struct Tokens {
    /// Where each begins, ascending, and the last token of it and those before it.
    spans: Vec<(i64, i64)>,
}

impl Tokens {
    fn of(members: &[&Candidate]) -> Self {
        let mut spans: Vec<(i64, i64)> = members.iter().map(|one| (one.first, one.last)).collect();
        spans.sort_unstable();
        let mut latest = i64::MIN;
        for (_, last) in &mut spans {
            latest = latest.max(*last);
            *last = latest;
        }
        Self { spans }
    }

    /// Whether one of them overlaps this one.
    fn overlap(&self, one: &Candidate) -> bool {
        let begun = self.spans.partition_point(|(first, _)| *first <= one.last);
        self.spans[..begun].last().is_some_and(|(_, last)| *last >= one.first)
    }
}

/// The SSTables of a level in groups that are merged together, each with how many of it one token has. Where not all that overlap are
/// merged together, those are a group that share a token, from the smallest token on.
fn groups<'a>(
    members: &[&'a Candidate],
    threshold: usize,
    inclusion: Inclusion,
) -> Vec<(usize, Vec<&'a Candidate>)> {
    let mut sorted: Vec<&Candidate> = members.to_vec();
    sorted.sort_by_key(|one| (one.first, one.last));
    let mut groups: Vec<(usize, Vec<&Candidate>)> = Vec::new();
    // Where those end that span the present token; those of the present group, and how far it goes.
    let mut open: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
    let (mut group, mut depth, mut end) = (Vec::new(), 0, i64::MIN);
    for one in sorted {
        let ended = |open: &BinaryHeap<Reverse<i64>>| open.peek().is_some_and(|last| last.0 < one.first);
        let is_apart = one.first > end;
        let is_full = inclusion != Inclusion::Transitive && depth >= threshold && ended(&open);
        if !group.is_empty() && (is_apart || is_full) {
            groups.push((depth, std::mem::take(&mut group)));
            (depth, end) = (0, i64::MIN);
            open.clear();
        }
        while ended(&open) {
            open.pop();
        }
        open.push(Reverse(one.last));
        (depth, end) = (depth.max(open.len()), end.max(one.last));
        group.push(one);
    }
    if !group.is_empty() {
        groups.push((depth, group));
    }
    assert_eq!(groups.iter().map(|(_, group)| group.len()).sum::<usize>(), members.len());
    groups
}

/// SSTables of a level that overlap.
struct Bucket<'a> {
    /// The token that most of them span.
    token: i64,
    /// How many span it.
    depth: usize,
    /// They, and those that join them, oldest first.
    members: Vec<&'a Candidate>,
}

/// The SSTables of a level around the token that most of them span; none when fewer than `threshold` do.
fn deepest<'a>(members: &[&'a Candidate], threshold: usize, inclusion: Inclusion) -> Option<Bucket<'a>> {
    // Where SSTables begin (before where others end at the same token) and end.
    let mut ends: Vec<(i64, bool, usize)> = Vec::with_capacity(2 * members.len());
    for (place, one) in members.iter().enumerate() {
        ends.push((one.first, false, place));
        ends.push((one.last, true, place));
    }
    ends.sort_unstable();
    // The connected tokens around the deepest one.
    let (mut depth, mut deepest, mut at, mut begun, mut around) = (0usize, 0, 0, 0, (0, 0));
    let mut is_deepest_here = false;
    for (token, is_end, _) in ends {
        if is_end {
            depth -= 1;
            if depth == 0 && is_deepest_here {
                (around, is_deepest_here) = ((begun, token), false);
            }
            continue;
        }
        begun = if depth == 0 { token } else { begun };
        depth += 1;
        if depth > deepest {
            (deepest, at, is_deepest_here) = (depth, token, true);
        }
    }
    if deepest < threshold {
        return None;
    }
    let over = |first: i64, last: i64| {
        let met = members.iter().filter(move |one| one.first <= last && one.last >= first);
        met.copied().collect::<Vec<_>>()
    };
    let bucket = match inclusion {
        Inclusion::None => over(at, at),
        Inclusion::Transitive => over(around.0, around.1),
        Inclusion::Single => {
            let ids: BTreeSet<usize> =
                over(at, at).iter().flat_map(|one| over(one.first, one.last)).map(|one| one.id).collect();
            members.iter().filter(|one| ids.contains(&one.id)).copied().collect()
        }
    };
    Some(Bucket { token: at, depth: deepest, members: bucket })
}
