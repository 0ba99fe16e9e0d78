//! The log of a table whose changes are captured: the rows that it gives when it is replayed. The table is that of the views.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::models::views::BaseRow;

const UPDATE: u8 = 1;
const INSERT: u8 = 2;
const ROW_DELETE: u8 = 3;
const PARTITION_DELETE: u8 = 4;

/// One row of the log.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
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

/// Decodes a row of the log: time, operation, `p`, `c`, and `v` and `w`, each with its deletion; none when it is no such row.
pub(crate) fn logged(row: &[Option<Vec<u8>>]) -> Option<Logged> {
    let [time, operation, p, c, v, v_gone, w, w_gone] = row else { return None };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: u64, operation: u8, c: Option<i32>, cells: [Option<Option<i32>>; 2]) -> Logged {
        Logged { at, operation, p: 1, c, cells }
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
}
