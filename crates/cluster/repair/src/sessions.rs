//! The basis of incremental repairs: which session repaired each range last, and how far the own data had come when it began. Pure.
//!
//! A session that ended with all replicas of a range guarantees for each of them: all have the data that was below its mark then. So when all of
//! them know the same sessions of a range, only data above the marks has to be compared.

use std::sync::Arc;

use mutation::Seconds;
use replica::RepairedWatermark;
use topology::TokenRange;
use xxhash_rust::xxh3::xxh3_64;

/// A repair that all replicas of its range have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name, drawn at random.
    pub id: u64,
    /// When it began, by its master's clock.
    pub at: Seconds,
    /// By shard: the watermark of this node's data then.
    pub marks: Arc<[RepairedWatermark]>,
}

/// The last session of each range of one table. A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions(Vec<(TokenRange, Session)>);

/// The basis of one node in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Stands for the sessions of the range and their bounds.
    pub lineage: u64,
    /// By shard: data above it has not been compared by all of them.
    pub marks: Vec<RepairedWatermark>,
    /// Bytes of the node's data of the table that lie above.
    pub fresh_bytes: u64,
    /// Bytes of all of it.
    pub all_bytes: u64,
}

impl Sessions {
    /// The ranges, ascending and apart.
    pub fn ranges(&self) -> &[(TokenRange, Session)] {
        &self.0
    }

    /// Takes down the session that repaired a range last.
    pub fn insert(&mut self, range: TokenRange, session: Session) {
        let mut out = Vec::with_capacity(self.0.len() + 2);
        for (known, of) in std::mem::take(&mut self.0) {
            let left = TokenRange { upto: known.upto.min(range.after), ..known };
            let right = TokenRange { after: known.after.max(range.upto), ..known };
            let rest = [left, right].into_iter().filter(|part| part.after < part.upto);
            out.extend(rest.map(|part| (part, of.clone())));
        }
        out.push((range, session));
        out.sort_by_key(|(range, _)| range.after);
        self.0 = out;
    }

    /// The basis of a range by shards whose data have come to the marks `now`: the sessions' lineage and the lowest
    /// marks. None when a part of the range was never repaired, or when marks were forgotten since.
    pub fn base(
        &self,
        range: TokenRange,
        now: &[RepairedWatermark],
    ) -> Option<(u64, Vec<RepairedWatermark>)> {
        let mut marks: Option<Vec<RepairedWatermark>> = None;
        let mut parts: Vec<(i64, u64)> = Vec::new();
        let mut from = range.after;
        for (known, session) in self.0.iter().filter(|(known, _)| known.upto > range.after) {
            if from >= range.upto {
                break;
            }
            let means_something = session.marks.len() == now.len()
                && session.marks.iter().zip(now).all(|(then, now)| then.epoch == now.epoch);
            if known.after > from || !means_something {
                return None;
            }
            from = known.upto.min(range.upto);
            match &mut marks {
                None => marks = Some(session.marks.to_vec()),
                Some(lowest) => {
                    lowest.iter_mut().zip(&*session.marks).for_each(|(low, mark)| *low = (*low).min(*mark));
                }
            }
            match parts.last_mut() {
                Some((upto, id)) if *id == session.id => *upto = from,
                _ => parts.push((from, session.id)),
            }
        }
        if from < range.upto {
            return None;
        }
        let mut text = range.after.to_be_bytes().to_vec();
        for (upto, id) in parts {
            text.extend_from_slice(&upto.to_be_bytes());
            text.extend_from_slice(&id.to_be_bytes());
        }
        Some((xxh3_64(&text), marks?))
    }

    /// By shard the lowest mark of all ranges: every range is past the data below it. Marks that were forgotten do not
    /// count.
    pub fn floor(&self) -> Vec<RepairedWatermark> {
        let Some((_, newest)) = self.0.iter().max_by_key(|(_, session)| session.at) else {
            return Vec::new();
        };
        let lowest = |(shard, mark): (usize, &RepairedWatermark)| {
            let marks = self.0.iter().filter_map(|(_, session)| session.marks.get(shard));
            marks.filter(|other| other.epoch == mark.epoch).min().copied().unwrap_or(*mark)
        };
        newest.marks.iter().enumerate().map(lowest).collect()
    }
}

/// Whether a repair can leave out the earlier data of these nodes, all that take part. Where one of them would have to compare more than
/// half of its data it is not worth it: data that the others have compared already would all be sent to them again.
pub fn build_on(bases: &[Option<Base>]) -> Option<Vec<Vec<RepairedWatermark>>> {
    let lineage = bases.first()?.as_ref()?.lineage;
    let fits = |base: &Base| base.lineage == lineage && base.fresh_bytes <= base.all_bytes / 2;
    bases.iter().map(|base| base.as_ref().filter(|base| fits(base)).map(|base| base.marks.clone())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn session(id: u64, marks: &[(u64, u64)]) -> Session {
        let marks = marks.iter().map(|(epoch, number)| RepairedWatermark { epoch: *epoch, number: *number });
        Session { id, at: id as Seconds, marks: marks.collect() }
    }

    fn range(after: i64, upto: i64) -> TokenRange {
        TokenRange { after, upto }
    }

    fn marks(marks: &[(u64, u64)]) -> Vec<RepairedWatermark> {
        session(0, marks).marks.to_vec()
    }

    #[test]
    fn a_range_builds_on_the_lowest_marks_of_its_sessions() {
        let now = marks(&[(1, 9), (2, 9)]);
        let mut sessions = Sessions::default();
        assert_eq!(sessions.base(range(0, 10), &now), None);
        sessions.insert(range(0, 10), session(1, &[(1, 5), (2, 3)]));
        let whole = sessions.base(range(0, 10), &now).expect("it was repaired");
        assert_eq!(whole.1, marks(&[(1, 5), (2, 3)]));
        assert!(sessions.base(range(2, 7), &now).is_some(), "a part of it");
        assert_eq!(sessions.base(range(-1, 10), &now), None, "more than that");
        assert_eq!(sessions.base(range(0, 11), &now), None, "more than that");
        sessions.insert(range(4, 6), session(2, &[(1, 8), (2, 2)]));
        let mixed = sessions.base(range(0, 10), &now).expect("it was repaired");
        assert_eq!(mixed.1, marks(&[(1, 5), (2, 2)]));
        assert_ne!(mixed.0, whole.0);
        assert_eq!(sessions.floor(), marks(&[(1, 5), (2, 2)]));
        // Another epoch, another number of shards: the marks mean nothing.
        assert_eq!(sessions.base(range(0, 10), &marks(&[(1, 9), (3, 9)])), None);
        assert_eq!(sessions.base(range(0, 10), &marks(&[(1, 9)])), None);
        sessions.insert(range(0, 3), session(3, &[(1, 9), (7, 1)]));
        assert_eq!(sessions.floor(), marks(&[(1, 5), (7, 1)]), "the shard that forgot begins anew");
    }

    #[test]
    fn a_full_repair_where_one_has_another_history_or_too_much_that_is_new() {
        let base = |lineage, fresh_bytes| {
            Some(Base { lineage, marks: marks(&[(1, 1)]), fresh_bytes, all_bytes: 100 })
        };
        assert_eq!(build_on(&[base(7, 0), base(7, 50)]), Some(vec![marks(&[(1, 1)]); 2]));
        assert_eq!(build_on(&[base(7, 0), base(8, 0)]), None);
        assert_eq!(build_on(&[base(7, 0), None]), None);
        assert_eq!(build_on(&[None, base(7, 0)]), None);
        assert_eq!(build_on(&[base(7, 0), base(7, 51)]), None);
        assert_eq!(build_on(&[]), None);
    }

    proptest! {
        /// Two nodes agree on a lineage exactly when every token of the range was repaired last by the same session on both.
        #[test]
        fn the_same_lineage_means_the_same_sessions(
            repairs in prop::collection::vec((0i64..20, 1i64..8, 0u8..8), 1..10),
            asked in (0i64..20, 1i64..8),
        ) {
            let mut nodes = [Sessions::default(), Sessions::default()];
            let mut lists = [[0u64; 40]; 2];
            for (id, (after, len, missed_by)) in (1u64..).zip(repairs) {
                for node in 0..2 {
                    if missed_by == node as u8 {
                        continue;
                    }
                    nodes[node].insert(range(after, after + len), session(id, &[(1, id)]));
                    lists[node][after as usize + 1..=(after + len) as usize].fill(id);
                }
            }
            let (after, upto) = (asked.0, asked.0 + asked.1);
            let now = marks(&[(1, 99)]);
            let bases = [0, 1].map(|node: usize| nodes[node].base(range(after, upto), &now));
            for node in 0..2 {
                let own = &lists[node][after as usize + 1..=upto as usize];
                prop_assert_eq!(bases[node].is_some(), own.iter().all(|id| *id != 0));
                if let Some((_, marks)) = &bases[node] {
                    prop_assert_eq!(marks[0].number, *own.iter().min().unwrap());
                }
                let ranges = nodes[node].ranges();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].0.upto <= pair[1].0.after));
            }
            if let [Some(one), Some(other)] = &bases {
                let same = (after as usize + 1..=upto as usize).all(|token| lists[0][token] == lists[1][token]);
                prop_assert_eq!(one.0 == other.0, same);
            }
        }
    }
}
