//! Range scans over all shards of a node: each shard reads its part in ring order, and the parts are merged by token.
//!
//! Shards own interleaved slices of the ring, so a page needs a little of each. Every shard is asked for its share of
//! the page at once, and again only when its share runs out before the page is full.

use std::collections::VecDeque;

use futures_util::future::try_join_all;
use mutation::{Row, Seconds};

use crate::{Limits, PartitionResult, ReadCommand, ReadPage, Replica, ReplicaError, Resume};

/// Rows asked of a shard beyond its even share, because shares are never quite even.
const SHARE_SLACK_ROWS: u64 = 16;

#[derive(Default)]
struct Cursor {
    partitions: VecDeque<PartitionResult>,
    more: Option<Resume>,
}

impl Cursor {
    fn take(&mut self, page: ReadPage) -> u64 {
        self.partitions.extend(page.partitions);
        self.more = page.more;
        page.tombstones
    }
}

/// Reads one page of a range over all shards.
pub(crate) async fn scan(replica: &Replica, command: &ReadCommand) -> Result<ReadPage, ReplicaError> {
    let shards = replica.shard_count();
    let share = (command.limits.rows / u64::from(shards)).saturating_add(SHARE_SLACK_ROWS);
    let share = Limits { rows: share.min(command.limits.rows), ..command.limits };
    let ask = |shard: u16, resume: Option<Resume>| {
        let command = ReadCommand { limits: share, resume, ..command.clone() };
        async move { replica.read_on(shard, &command).await }
    };
    let first = (0..shards).map(|shard| ask(shard, command.resume.clone()));
    let mut tombstones = 0;
    let mut cursors: Vec<Cursor> = Vec::with_capacity(usize::from(shards));
    for page in try_join_all(first).await? {
        let mut cursor = Cursor::default();
        tombstones += cursor.take(page);
        cursors.push(cursor);
    }
    let mut merged = Merged::new(command);
    loop {
        for shard in 0..shards {
            let cursor = &mut cursors[usize::from(shard)];
            while cursor.partitions.is_empty()
                && let Some(resume) = cursor.more.take()
            {
                tombstones += cursor.take(ask(shard, Some(resume)).await?);
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
    }
    let left = cursors.iter().any(|cursor| !cursor.partitions.is_empty() || cursor.more.is_some());
    Ok(merged.finish(left, tombstones))
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
            partition.truncate(&self.command.table, keep, self.command.reversed);
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
