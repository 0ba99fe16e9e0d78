//! Time-window compaction: writes of one window of time end in one SSTable, and windows are never mixed.

use std::collections::BTreeMap;

use mutation::Seconds;

use crate::candidate::Candidate;
use crate::choice::{Choice, Reason};
use crate::pending::Pending;
use crate::settings::Settings;
use crate::size_tiered::SizeTiered;

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeWindow {
    /// Length of a window, seconds.
    pub window: u64,
    /// Units of timestamps in a second.
    pub resolution: i64,
    /// Within the newest window.
    pub tiers: SizeTiered,
}

impl TimeWindow {
    pub(crate) fn of(settings: &Settings<'_>) -> Self {
        let unit = settings.get("compaction_window_unit", "DAYS".to_owned()).to_ascii_uppercase();
        // The names are taken in any case.
        let seconds = match unit.as_str() {
            "MINUTES" => 60,
            "HOURS" => 3600,
            _ => 86_400,
        };
        let resolution = settings.get("timestamp_resolution", "MICROSECONDS".to_owned()).to_ascii_uppercase();
        let resolution = match resolution.as_str() {
            "SECONDS" => 1,
            "MILLISECONDS" => 1_000,
            "NANOSECONDS" => 1_000_000_000,
            _ => 1_000_000,
        };
        Self {
            window: settings.get("compaction_window_size", 1u64).max(1) * seconds,
            resolution,
            tiers: SizeTiered::of(settings),
        }
    }

    fn window_of(&self, seconds: i64) -> i64 {
        seconds.div_euclid(self.window as i64)
    }

    /// The SSTables by the window of their latest write.
    fn windows<'a>(
        &self,
        candidates: impl IntoIterator<Item = &'a Candidate>,
    ) -> BTreeMap<i64, Vec<&'a Candidate>> {
        let mut windows: BTreeMap<i64, Vec<&Candidate>> = BTreeMap::new();
        for one in candidates {
            let window = self.window_of(one.timestamp_max.div_euclid(self.resolution));
            windows.entry(window).or_default().push(one);
        }
        windows
    }

    pub(crate) fn choose(&self, candidates: &[Candidate], now: Seconds) -> Option<Choice> {
        let windows = self.windows(candidates);
        let present = self.window_of(i64::from(now));
        // The newest first: its SSTables are the ones that are read.
        for (window, members) in windows.into_iter().rev() {
            if window >= present {
                if let Some(choice) = self.tiers.choose(members) {
                    return Some(choice);
                }
            } else if members.len() >= 2 {
                let inputs = members.iter().take(self.tiers.max_threshold).map(|one| one.id);
                return Some(Choice::of(inputs, Reason::Window));
            }
        }
        None
    }

    pub(crate) fn pending<'a>(
        &self,
        candidates: impl IntoIterator<Item = &'a Candidate>,
        now: Seconds,
    ) -> Pending<'a> {
        let present = self.window_of(i64::from(now));
        let mut pending = Pending::default();
        for (window, members) in self.windows(candidates) {
            if window >= present {
                let of_tiers = self.tiers.pending(members);
                pending.compactions += of_tiers.compactions;
                pending.left.extend(of_tiers.left);
            } else {
                pending.add_group(&members, (2, self.tiers.max_threshold));
            }
        }
        pending
    }
}
