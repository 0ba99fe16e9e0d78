//! Ballots: numbers of rounds, all different, by the clock of the node, and ahead of it where another node's ballot was.

use std::collections::BTreeSet;

/// A round's number. The time orders writes too, so that no two writes of a partition have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Microseconds since the epoch.
    pub micros: i64,
    /// The node, among those of one microsecond: drawn by chance when a shard starts.
    pub node: u64,
}

impl Ballot {
    /// Before every round.
    pub const NONE: Self = Self { micros: 0, node: 0 };

    /// Whether it is no round's.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl std::fmt::Display for Ballot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:016x}", self.micros, self.node)
    }
}

/// Two rounds of a partition are so many microseconds apart: a round's deletions are written a microsecond before its cells, and are to be
/// later than the cells of the round before.
pub const BETWEEN_MICROS: i64 = 2;

/// Ballots ahead of the clock that are remembered, so that none is given twice.
const AHEAD_MAX: usize = 100_000;

/// The rounds of one shard.
///
/// A ballot above another one may have to be ahead of this node's clock, because the other's was. It is ahead for its partition alone: the
/// next ballot of another partition is of this node's clock again. Otherwise one clock that is an hour ahead for a second would raise the
/// ballots, and with them the times of writes, of all nodes for that hour, and writes by the right time would be hidden.
#[derive(Clone, Debug)]
pub struct BallotClock {
    last_micros: i64,
    /// Times of ballots that were given ahead of the clock; later than `last_micros`.
    ahead: BTreeSet<i64>,
    node: u64,
}

impl BallotClock {
    /// The rounds of `node`, a number that nobody else draws.
    pub fn new(node: u64) -> Self {
        Self { last_micros: 0, ahead: BTreeSet::new(), node }
    }

    /// A ballot of now that this clock never gave before, [`BETWEEN_MICROS`] later than `above` at least.
    pub fn next(&mut self, now_micros: i64, above: Ballot) -> Ballot {
        let own = now_micros.max(self.last_micros.saturating_add(1));
        let earliest = above.micros.saturating_add(BETWEEN_MICROS);
        let is_ahead = earliest > own && !above.is_none();
        let first = if is_ahead { earliest } else { own };
        let micros = self.free_from(first);
        if is_ahead && self.ahead.len() < AHEAD_MAX {
            self.ahead.insert(micros);
        } else {
            self.last_micros = micros;
            self.ahead = self.ahead.split_off(&micros.saturating_add(1));
        }
        assert!(
            micros > above.micros || above.micros == i64::MAX,
            "a ballot is above those that it was refused for"
        );
        Ballot { micros, node: self.node }
    }

    /// The first time from `first` on of which no ballot was given ahead of the clock.
    fn free_from(&self, first: i64) -> i64 {
        let taken = self.ahead.range(first..).zip(first..).take_while(|(taken, free)| *taken == free);
        first.saturating_add(i64::try_from(taken.count()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ballots_rise_with_the_clock_also_when_it_is_set_back() {
        let mut clock = BallotClock::new(7);
        let first = clock.next(1000, Ballot::NONE);
        let second = clock.next(900, Ballot::NONE);
        assert_eq!([first.micros, second.micros], [1000, 1001]);
        assert!(first < second);
        assert!(Ballot { micros: 5, node: 1 } < Ballot { micros: 5, node: 2 });
        assert!(Ballot { micros: 5, node: 9 } < Ballot { micros: 6, node: 0 });
    }

    #[test]
    fn a_clock_that_is_ahead_raises_the_ballots_of_its_partition_alone() {
        let mut clock = BallotClock::new(7);
        let ahead = Ballot { micros: 5_000, node: 9 };
        let micros = |clock: &mut BallotClock, now, above| clock.next(now, above).micros;
        assert_eq!(micros(&mut clock, 1_000, ahead), 5_002);
        assert_eq!(micros(&mut clock, 1_001, Ballot::NONE), 1_001, "another partition");
        assert_eq!(micros(&mut clock, 1_002, ahead), 5_003, "no ballot is given twice");
        assert_eq!(micros(&mut clock, 1_003, Ballot { micros: 5_001, node: 9 }), 5_004);
        // The clock reaches the times that were given.
        assert_eq!(micros(&mut clock, 5_002, Ballot::NONE), 5_005);
        assert_eq!(micros(&mut clock, 5_002, Ballot::NONE), 5_006);
        assert!(clock.ahead.is_empty());
        assert_eq!(
            micros(&mut clock, 5_002, Ballot { micros: 5_006, node: 9 }),
            5_008,
            "a microsecond is free between"
        );
    }

    proptest! {
        #[test]
        fn no_ballot_is_given_twice(rounds in prop::collection::vec((0..200_i64, prop::option::of(0..200_i64)), 1..200)) {
            let mut clock = BallotClock::new(7);
            let mut given = BTreeSet::new();
            for (now, above) in rounds {
                let above = above.map_or(Ballot::NONE, |micros| Ballot { micros, node: 3 });
                let ballot = clock.next(now, above);
                prop_assert!(ballot.micros >= now && ballot.micros > above.micros + i64::from(!above.is_none()));
                prop_assert!(given.insert(ballot), "{} twice", ballot);
                prop_assert!(clock.ahead.iter().all(|micros| *micros > clock.last_micros));
            }
        }
    }
}
