//! Range scans over all shards of a node: each shard reads its part in ring order, and the parts are merged by token.
//!
//! Shards own interleaved slices of the ring, so a page needs a little of each. Every shard is queried for its share of
//! the page at once, and again only when its share runs out before the page is full: then for twice as much each
//! time, because the page's rows lie mostly with it. Rows that a shard has read beyond the page's end are dropped, so a
//! share is little more than the shard's part of rows and bytes.

use std::collections::VecDeque;

use futures_util::future::try_join_all;
use mutation::{Row, Seconds};
use rt::preempt::Pace;

use crate::{Limits, PartitionResult, ReadCommand, ReadPage, Resume};

/// The least that a shard is queried for, bytes: less costs as much.
const SHARE_BYTES_MIN: usize = 4 << 10;

/// The rows that one shard has read.
struct Cursor {
    partitions: VecDeque<PartitionResult>,
    more: Option<Resume>,
    /// How much to query the shard for next.
    share: Limits,
}

impl Cursor {
    fn take(&mut self, page: ReadPage) -> u64 {
        self.partitions.extend(page.partitions);
        self.more = page.more;
        page.tombstones
    }
}

/// A shard's part of a page, and some more because parts are never quite even: of so few rows that a shard has hardly any of
/// them, one or two.
fn share_of(limits: Limits, shards: u16) -> Limits {
    let part = limits.rows / u64::from(shards);
    let rows = part.saturating_add(2 * part.isqrt() + 1).min(limits.rows);
    let part = limits.bytes / usize::from(shards);
    let bytes = part.saturating_add(part / 4).max(SHARE_BYTES_MIN).min(limits.bytes);
    Limits { rows, bytes, ..limits }
}

/// Reads one page of a range over so many shards, each of which `read` reads.
pub(crate) async fn scan<E>(
    command: &ReadCommand,
    shards: u16,
    read: impl AsyncFn(u16, ReadCommand) -> Result<ReadPage, E>,
) -> Result<ReadPage, E> {
    let query = |shard: u16, resume: Option<Resume>, limits: Limits| {
        read(shard, ReadCommand { limits, resume, ..command.clone() })
    };
    let share = share_of(command.limits, shards);
    let first = (0..shards).map(|shard| query(shard, command.resume.clone(), share));
    let mut tombstones = 0;
    let mut truncated_at = i64::MAX;
    let mut cursors: Vec<Cursor> = Vec::with_capacity(usize::from(shards));
    for page in try_join_all(first).await? {
        // For a later page a shard may have truncated more: the first answer is the earliest.
        truncated_at = truncated_at.min(page.truncated_at);
        let mut cursor = Cursor { partitions: VecDeque::new(), more: None, share };
        tombstones += cursor.take(page);
        cursors.push(cursor);
    }
    let mut merged = Merged::new(command);
    let mut pace = Pace::new();
    loop {
        for shard in 0..shards {
            let cursor = &mut cursors[usize::from(shard)];
            while cursor.partitions.is_empty()
                && let Some(resume) = cursor.more.take()
            {
                let left = merged.left();
                let Limits { rows, bytes, .. } = cursor.share;
                let (rows, bytes) =
                    (rows.saturating_mul(2).min(left.rows), bytes.saturating_mul(2).min(left.bytes));
                cursor.share = Limits { rows, bytes, ..left };
                tombstones += cursor.take(query(shard, Some(resume), cursor.share).await?);
            }
        }
        let heads = cursors.iter().enumerate().filter_map(|(i, c)| Some((&c.partitions.front()?.key, i)));
        let Some((_, next)) = heads.min() else {
            break;
        };
        let partition = cursors[next].partitions.pop_front().expect("it has a head");
        if merged.push(partition) {
            break;
        }
        pace.step().await;
    }
    let left = cursors.iter().any(|cursor| !cursor.partitions.is_empty() || cursor.more.is_some());
    Ok(ReadPage { truncated_at, ..merged.finish(left, tombstones) })
}

/// The page so far.
struct Merged<'a> {
    command: &'a ReadCommand,
    page: ReadPage,
    rows: u64,
    bytes: usize,
    /// Rows of the last partition that earlier pages returned.
    rows_before: u64,
    cut: bool,
}

impl<'a> Merged<'a> {
    fn new(command: &'a ReadCommand) -> Self {
        Self { command, page: ReadPage::default(), rows: 0, bytes: 0, rows_before: 0, cut: false }
    }

    /// The room that the page still has; one row and one byte at least.
    fn left(&self) -> Limits {
        let limits = self.command.limits;
        let rows = limits.rows.saturating_sub(self.rows).max(1);
        let bytes = limits.bytes.saturating_sub(self.bytes).max(1);
        Limits { rows, bytes, ..limits }
    }

    /// Adds the next partition, or the next part of the last one; whether the page is full.
    fn push(&mut self, mut partition: PartitionResult) -> bool {
        let limits = &self.command.limits;
        let continues = self.page.partitions.last().is_some_and(|last| last.key == partition.key);
        if !continues {
            self.rows_before = match &self.command.resume {
                Some(resume) if resume.key == partition.key => resume.rows_in_partition,
                _ => 0,
            };
        }
        let now = self.command.now;
        if let Some(keep) = rows_until(&partition.rows, limits.rows - self.rows, now)
            && keep < partition.rows.len()
        {
            partition.truncate(keep, self.command.reversed);
            self.cut = true;
        }
        // The static row counts once, with the page that it is returned in.
        self.rows += if continues || self.rows_before > 0 {
            partition.live_rows(now)
        } else {
            partition.row_count(now)
        };
        self.bytes += partition.rows.iter().map(Row::memory_size).sum::<usize>();
        if continues {
            let last = self.page.partitions.last_mut().expect("it continues the last one");
            last.rows.append(&mut partition.rows);
            for range in partition.range_tombstones.iter() {
                last.range_tombstones.insert(range.clone());
            }
        } else {
            self.page.partitions.push(partition);
        }
        self.rows >= limits.rows || self.bytes >= limits.bytes
    }

    fn finish(self, left: bool, tombstones: u64) -> ReadPage {
        let mut page = self.page;
        page.tombstones = tombstones;
        if left || self.cut {
            page.more = page.partitions.last().map(|last| {
                let rows_in_partition = self.rows_before + last.live_rows(self.command.now);
                let done = rows_in_partition >= self.command.limits.rows_per_partition
                    && !self.command.form.is_unbroken();
                // A static row that is returned alone ends its partition: its rows have been seen, and are dead.
                let alone = rows_in_partition == 0 && last.row_count(self.command.now) > 0;
                let place = last.rows.last().filter(|_| !done && !alone);
                let clustering = place.map(|row| row.clustering.clone());
                Resume { key: last.key.clone(), clustering, rows_in_partition }
            });
        }
        page
    }
}

/// How many of `rows` there are up to the one that makes `live` live ones; none when there are fewer.
fn rows_until(rows: &[Row], live: u64, now: Seconds) -> Option<usize> {
    if (rows.len() as u64) < live {
        return None;
    }
    let mut counted = 0;
    rows.iter()
        .position(|row| {
            counted += u64::from(row.is_live(now));
            counted >= live
        })
        .map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use mutation::{DecoratedKey, Fragment, PartitionRange, RingPosition};
    use testkit::data::{clustering, table};

    use super::*;
    use crate::Partitions;
    use crate::page::{PageBuilder, Progress};

    /// Shards whose rows are known, and how many rows they have handed over.
    struct Shards {
        parts: Vec<Vec<PartitionResult>>,
        rows: Cell<u64>,
        queries: Cell<u64>,
    }

    fn row(n: i32) -> Row {
        let mut row = Row::new(clustering(&table(), n));
        row.liveness.timestamp = 1;
        row
    }

    impl Shards {
        fn new(shards: usize, partitions: i32, rows_of: impl Fn(i32) -> i32) -> Self {
            let mut parts: Vec<Vec<PartitionResult>> = vec![Vec::new(); shards];
            for pk in 0..partitions {
                let key = DecoratedKey::new(Bytes::copy_from_slice(&pk.to_be_bytes()));
                let shard = (key.token as u64 >> 7) as usize % shards;
                let rows = (0..rows_of(pk)).map(row).collect();
                parts[shard].push(PartitionResult { rows, ..PartitionResult::new(key) });
            }
            parts.iter_mut().for_each(|part| part.sort_by(|a, b| a.key.cmp(&b.key)));
            Self { parts, rows: Cell::new(0), queries: Cell::new(0) }
        }

        /// A page as a shard reads it.
        fn read(&self, shard: u16, command: &ReadCommand) -> ReadPage {
            self.queries.set(self.queries.get() + 1);
            let mut page = PageBuilder::new(command);
            let mut full = false;
            for partition in &self.parts[usize::from(shard)] {
                let mut slices = command.slices.clone();
                if let Some(resume) = &command.resume {
                    match &resume.clustering {
                        Some(last) if resume.key == partition.key => {
                            page.resume(partition.key.clone(), resume.rows_in_partition);
                            slices = slices.after(last, false);
                        }
                        _ if RingPosition::AfterKey(resume.key.clone()).is_before(&partition.key) => {}
                        _ => continue,
                    }
                }
                let start =
                    Fragment::PartitionStart { key: partition.key.clone(), deletion: partition.deletion };
                let rows = partition.rows.iter().filter(|row| slices.contains(&row.clustering));
                let rows = rows.cloned().map(Fragment::Row);
                for fragment in std::iter::once(start).chain(rows).chain([Fragment::PartitionEnd]) {
                    self.rows.set(self.rows.get() + u64::from(matches!(fragment, Fragment::Row(_))));
                    if page.push(fragment) == Progress::Full {
                        full = true;
                        break;
                    }
                }
                if full {
                    break;
                }
            }
            page.finish()
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("nothing waits"),
        }
    }

    /// All rows in pages of these limits; most rows read for one returned, and the queries.
    fn all(shards: &Shards, limits: Limits) -> (Vec<(i64, Row)>, f64, u64) {
        let whole = Partitions::Range(PartitionRange::all());
        let mut command = ReadCommand { limits, ..ReadCommand::all_of(table(), whole, 100) };
        let mut all = Vec::new();
        loop {
            let count = shards.parts.len() as u16;
            let page: Result<ReadPage, ()> =
                now(scan(&command, count, async |shard, command| Ok(shards.read(shard, &command))));
            let page = page.expect("it cannot fail");
            for partition in page.partitions {
                all.extend(partition.rows.into_iter().map(|row| (partition.key.token, row)));
            }
            command.resume = page.more;
            if command.resume.is_none() {
                break;
            }
        }
        let factor = shards.rows.get() as f64 / all.len() as f64;
        (all, factor, shards.queries.get())
    }

    fn expected(shards: &Shards) -> Vec<(i64, Row)> {
        let mut parts: Vec<&PartitionResult> = shards.parts.iter().flatten().collect();
        parts.sort_by(|a, b| a.key.cmp(&b.key));
        parts.iter().flat_map(|part| part.rows.iter().map(|row| (part.key.token, row.clone()))).collect()
    }

    #[test]
    fn a_scan_reads_little_more_than_it_returns() {
        let limits = |rows, bytes| Limits { rows, bytes, ..Limits::NONE };
        // Pages that bytes end, that rows end, and pages of few rows, over 64 shards.
        for (limits, most) in [
            (limits(u64::MAX, 1 << 20), 2.0),
            (limits(5_000, 1 << 20), 2.0),
            (limits(1_000, usize::MAX), 2.0),
            (limits(100, 1 << 20), 4.0),
        ] {
            let shards = Shards::new(64, 40_000, |_| 1);
            let (all, factor, queries) = all(&shards, limits);
            println!("{limits:?}: {factor:.2} rows read for one returned, {queries} queries");
            assert!(all == expected(&shards), "{limits:?}: other rows");
            assert!(factor < most, "{limits:?}: {factor} rows read for one returned");
        }
    }

    #[test]
    fn a_large_partition_takes_few_queries() {
        let shards = Shards::new(16, 40, |pk| if pk == 7 { 20_000 } else { 1 });
        let limits = Limits { rows: 20_000, bytes: usize::MAX, ..Limits::NONE };
        let (all, factor, queries) = all(&shards, limits);
        assert!(all == expected(&shards), "other rows");
        assert!(factor < 2.0 && queries < 64, "{factor} rows read for one returned, {queries} queries");
    }
}
