//! Whether a table can be restored to a point in time, and since when: it is in an extension of the table, as its streams are.

use serde_json::{Value as Json, json};

use crate::error::{ApiError, ErrorKind, Result};

/// Days of a period, and the period where none is given.
pub(crate) const DAYS_MAX: i64 = 35;
pub(crate) const DAYS_DEFAULT: i64 = DAYS_MAX;
const DAY_MICROS: i64 = 24 * 3600 * 1_000_000;
/// Periods that still matter after their end.
const PERIODS_MAX: usize = 40;

/// A time from which the log's rows have lived for so many days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period {
    since_millis: i64,
    days: i64,
}

/// The recovery of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// The oldest first; the last is that of now. None when recovery is disabled.
    periods: Vec<Period>,
}

impl Recovery {
    /// The days of its period; none when it is disabled.
    pub(crate) fn days(&self) -> Option<i64> {
        self.periods.last().map(|period| period.days)
    }

    /// Enables it, or changes its period, at a time in microseconds since 1970.
    ///
    /// # Errors
    /// When the period was changed so often that too many of before still matter.
    pub(crate) fn enable(&mut self, days: i64, now_micros: i64) -> Result<()> {
        if self.days() == Some(days) {
            return Ok(());
        }
        // A period that has ended matters until the first time of the next one can be restored by itself.
        while let [first, second, ..] = self.periods[..]
            && second.since_millis <= (now_micros - first.days * DAY_MICROS).div_euclid(1000)
        {
            self.periods.remove(0);
        }
        if self.periods.len() >= PERIODS_MAX {
            let text = "RecoveryPeriodInDays was changed too often: change it again when a day has gone by";
            return Err(ApiError::new(ErrorKind::LimitExceeded, text));
        }
        // Not before it is enabled.
        self.periods.push(Period { since_millis: -(-now_micros).div_euclid(1000), days });
        Ok(())
    }

    /// Disables it.
    pub(crate) fn disable(&mut self) {
        self.periods.clear();
    }

    /// The first second since 1970 to which the table can be restored at a time: all changes since then are in the log, which nodes have
    /// for certain `window_micros` after it was turned on. None when it is disabled.
    pub(crate) fn earliest(&self, now_micros: i64, window_micros: i64) -> Option<i64> {
        let begun = self.periods.first()?.since_millis * 1000 + window_micros;
        let ends = self.periods.iter().skip(1).map(|next| next.since_millis * 1000).chain([i64::MAX]);
        let of = |(period, end): (&Period, i64)| end.min(now_micros - period.days * DAY_MICROS);
        let micros = self.periods.iter().zip(ends).map(of).fold(begun, i64::max);
        Some(-(-micros).div_euclid(1_000_000))
    }

    /// The recovery of a stored form.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let json: Json = serde_json::from_slice(bytes).unwrap_or_default();
        let one = |json: &Json| {
            let days = json.get("days")?.as_i64().filter(|days| (1..=DAYS_MAX).contains(days))?;
            Some(Period { since_millis: json.get("since")?.as_i64()?, days })
        };
        Self { periods: json.as_array().into_iter().flatten().filter_map(one).collect() }
    }

    /// The stored form.
    pub(crate) fn write(&self) -> Vec<u8> {
        let one = |period: &Period| json!({ "since": period.since_millis, "days": period.days });
        Json::Array(self.periods.iter().map(one).collect()).to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    /// The earliest second, in days of a table whose recovery was enabled at day 0, on some days.
    fn earliest(changes: &[(i64, i64)], on: &[i64]) -> Vec<i64> {
        let mut recovery = Recovery::default();
        for (day, days) in changes {
            recovery.enable(*days, day * DAY_MICROS).expect("few changes");
        }
        assert_eq!(Recovery::read(&recovery.write()), recovery);
        let shown = on.iter().map(|day| recovery.earliest(day * DAY_MICROS, 0).expect("enabled"));
        shown.map(|second| second / 86_400).collect()
    }

    #[test]
    fn the_earliest_time_is_that_of_which_all_changes_are_stored() {
        assert_eq!(earliest(&[(0, 35)], &[0, 10, 35, 36, 50]), [0, 0, 0, 1, 15]);
        assert_eq!(earliest(&[(0, 5)], &[1, 5, 9]), [0, 0, 4]);
        // Rows that were written under the short period are gone after it, and later ones live longer.
        assert_eq!(earliest(&[(0, 5), (20, 35)], &[20, 22, 25, 30, 60]), [15, 17, 20, 20, 25]);
        assert_eq!(earliest(&[(0, 35), (20, 5)], &[20, 21, 30]), [15, 16, 25]);
        assert_eq!(
            earliest(&[(0, 2), (10, 4), (11, 20)], &[11, 12, 14, 15, 31, 40]),
            [9, 10, 10, 11, 11, 20]
        );
        assert_eq!(earliest(&[(0, 35), (9, 35)], &[10]), [0], "the same again changes nothing");
    }

    #[test]
    fn it_never_goes_back_and_begins_when_all_nodes_capture() {
        let mut recovery = Recovery::default();
        assert_eq!((recovery.earliest(5, 5), recovery.days()), (None, None));
        recovery.enable(35, 1_500_000).expect("the first");
        assert_eq!(recovery.earliest(2 * SECOND, 10 * SECOND), Some(12), "a whole second");
        assert_eq!(recovery.earliest(2 * SECOND, 0), Some(2));
        recovery.disable();
        assert_eq!(recovery.earliest(5, 5), None);
        recovery.enable(35, 9 * SECOND).expect("again");
        assert_eq!(recovery.earliest(10 * SECOND, 0), Some(9), "a new one begins");
    }

    #[test]
    fn periods_that_do_not_matter_are_forgotten() {
        let mut recovery = Recovery::default();
        for day in 0..200 {
            recovery.enable(1 + day % 2, day * DAY_MICROS).expect("old ones are forgotten");
        }
        assert!(recovery.periods.len() < 6, "{}", recovery.periods.len());
        let changes = (0..100).map(|at| recovery.enable(5 + at % 2, 200 * DAY_MICROS + at));
        assert!(changes.last().expect("some").is_err());
        assert_eq!(recovery.periods.len(), PERIODS_MAX);
    }
}
