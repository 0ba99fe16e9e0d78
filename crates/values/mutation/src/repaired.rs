//! The last repair of each range of a table: `tombstone_gc = {'mode': 'repair'}` purges by it, and metrics show its age.

use crate::Seconds;

/// Ranges of tokens with the time of their last repair. A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// `(after, upto, at)`: tokens above `after` up to `upto`; ascending, apart, neighbours with one time joined.
    ranges: Vec<(i64, i64, Seconds)>,
}

impl Repaired {
    /// From ranges in any order.
    pub fn new(ranges: impl IntoIterator<Item = (i64, i64, Seconds)>) -> Self {
        let mut out = Self::default();
        ranges.into_iter().for_each(|(after, upto, at)| out.insert(after, upto, at, Seconds::MAX));
        out
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[(i64, i64, Seconds)] {
        &self.ranges
    }

    /// Takes down that the tokens above `after` up to `upto` were repaired at `at`. An earlier time never replaces a later one, unless that
    /// one lies ahead of `now`: it was recorded by a wrong clock, and would hide all repairs until the right one has reached it.
    pub fn insert(&mut self, after: i64, upto: i64, at: Seconds, now: Seconds) {
        if after >= upto {
            return;
        }
        let mut out: Vec<(i64, i64, Seconds)> = Vec::with_capacity(self.ranges.len() + 2);
        let mut push = |after: i64, upto: i64, at: Seconds| {
            if after >= upto {
                return;
            }
            match out.last_mut() {
                Some(last) if last.1 == after && last.2 == at => last.1 = upto,
                _ => out.push((after, upto, at)),
            }
        };
        let mut from = after;
        for &(known_after, known_upto, known_at) in &self.ranges {
            if known_after >= upto {
                // The last part of the new range lies before it.
                push(from, upto, at);
                from = upto;
            }
            push(known_after, known_upto.min(after), known_at);
            if known_after < upto && known_upto > after {
                push(from, known_after, at);
                let later = if known_at > now { at } else { known_at.max(at) };
                push(known_after.max(after), known_upto.min(upto), later);
                from = known_upto.min(upto);
            }
            push(known_after.max(upto), known_upto, known_at);
        }
        push(from, upto, at);
        self.ranges = out;
    }

    /// When a token was repaired last; 0 for never. A time ahead of `now` is as never: a clock was wrong, and the repair may have been any time
    /// ago.
    pub fn at(&self, token: i64, now: Seconds) -> Seconds {
        let at = self.ranges.partition_point(|(_, upto, _)| *upto < token);
        match self.ranges.get(at) {
            Some((after, _, time)) if *after < token && *time <= now => *time,
            _ => 0,
        }
    }

    /// When the part of a range was repaired for which that is longest ago; 0 when some part never was, by [`Repaired::at`].
    pub fn oldest(&self, after: i64, upto: i64, now: Seconds) -> Seconds {
        let (mut from, mut oldest) = (after, Seconds::MAX);
        for &(known_after, known_upto, at) in &self.ranges {
            if known_upto <= from {
                continue;
            }
            if from >= upto || known_after > from || at > now {
                break;
            }
            oldest = oldest.min(at);
            from = known_upto;
        }
        if from >= upto { oldest } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_list_of_tokens(
            repairs in prop::collection::vec((0i64..30, 0i64..30, 1u32..5, any::<bool>()), 0..12),
            asked in (0i64..30, 0i64..30),
            now in 1u32..6,
        ) {
            let mut list = [0u32; 31];
            let mut repaired = Repaired::default();
            for (a, b, at, ahead) in repairs {
                let (after, upto) = (a.min(b), a.max(b));
                let by = if ahead { Seconds::MAX } else { now };
                repaired.insert(after, upto, at, by);
                list.iter_mut().zip(0i64..).filter(|(_, token)| after < *token && *token <= upto)
                    .for_each(|(known, _)| *known = if *known > by { at } else { at.max(*known) });
            }
            let known = |token: i64| Some(list[token as usize]).filter(|at| *at <= now).unwrap_or(0);
            for token in 0i64..31 {
                prop_assert_eq!(repaired.at(token, now), known(token), "token {}", token);
            }
            let (after, upto) = (asked.0.min(asked.1), asked.0.max(asked.1) + 1);
            let oldest = ((after + 1)..=upto).map(known).min().unwrap();
            prop_assert_eq!(repaired.oldest(after, upto, now), oldest);
            let ranges = repaired.ranges();
            prop_assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0 || w[0].1 == w[1].0 && w[0].2 != w[1].2));
            prop_assert_eq!(Repaired::new(ranges.iter().rev().copied()), repaired);
        }
    }

    #[test]
    fn a_repair_behind_the_time_of_a_wrong_clock_is_not_hidden_by_it() {
        // A clock was two hours ahead; it is corrected, and a part of the range is repaired again.
        let mut repaired = Repaired::new([(0, 100, 17_200)]);
        assert_eq!(repaired.oldest(0, 100, 10_000), 0);
        repaired.insert(0, 50, 10_000, 10_000);
        assert_eq!((repaired.oldest(0, 50, 10_000), repaired.oldest(0, 100, 10_000)), (10_000, 0));
        // When the clock has reached the wrong time, the repair of the part still counts from its own.
        assert_eq!(repaired.ranges(), [(0, 50, 10_000), (50, 100, 17_200)]);
        assert_eq!(repaired.at(20, 17_200), 10_000);
    }
}
