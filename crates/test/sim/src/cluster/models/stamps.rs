//! Registers with the timestamps of their coordinators: the bounds of each write's timestamp, and the readings that they allow.
//!
//! A timestamp that a coordinator draws lies between the value of its clock when the request was sent and the latest that it had shown
//! when the answer came; a reader of the value learns it exactly. A reading that was sent after a write was acknowledged
//! shows that write or something later by timestamp, however much earlier it was written. A reading bounds the timestamps of
//! all acknowledged writes that are not, which is remembered, for one of them may be read one day.
//!
//! Some writes have conditions. Between those and the others there is no order but that of their timestamps: a condition is compared
//! with the rows that a read at QUORUM may show, and its write has the time of its ballot, and may lose to a write whose clock is
//! ahead; it is not lost otherwise.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rt_sim::Rng;

/// The registers' table.
pub(crate) const TABLE: &str = "k0.stamped";
/// Registers in use at once.
const KEYS: u64 = 2;
/// Writes of a register, after which another takes its place.
const WRITES_MAX: usize = 40;

/// A write of a register; its timestamp is one of these.
#[derive(Clone, Debug)]
pub(crate) struct Stamped {
    /// None for a deletion.
    pub(crate) value: Option<i64>,
    begun: u64,
    /// A quorum has stored it since then.
    pub(crate) since: Option<u64>,
    pub(crate) least: i64,
    pub(crate) most: i64,
}

/// The writes of a register.
#[derive(Default)]
pub(crate) struct Stamps {
    /// The last known value of each register.
    pub(crate) known: BTreeMap<u64, Option<i64>>,
    current: [u64; KEYS as usize],
    pub(crate) next_value: i64,
    pub(crate) registers: BTreeMap<u64, Vec<Stamped>>,
}

/// Shared by the client and the checker.
pub(crate) type SharedStamps = Rc<RefCell<Stamps>>;

/// A reading: when it was sent and answered, the value, with its timestamp if that is shown, and whether every later reading shows as much.
pub(crate) struct Shown {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) value: Option<(i64, Option<i64>)>,
    pub(crate) settles: bool,
}

impl Stamps {
    /// None is in use yet.
    pub(crate) fn new() -> Self {
        Self { current: std::array::from_fn(|at| at as u64), ..Self::default() }
    }

    /// A register that has room for one more write.
    pub(crate) fn key(&mut self, rng: &mut Rng) -> u64 {
        let slot = rng.below(KEYS) as usize;
        if self.registers.entry(self.current[slot]).or_default().len() >= WRITES_MAX {
            self.current[slot] += KEYS;
        }
        self.current[slot]
    }

    /// A write is about to be sent, with this timestamp or with its coordinator's.
    pub(crate) fn begin(&mut self, key: u64, value: Option<i64>, begun: u64, stamp: Option<i64>) -> usize {
        let (least, most) = stamp.map_or((i64::MIN, i64::MAX), |stamp| (stamp, stamp));
        let all = self.registers.entry(key).or_default();
        all.push(Stamped { value, begun, since: None, least, most });
        all.len() - 1
    }

    /// Adds a reading; returns the violation.
    pub(crate) fn judge(&mut self, key: u64, shown: &Shown) -> Result<(), String> {
        let all = self.registers.entry(key).or_default();
        let mut source = None;
        // Of the writes that were not refused, any deletion so late can be the reason for an empty reading.
        let deleted = all.iter().filter(|one| one.value.is_none() && one.begun < shown.answered);
        let mut latest = deleted.map(|one| one.most).max().unwrap_or(i64::MIN);
        if let Some((value, stamp)) = shown.value {
            let Some(at) = all.iter().position(|one| one.value == Some(value)) else {
                return Err(format!("shows {value}, which nobody wrote"));
            };
            let one = &mut all[at];
            if stamp.is_some_and(|stamp| stamp < one.least || stamp > one.most) {
                return Err(format!(
                    "shows {value} with the timestamp {stamp:?}, which cannot be that of {one:?}"
                ));
            }
            (one.least, one.most) = stamp.map_or((one.least, one.most), |stamp| (stamp, stamp));
            if shown.settles && one.since.is_none() {
                one.since = Some(shown.answered);
            }
            (source, latest) = (Some(at), one.most);
        }
        for (at, one) in all.iter_mut().enumerate() {
            if Some(at) == source || one.since.is_none_or(|since| since >= shown.sent) {
                continue;
            }
            let limit = match (shown.value, one.value) {
                // Of one timestamp the greater value is shown, and rather a deletion than any value.
                (_, Some(_)) => latest,
                (Some(_), None) => latest.saturating_sub(1),
                (None, None) => continue,
            };
            if one.least > limit {
                return Err(format!(
                    "shows {:?}, at {limit} at the latest, and not {one:?}, which is later",
                    shown.value
                ));
            }
            one.most = one.most.min(limit);
        }
        Ok(())
    }

    /// A judged register gets no more requests.
    pub(crate) fn retire(&mut self) {
        self.registers.clear();
        self.current.iter_mut().for_each(|key| *key += KEYS);
    }
}

/// Creates the table.
pub(crate) fn create_text() -> String {
    format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY, v bigint)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(value: Option<i64>, since: u64, least: i64, most: i64) -> Stamped {
        Stamped { value, begun: since - 1, since: Some(since), least, most }
    }

    fn stamps(all: &[Stamped]) -> Stamps {
        Stamps { registers: [(0, all.to_vec())].into(), ..Stamps::new() }
    }

    fn shown(sent: u64, value: Option<(i64, i64)>) -> Shown {
        let value = value.map(|(value, stamp)| (value, Some(stamp)));
        Shown { sent, answered: sent + 1, value, settles: false }
    }

    #[test]
    fn an_acknowledged_value_or_one_later_by_timestamp_is_shown() {
        let both = [acknowledged(Some(1), 10, 100, 200), acknowledged(Some(2), 20, 50, 60)];
        assert_eq!(
            stamps(&both).judge(0, &shown(30, Some((1, 150)))),
            Ok(()),
            "the earlier, by a clock ahead"
        );
        assert!(stamps(&both).judge(0, &shown(30, Some((2, 55)))).is_err(), "1 is later whatever it has");
        assert_eq!(
            stamps(&both).judge(0, &shown(5, Some((2, 55)))),
            Ok(()),
            "sent before 1 was acknowledged"
        );
        assert!(stamps(&both).judge(0, &shown(30, Some((1, 250)))).is_err(), "its clock did not show that");
        assert!(stamps(&both).judge(0, &shown(30, Some((3, 150)))).is_err(), "nobody wrote that");
        assert!(stamps(&both).judge(0, &shown(30, None)).is_err(), "nobody deleted it");
    }

    #[test]
    fn shown_values_bound_those_not_shown() {
        let all = [acknowledged(Some(1), 10, 100, 200), acknowledged(Some(2), 20, 100, 200)];
        let mut seen = stamps(&all);
        assert_eq!(seen.judge(0, &shown(30, Some((1, 150)))), Ok(()));
        assert!(seen.judge(0, &shown(40, Some((2, 160)))).is_err(), "then 2 should have been shown before");
        let mut seen = stamps(&all);
        assert_eq!(seen.judge(0, &shown(30, Some((1, 150)))), Ok(()));
        assert!(seen.judge(0, &shown(40, Some((1, 151)))).is_err(), "a timestamp changes");
        let condition = |value| Shown { value: Some((value, None)), ..shown(30, None) };
        let mut seen = stamps(&[acknowledged(Some(1), 10, 100, 200), acknowledged(Some(2), 20, 150, 300)]);
        assert_eq!(seen.judge(0, &condition(1)), Ok(()), "1 may have been written at 200");
        assert!(seen.judge(0, &shown(40, Some((2, 250)))).is_err(), "then 2 was later than 1");
        let mut seen = stamps(&[acknowledged(Some(1), 10, 100, 140), acknowledged(Some(2), 20, 150, 300)]);
        assert!(seen.judge(0, &condition(1)).is_err(), "a condition found an overwritten value");
    }

    #[test]
    fn deletions_hide_values_that_are_not_later() {
        let all = [acknowledged(Some(1), 10, 100, 200), acknowledged(None, 20, 150, 160)];
        assert_eq!(stamps(&all).judge(0, &shown(30, None)), Ok(()));
        assert_eq!(stamps(&all).judge(0, &shown(30, Some((1, 170)))), Ok(()));
        assert!(stamps(&all).judge(0, &shown(30, Some((1, 150)))).is_err(), "a tie goes to the deletion");
        let all = [acknowledged(Some(1), 10, 170, 200), acknowledged(None, 20, 150, 160)];
        assert!(stamps(&all).judge(0, &shown(30, None)).is_err(), "the deletion is too early");
    }
}
