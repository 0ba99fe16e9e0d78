//! Ballots: numbers of rounds, all different, and in the order of a clock that runs ahead of its node's where others do.

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

/// The rounds of one shard.
#[derive(Clone, Debug)]
pub struct BallotClock {
    last_micros: i64,
    node: u64,
}

impl BallotClock {
    /// The rounds of `node`, a number that nobody else draws.
    pub fn new(node: u64) -> Self {
        Self { last_micros: 0, node }
    }

    /// A ballot of now that is above all that this clock gave before, and of a later microsecond than `above`.
    pub fn next(&mut self, now_micros: i64, above: Ballot) -> Ballot {
        let micros = now_micros.max(self.last_micros.saturating_add(1)).max(above.micros.saturating_add(1));
        self.last_micros = micros;
        Ballot { micros, node: self.node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_rise_whatever_the_clock_does() {
        let mut clock = BallotClock::new(7);
        let first = clock.next(1000, Ballot::NONE);
        let second = clock.next(900, Ballot::NONE);
        let third = clock.next(1002, Ballot { micros: 5000, node: 9 });
        assert_eq!([first.micros, second.micros, third.micros], [1000, 1001, 5001]);
        assert!(first < second && second < third);
        assert!(Ballot { micros: 5, node: 1 } < Ballot { micros: 5, node: 2 });
        assert!(Ballot { micros: 5, node: 9 } < Ballot { micros: 6, node: 0 });
    }
}
