//! Leveled compaction: level 0 takes flushed SSTables; in every higher level SSTables do not overlap, and the level holds
//! ten times as much as the one below.

use std::collections::BTreeMap;

use crate::candidate::Candidate;
use crate::choice::{Choice, Reason};
use crate::pending::Pending;
use crate::settings::Settings;
use crate::size_tiered::SizeTiered;

/// New SSTables from which on level 0 is merged.
const LEVEL0_MIN: usize = 4;
/// So many of level 0 are merged at once at most; with more waiting they are first merged among themselves.
const LEVEL0_MAX: usize = 32;
/// The highest level.
const LEVEL_MAX: u32 = 8;

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leveled {
    /// Bytes of an SSTable (`sstable_size_in_mb`).
    pub sstable_bytes: u64,
    /// How much more a level holds than the one below.
    pub fanout: u64,
    /// For level 0 when it is far behind.
    pub tiers: SizeTiered,
}

impl Leveled {
    pub(crate) fn of(settings: &Settings<'_>) -> Self {
        Self {
            sstable_bytes: settings.get("sstable_size_in_mb", 160u64).max(1) << 20,
            fanout: settings.get("fanout_size", 10u64).max(2),
            tiers: SizeTiered::of(settings),
        }
    }

    /// The capacity of a level, bytes.
    fn level_bytes_max(&self, level: u32) -> u64 {
        self.sstable_bytes.saturating_mul(self.fanout.saturating_pow(level))
    }

    fn choice(&self, inputs: Vec<&Candidate>, level: u32) -> Choice {
        let mut choice = Choice::of(inputs.into_iter().map(|one| one.id), Reason::Level);
        choice.level = level;
        choice.output_bytes_max = Some(self.sstable_bytes);
        choice
    }

    pub(crate) fn choose(&self, candidates: &[Candidate]) -> Option<Choice> {
        let of_level = |level: u32| candidates.iter().filter(move |one| one.level == level);
        let bytes = |level: u32| of_level(level).map(|one| one.bytes).sum::<u64>();
        // Higher levels first, the fullest by the share of their limit.
        let fullest = (1..LEVEL_MAX)
            .map(|level| (bytes(level) as f64 / self.level_bytes_max(level) as f64, level))
            .filter(|(share, _)| *share > 1.0)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let waiting: Vec<&Candidate> = of_level(0).collect();
        if let Some((share, level)) = fullest
            && (waiting.len() < LEVEL0_MAX || share > 2.0)
        {
            return self.promote(candidates, level);
        }
        if waiting.len() > LEVEL0_MAX
            && let Some(choice) = self.tiers.choose(waiting.iter().copied())
        {
            return Some(choice);
        }
        if waiting.len() < LEVEL0_MIN {
            return None;
        }
        let mut inputs: Vec<&Candidate> = waiting.into_iter().take(LEVEL0_MAX).collect();
        let (first, last) = bounds(&inputs)?;
        inputs.extend(of_level(1).filter(|one| overlaps(one, first, last)));
        Some(self.choice(inputs, 1))
    }

    /// One compaction for each SSTable that a level has too many, and those of level 0. The SSTables that a compaction merges in the next
    /// level, and those that it adds there, are not foreseen: that level counts its own.
    pub(crate) fn pending<'a>(&self, candidates: &[&'a Candidate]) -> Pending<'a> {
        let mut levels: BTreeMap<u32, Vec<&Candidate>> = BTreeMap::new();
        for one in candidates {
            levels.entry(one.level).or_default().push(one);
        }
        let mut pending = Pending::default();
        for (level, members) in levels {
            if level == 0 {
                pending.add_group(&members, (LEVEL0_MIN, LEVEL0_MAX));
                continue;
            }
            let mut bytes: u64 = members.iter().map(|one| one.bytes).sum();
            for one in members {
                if level < LEVEL_MAX && bytes > self.level_bytes_max(level) {
                    bytes -= one.bytes;
                    pending.compactions += 1;
                } else {
                    pending.left.push(one);
                }
            }
        }
        pending
    }

    /// Moves the SSTable with the least overlap up by one level, together with those that it overlaps there.
    fn promote(&self, candidates: &[Candidate], level: u32) -> Option<Choice> {
        let above: Vec<&Candidate> = candidates.iter().filter(|one| one.level == level + 1).collect();
        let met = |one: &Candidate| -> Vec<&Candidate> {
            above.iter().copied().filter(|other| overlaps(other, one.first, one.last)).collect()
        };
        let cost = |one: &&Candidate| {
            let bytes: u64 = met(one).iter().map(|other| other.bytes).sum();
            (bytes * 1000 / one.bytes.max(1), one.first)
        };
        let one = candidates.iter().filter(|one| one.level == level).min_by_key(cost)?;
        let mut inputs = vec![one];
        inputs.extend(met(one));
        Some(self.choice(inputs, level + 1))
    }
}

fn bounds(inputs: &[&Candidate]) -> Option<(i64, i64)> {
    let first = inputs.iter().map(|one| one.first).min()?;
    Some((first, inputs.iter().map(|one| one.last).max()?))
}

fn overlaps(one: &Candidate, first: i64, last: i64) -> bool {
    one.first <= last && one.last >= first
}
