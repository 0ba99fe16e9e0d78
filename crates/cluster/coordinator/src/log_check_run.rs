//! Runs checks of logs of changes (`derived_checks`): replays a log, and compares the result with the rows of its base (docs/design/cdc.md, *Verifying*).
//!
//! Base and log are read at ALL, a range of tokens at a time. Of a range all streams that have changes of it are read, of every generation that
//! is still kept; a range whose changes take too much memory is halved. Rows that differ are looked at again after a pause, for writes may be under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cdc::{Divergence, Log, Replay, StreamId, Window, compare, streams_of};
use mutation::{Clustering, DecoratedKey, PartitionUpdate, Row, Seconds, Timestamp};
use replica::{Keys, Partitions, ReadCommand};
use rt::preempt::Pace;
use schema::Table;
use topology::TokenRange;

use crate::Coordinator;
use crate::check_reads::{CheckReads, LOOKS, Stop, straight, with_base};
use crate::derived_checks::{DerivedCheck, DerivedCheckError, FoundDifference, FoundKind};

/// Memory of the changes that are compared at once, in bytes.
const CHANGES_BYTES: usize = 16 << 20;
/// Rows of a log are not compared in the last part of their life, so that none expires meanwhile.
const EXPIRES_SOON_MAX: i64 = 600;
const MICROS: i64 = 1_000_000;

/// A check of a log under way.
pub(crate) struct LogCheckRun {
    pub(crate) reads: CheckReads,
    wanted: DerivedCheck,
    base: Arc<Table>,
    log: Log,
}

/// A row that differs.
struct Found {
    key: DecoratedKey,
    /// None for the static row.
    clustering: Option<Clustering>,
    /// The row of the base; none when there is no live one.
    row: Option<Row>,
    divergence: Divergence,
}

/// A partition of the base whose rows are compared in their order.
struct Walk {
    key: DecoratedKey,
    replayed: Option<PartitionUpdate>,
    /// The first of the replayed rows that has not been compared.
    next: usize,
}

/// One comparison of a range.
struct Comparison<'a> {
    table: &'a Table,
    window: Window,
    now: Seconds,
    found: Vec<Found>,
}

impl LogCheckRun {
    /// # Errors
    /// When there is no such log, its base is gone, or it has no values.
    pub(crate) fn new(coordinator: &Coordinator, wanted: DerivedCheck) -> Result<Self, DerivedCheckError> {
        let schema = coordinator.schema();
        let found = with_base(&schema, wanted.derived).filter(|(table, _)| table.is_cdc_log());
        let (table, base) = found.ok_or(DerivedCheckError::NoLog)?;
        if base.options.cdc.keys_only {
            return Err(DerivedCheckError::KeysOnly);
        }
        let log = Log::new(base, table.clone()).map_err(|_| DerivedCheckError::NoLog)?;
        Ok(Self { reads: CheckReads::new(coordinator, table), wanted, base: base.clone(), log })
    }

    /// Goes over all tokens.
    pub(crate) async fn all(&self) -> Result<(), Stop> {
        let parts = self.parts(&self.reads.ranges(&self.base, self.wanted.tokens)?);
        self.reads.check.status_mut().parts = parts.len();
        for part in parts {
            // The first at the end.
            let mut ranges = vec![part];
            while let Some(range) = ranges.pop() {
                let width = i128::from(range.upto) - i128::from(range.after);
                let bytes_max = if width == 1 { usize::MAX } else { CHANGES_BYTES };
                match self.differences(range, bytes_max, true).await? {
                    Some(found) => self.settle(range, found).await?,
                    None => {
                        assert!(width > 1, "one token is not halved");
                        let middle = (i128::from(range.after) + width / 2) as i64;
                        ranges.push(TokenRange { after: middle, upto: range.upto });
                        ranges.push(TokenRange { after: range.after, upto: middle });
                    }
                }
            }
            self.reads.check.part_done(part.upto);
        }
        Ok(())
    }

    /// The ranges, cut where the streams of now are.
    fn parts(&self, ranges: &[TokenRange]) -> Vec<TokenRange> {
        let schema = self.reads.coordinator.schema();
        let vnodes = schema.cdc_generations().last().map_or(&[][..], |generation| &generation.vnodes);
        let mut parts = Vec::new();
        assert!(vnodes.windows(2).all(|two| two[0].upto < two[1].upto), "ranges of streams rise");
        for range in straight(ranges) {
            let TokenRange { mut after, upto } = range;
            for vnode in vnodes.iter().filter(|vnode| range.after < vnode.upto && vnode.upto < upto) {
                parts.push(TokenRange { after, upto: vnode.upto });
                after = vnode.upto;
            }
            parts.push(TokenRange { after, upto });
        }
        assert!(parts.windows(2).all(|two| two[0].upto <= two[1].after), "parts are ordered");
        parts
    }

    /// The timestamps of which the log is complete, if nothing was lost.
    fn window(&self) -> Window {
        let context = self.reads.coordinator.context();
        let now = context.rt().wall_micros();
        let (log, schema) = (self.log.table(), self.reads.coordinator.schema());
        let ttl = i64::from(self.base.options.cdc.ttl);
        let kept = match ttl {
            0 => i64::MIN,
            ttl => now - (ttl - (ttl / 10).min(EXPIRES_SOON_MAX)) * MICROS,
        };
        // The id of a log has the time at which it was made.
        let made = types::uuid::unix_micros(&log.id.0).filter(|made| *made <= now).unwrap_or(i64::MIN);
        let begun = schema.cdc_generations().first().map_or(now, |generation| generation.start_micros());
        let truncated = [self.base.id, log.id].map(|table| context.replica().truncated_at(table));
        let since = truncated.into_iter().map(|at| at.saturating_add(1)).fold(self.wanted.since, i64::max);
        Window { since: since.max(kept).max(made).max(begun), upto: now }
    }

    /// The streams with changes of a range since a timestamp.
    fn streams(&self, range: TokenRange, since: Timestamp) -> Vec<StreamId> {
        let schema = self.reads.coordinator.schema();
        let generations = schema.cdc_generations();
        let mut streams = Vec::new();
        for (at, generation) in generations.iter().enumerate() {
            if generations.get(at + 1).is_some_and(|next| next.start_micros() <= since) {
                continue;
            }
            for (place, vnode) in generation.vnodes.iter().enumerate() {
                let after = generation.after(place);
                let (from_below, from_above) = (after < range.upto, range.after < vnode.upto);
                // The first goes around the ring's end.
                let meets = match after < vnode.upto {
                    true => from_below && from_above,
                    false => from_below || from_above,
                };
                if meets {
                    streams.extend(streams_of(generation, place));
                }
            }
        }
        streams
    }

    /// The rows of a range that differ; none when its changes take more memory than is allowed.
    async fn differences(
        &self,
        range: TokenRange,
        bytes_max: usize,
        counts: bool,
    ) -> Result<Option<Vec<Found>>, Stop> {
        let (window, now) = (self.window(), self.reads.seconds());
        let Some((mut replayed, rows)) = self.replayed(range, window.since, bytes_max).await? else {
            return Ok(None);
        };
        let mut comparison = Comparison { table: &self.base, window, now, found: Vec::new() };
        let mut command = CheckReads::page_of(&self.base, range);
        let (mut walk, mut base_rows, mut pace): (Option<Walk>, u64, Pace) = (None, 0, Pace::new());
        loop {
            let began = self.reads.now();
            command.now = now;
            let page = self.reads.read(&command).await?;
            for partition in &page.partitions {
                if walk.as_ref().is_none_or(|walk| walk.key != partition.key) {
                    let next = Walk {
                        key: partition.key.clone(),
                        replayed: replayed.remove(&partition.key),
                        next: 0,
                    };
                    if let Some(done) = walk.replace(next) {
                        comparison.rest(done);
                    }
                    let row = partition.static_row.as_ref();
                    comparison.compare(walk.as_ref().expect("just set"), None, row);
                }
                let walk = walk.as_mut().expect("just set");
                for row in &partition.rows {
                    comparison.row(walk, row);
                    base_rows += 1;
                    pace.step().await;
                }
            }
            self.reads.pace(began, &page, self.wanted.rows_per_second).await;
            let Some(more) = page.more else { break };
            command.resume = Some(more);
        }
        if let Some(done) = walk {
            comparison.rest(done);
        }
        for (key, update) in replayed {
            let walk = Walk { key, replayed: Some(update), next: 0 };
            comparison.compare(&walk, None, None);
            comparison.rest(walk);
            pace.step().await;
        }
        if counts {
            let mut status = self.reads.check.status_mut();
            status.base_rows += base_rows;
            status.derived_rows += rows;
        }
        Ok(Some(comparison.found))
    }

    /// The changes of a range since a timestamp, and how many rows of the log have them; none when they take more memory than is allowed.
    async fn replayed(
        &self,
        range: TokenRange,
        since: Timestamp,
        bytes_max: usize,
    ) -> Result<Option<(BTreeMap<DecoratedKey, PartitionUpdate>, u64)>, Stop> {
        let mut replay = Replay::new(&self.log, &self.base);
        let (mut count, mut pace) = (0, Pace::new());
        let is_wanted = |key: &DecoratedKey| range.after < key.token && key.token <= range.upto;
        for stream in self.streams(range, since) {
            let key = DecoratedKey::new(Bytes::copy_from_slice(&stream.0));
            let keys = Partitions::Keys(Keys::from_elem(key, 1));
            let mut command =
                CheckReads::paged(ReadCommand::all_of(self.log.table().clone(), keys, self.reads.seconds()));
            loop {
                let began = self.reads.now();
                let page = self.reads.read(&command).await?;
                let rows = page.partitions.iter().flat_map(|partition| &partition.rows);
                for row in rows.filter(|row| row.liveness.timestamp >= since) {
                    let before = replay.bytes();
                    let read = replay.push(row, is_wanted);
                    read.map_err(|error| Stop::Failed(error.to_string()))?;
                    count += u64::from(replay.bytes() > before);
                    pace.step().await;
                }
                if replay.bytes() > bytes_max {
                    return Ok(None);
                }
                self.reads.pace(began, &page, self.wanted.rows_per_second).await;
                let Some(more) = page.more else { break };
                command.resume = Some(more);
            }
        }
        Ok(Some((replay.finish(), count)))
    }

    /// Looks again at rows that differed, and counts those that still do although nobody has written to them.
    async fn settle(&self, range: TokenRange, mut differing: Vec<Found>) -> Result<(), Stop> {
        for _ in 0..LOOKS {
            if differing.is_empty() {
                return Ok(());
            }
            self.reads.coordinator.context().rt().sleep(self.wanted.pause).await;
            let again = self.differences(range, usize::MAX, false).await?.unwrap_or_default();
            let mut again: BTreeMap<_, _> = again
                .into_iter()
                .map(|found| ((found.key.clone(), found.clustering.clone()), found))
                .collect();
            let mut changed = Vec::new();
            for before in differing {
                let place = (before.key, before.clustering);
                match again.remove(&place) {
                    None => {}
                    Some(found) if found.row == before.row => self.note(found),
                    Some(found) => changed.push(found),
                }
            }
            differing = changed;
        }
        self.reads.check.status_mut().unsettled += differing.len() as u64;
        Ok(())
    }

    fn note(&self, found: Found) {
        let mut status = self.reads.check.status_mut();
        match found.divergence {
            Divergence::Unlogged => status.unlogged += 1,
            Divergence::Unapplied => status.unapplied += 1,
        }
        drop(status);
        let listed = FoundDifference {
            kind: FoundKind::Log(found.divergence),
            key: found.key,
            clustering: found.clustering.unwrap_or_else(Clustering::empty),
            repaired: false,
        };
        self.reads.check.list(listed, self.wanted.listed_max);
    }
}

impl Comparison<'_> {
    /// Compares the next row of the base in a partition, and the replayed rows before it, which the base does not have.
    fn row(&mut self, walk: &mut Walk, row: &Row) {
        self.absent(walk, Some(&row.clustering));
        self.compare(walk, Some(&row.clustering), Some(row));
        let replayed = walk.replayed.as_ref().and_then(|update| update.rows().get(walk.next));
        if replayed.is_some_and(|replayed| replayed.clustering == row.clustering) {
            walk.next += 1;
        }
    }

    /// Compares the replayed rows that are left of a partition.
    fn rest(&mut self, mut walk: Walk) {
        self.absent(&mut walk, None);
    }

    /// Compares replayed rows that the base does not have, up to one that it has.
    fn absent(&mut self, walk: &mut Walk, upto: Option<&Clustering>) {
        let replayed = walk.replayed.as_ref().map_or(0, |update| update.rows().len());
        assert!(walk.next <= replayed, "a replayed row is compared once");
        while let Some(row) = walk.replayed.as_ref().and_then(|update| update.rows().get(walk.next))
            && upto.is_none_or(|upto| row.clustering < *upto)
        {
            let clustering = row.clustering.clone();
            self.compare(walk, Some(&clustering), None);
            walk.next += 1;
        }
    }

    fn compare(&mut self, walk: &Walk, clustering: Option<&Clustering>, row: Option<&Row>) {
        let replayed = walk.replayed.as_ref();
        if let Some(divergence) = compare(self.table, replayed, clustering, row, self.window, self.now) {
            let (key, clustering) = (walk.key.clone(), clustering.cloned());
            self.found.push(Found { key, clustering, row: row.cloned(), divergence });
        }
    }
}
