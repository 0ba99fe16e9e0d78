//! The log of a table whose changes are captured: the rows that it gives when it is replayed. The table is that of the views.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::models::views::BaseRow;

const UPDATE: u8 = 1;
const INSERT: u8 = 2;
const ROW_DELETE: u8 = 3;
const PARTITION_DELETE: u8 = 4;

/// 1970 in ticks of 100 ns since 1582, as times of UUIDs count.
const UNIX_EPOCH_TICKS: u64 = 0x01B2_1DD2_1381_4000;

/// A generation of streams, as readers of the log find it: its start in milliseconds since 1970, and the ids of its streams.
pub(crate) type Generation = (i64, BTreeSet<Vec<u8>>);

/// One row of the log.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    /// Its stream's id.
    stream: Vec<u8>,
    /// Its time's ticks.
    at: u64,
    operation: u8,
    p: i32,
    c: Option<i32>,
    /// `v` and `w`: a value, or that there is none any more.
    cells: [Option<Option<i32>>; 2],
}

/// The latest that was said of something: a deletion wins over a value of its time, and a greater value over a lesser.
type Latest = Option<(u64, bool, i32)>;

/// The content of a log about one row.
#[derive(Clone, Debug, Default)]
struct Replayed {
    mark: Option<u64>,
    deleted: Option<u64>,
    cells: [Latest; 2],
}

/// The rows that a log gives when all of it is done again.
fn replay(log: &[Logged]) -> BTreeSet<BaseRow> {
    let mut rows: BTreeMap<(i32, i32), Replayed> = BTreeMap::new();
    let mut partitions: BTreeMap<i32, u64> = BTreeMap::new();
    for change in log {
        let Some(c) = change.c else {
            if change.operation == PARTITION_DELETE {
                let at = partitions.entry(change.p).or_default();
                *at = change.at.max(*at);
            }
            continue;
        };
        let row = rows.entry((change.p, c)).or_default();
        match change.operation {
            INSERT => row.mark = row.mark.max(Some(change.at)),
            ROW_DELETE => row.deleted = row.deleted.max(Some(change.at)),
            _ => {}
        }
        if matches!(change.operation, INSERT | UPDATE) {
            for (cell, said) in row.cells.iter_mut().zip(&change.cells) {
                let said = said.map(|value| (change.at, value.is_none(), value.unwrap_or_default()));
                *cell = (*cell).max(said);
            }
        }
    }
    let live = rows.iter().filter_map(|((p, c), row)| {
        let deleted = row.deleted.max(partitions.get(p).copied());
        let is_later = |at: u64| deleted.is_none_or(|deleted| at > deleted);
        let [v, w] = row.cells.map(|cell| cell.filter(|(at, gone, _)| is_later(*at) && !gone).map(|it| it.2));
        let is_there = row.mark.is_some_and(is_later) || v.is_some() || w.is_some();
        is_there.then(|| vec![Some(*p), Some(*c), v, w])
    });
    live.collect()
}

/// Decodes a row of the log: stream, time, operation, `p`, `c`, and `v` and `w`, each with its deletion; none when it is no such row.
pub(crate) fn logged(row: &[Option<Vec<u8>>]) -> Option<Logged> {
    let [stream, time, operation, p, c, v, v_gone, w, w_gone] = row else { return None };
    let number = |cell: &Option<Vec<u8>>| {
        let bytes = cell.as_deref().and_then(|bytes| bytes.try_into().ok());
        bytes.map(i32::from_be_bytes)
    };
    let cell = |value, gone: &Option<Vec<u8>>| match gone {
        Some(_) => Some(None),
        None => number(value).map(Some),
    };
    let time = time.as_deref()?;
    let part = |at: usize, len: usize| {
        let bytes = time.get(at..at + len)?;
        Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    Some(Logged {
        stream: stream.clone()?,
        at: part(6, 2)? % 4096 << 48 | part(4, 2)? << 32 | part(0, 4)?,
        operation: *operation.as_deref()?.first()?,
        p: number(p)?,
        c: number(c),
        cells: [cell(v, v_gone), cell(w, w_gone)],
    })
}

/// The difference between a table and the replay of its log; none if there is no difference.
pub(crate) fn problem(base: &[BaseRow], log: &[Logged]) -> Option<String> {
    let (base, replayed) = (base.iter().cloned().collect::<BTreeSet<_>>(), replay(log));
    if let Some(row) = base.difference(&replayed).next() {
        return Some(format!("does not give {row:?}"));
    }
    replayed.difference(&base).next().map(|row| format!("gives {row:?}, which is not there"))
}

/// The ids of a `set<blob>`; none when it is not one.
pub(crate) fn stream_ids(mut set: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let number = |set: &mut &[u8]| {
        let (number, rest) = set.split_first_chunk::<4>()?;
        *set = rest;
        usize::try_from(i32::from_be_bytes(*number)).ok()
    };
    let mut ids = BTreeSet::new();
    for _ in 0..number(&mut set)? {
        let len = number(&mut set)?;
        let (id, rest) = set.split_at_checked(len)?;
        ids.insert(id.to_vec());
        set = rest;
    }
    set.is_empty().then_some(ids)
}

/// A change that is missed by a reader of the streams of each generation, from its start to that of the next; none if it finds all. Changes
/// may stand in other streams, too: a node that is cut off logs by the generation that it knows.
pub(crate) fn misplaced(log: &[Logged], generations: &[Generation]) -> Option<String> {
    let change = |row: &Logged| (row.at, row.operation, row.p, row.c);
    let is_found = |row: &&Logged| {
        let millis = i64::try_from(row.at.saturating_sub(UNIX_EPOCH_TICKS) / 10_000).unwrap_or(i64::MAX);
        let begun = generations.iter().filter(|(start, _)| *start <= millis).max_by_key(|(start, _)| *start);
        begun.is_some_and(|(_, streams)| streams.contains(&row.stream))
    };
    let found: BTreeSet<_> = log.iter().filter(is_found).map(change).collect();
    let missed = log.iter().find(|row| !found.contains(&change(row)))?;
    Some(format!("has {missed:?} in no stream of the generation of its time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: u64, operation: u8, c: Option<i32>, cells: [Option<Option<i32>>; 2]) -> Logged {
        Logged { stream: vec![1], at, operation, p: 1, c, cells }
    }

    #[test]
    fn missing_and_surplus_rows_of_a_log_are_found() {
        let insert = change(1, INSERT, Some(2), [Some(Some(3)), None]);
        let update = change(2, UPDATE, Some(2), [None, Some(Some(4))]);
        let unset = change(3, UPDATE, Some(2), [Some(None), None]);
        let row = vec![Some(1), Some(2), None, Some(4)];
        let all = [unset, insert, update];
        assert_eq!(problem(std::slice::from_ref(&row), &all), None);
        assert!(problem(std::slice::from_ref(&row), &all[1..]).is_some(), "a deletion of a cell is missing");
        assert!(problem(std::slice::from_ref(&row), &all[..2]).is_some(), "a value is missing");
        assert!(problem(&[], &all).is_some());
        let deletions =
            [change(3, ROW_DELETE, Some(2), [None; 2]), change(3, PARTITION_DELETE, None, [None; 2])];
        for deletion in deletions {
            let mut deleted = all.to_vec();
            deleted.push(deletion);
            assert_eq!(problem(&[], &deleted), None);
            deleted.push(change(4, INSERT, Some(2), [None; 2]));
            assert_eq!(problem(&[vec![Some(1), Some(2), None, None]], &deleted), None, "and comes again");
        }
        assert!(problem(&[], &[]).is_none());
    }

    #[test]
    fn changes_in_streams_of_another_generation_are_found() {
        let second = |at: u64| UNIX_EPOCH_TICKS + at * 10_000_000;
        let generations = [(2_000, BTreeSet::from([vec![2]])), (1_000, BTreeSet::from([vec![1]]))];
        let early = change(second(1), INSERT, Some(1), [None; 2]);
        let late = Logged { stream: vec![2], ..change(second(2), INSERT, Some(1), [None; 2]) };
        let former = Logged { stream: vec![1], ..late.clone() };
        assert_eq!(misplaced(&[early.clone(), late.clone()], &generations), None);
        assert!(misplaced(&[early, former.clone()], &generations).is_some());
        assert_eq!(misplaced(&[former, late], &generations), None, "it is in the right one, too");
    }

    #[test]
    fn sets_of_streams_are_decoded() {
        let set = [0, 0, 0, 2, 0, 0, 0, 1, 7, 0, 0, 0, 0];
        assert_eq!(stream_ids(&set), Some(BTreeSet::from([vec![7], vec![]])));
        assert_eq!(stream_ids(&set[..12]), None);
        assert_eq!(stream_ids(&[set.as_slice(), &[0]].concat()), None);
    }
}
