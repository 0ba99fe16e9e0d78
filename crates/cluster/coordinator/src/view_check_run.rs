//! Runs checks of materialized views (`derived_checks`): compares views with their bases over the cluster, and repairs them on request (docs/design/views.md).
//!
//! Both tables are read at ALL, range by range of tokens: the rows of the base must be in the view, and those of the view follow from
//! the base. Differences are checked again after a pause, for writes may be under way. A check holds a page of rows at a
//! time, at most so many rows a second, and can continue where another one ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use mutation::{Clustering, DecoratedKey, PartitionUpdate, Row, RowRange, Slices};
use replica::{Keys, Limits, Partitions, ReadCommand, ReadPage};
use schema::Table;
use topology::TokenRange;
use views::{Difference, View};

use crate::Coordinator;
use crate::check_reads::{CheckReads, LOOKS, Stop, TIMEOUT, straight, with_base};
use crate::derived_checks::{DerivedCheck, DerivedCheckError, FoundDifference, FoundKind};
use crate::logged::{Batches, Delivery};

/// Places whose rows, of the base and of the view, are held and compared at once.
const COMPARED_AT_ONCE: usize = 64;
/// One read of such rows.
const ROWS: Limits = Limits { rows: COMPARED_AT_ONCE as u64, rows_per_partition: u64::MAX, bytes: 1 << 20 };
/// Partitions whose rows are read at once.
const PARTITIONS_AT_ONCE: usize = 8;
/// Parts of the ring, at least, after each of which a check can be continued.
const PARTS_MIN: usize = 256;

/// A place of the view, its partition's key and its row's.
type Place = (DecoratedKey, Clustering);

/// The rows that were read for a place of the view.
struct Look {
    place: Place,
    /// The base row that a row of that place follows from, wherever it is in the view.
    base: Option<Row>,
    /// The row that is to be there.
    expected: Option<Row>,
    /// The row that is there.
    found: Option<Row>,
    difference: Option<Difference>,
}

/// A check of a view under way.
pub(crate) struct ViewCheckRun {
    pub(crate) reads: CheckReads,
    wanted: DerivedCheck,
    view: View,
    base: Arc<Table>,
}

impl ViewCheckRun {
    /// # Errors
    /// When there is no such view.
    pub(crate) fn new(coordinator: &Coordinator, wanted: DerivedCheck) -> Result<Self, DerivedCheckError> {
        let schema = coordinator.schema();
        let found = with_base(&schema, wanted.derived).filter(|(table, _)| table.is_view());
        let (table, base) = found.ok_or(DerivedCheckError::NoView)?;
        let view = View::new(base, table.clone()).map_err(|_| DerivedCheckError::NoView)?;
        Ok(Self { reads: CheckReads::new(coordinator, table), wanted, view, base: base.clone() })
    }

    /// Goes over all tokens.
    pub(crate) async fn all(&self) -> Result<(), Stop> {
        let parts = parts(&self.reads.ranges(&self.base, self.wanted.tokens)?);
        self.reads.check.status_mut().parts = parts.len();
        for part in parts {
            self.table(&self.base, part).await?;
            self.table(self.view.table(), part).await?;
            self.reads.check.part_done(part.upto);
        }
        Ok(())
    }

    /// Compares the rows of one of the two tables.
    async fn table(&self, table: &Arc<Table>, part: TokenRange) -> Result<(), Stop> {
        let mut command = CheckReads::page_of(table, part);
        loop {
            let began = self.reads.now();
            command.now = self.reads.seconds();
            let page = self.reads.read(&command).await?;
            let places = self.places(table, &page);
            let count = places.len();
            for places in places.chunks(COMPARED_AT_ONCE) {
                self.compare(table, places.to_vec()).await?;
            }
            self.count_rows(table, count as u64);
            self.reads.pace(began, &page, self.wanted.rows_per_second).await;
            let Some(more) = page.more else { return Ok(()) };
            command.resume = Some(more);
        }
    }

    fn count_rows(&self, table: &Table, count: u64) {
        let mut status = self.reads.check.status_mut();
        match table.id == self.base.id {
            true => status.base_rows += count,
            false => status.derived_rows += count,
        }
    }

    /// The places of the view that a page of either table is about.
    fn places(&self, table: &Table, page: &ReadPage) -> Vec<Place> {
        let (now, is_base) = (self.reads.seconds(), table.id == self.base.id);
        let rows = page.partitions.iter().flat_map(|of| of.rows.iter().map(|row| (&of.key, row)));
        let place = |(key, row): (&DecoratedKey, &Row)| match is_base {
            true => self.view.expected(key, row, now).map(|(key, row)| (key, row.clustering)),
            false => self.view.is_present(key, row, now).then(|| (key.clone(), row.clustering.clone())),
        };
        rows.filter_map(place).collect()
    }

    /// Compares these places of the view with the base, notes certain differences, and repairs them. Ghosts are a matter of
    /// the view's rows, other differences of the base's, so that none counts twice.
    async fn compare(&self, table: &Table, places: Vec<Place>) -> Result<(), Stop> {
        let of_base = table.id == self.base.id;
        let counts = |look: &Look| {
            look.difference.is_some_and(|difference| (difference == Difference::Ghost) != of_base)
        };
        let mut differing = self.look(places).await?;
        for _ in 0..LOOKS {
            differing.retain(counts);
            if differing.is_empty() {
                return Ok(());
            }
            self.reads.go_on()?;
            // The updates of the view may be on their way.
            self.reads.coordinator.context().rt().sleep(self.wanted.pause).await;
            let at_micros = self.reads.coordinator.context().hinting().begin_write();
            let again = self.look(differing.iter().map(|look| look.place.clone()).collect()).await?;
            assert_eq!(again.len(), differing.len(), "each place is looked at again");
            let (mut settled, mut changed) = (Vec::new(), Vec::new());
            for (before, look) in differing.into_iter().zip(again) {
                match before.base == look.base {
                    true if counts(&look) => settled.push(look),
                    true => {}
                    false => changed.push(look),
                }
            }
            self.note(settled, at_micros).await?;
            differing = changed;
        }
        differing.retain(counts);
        self.reads.check.status_mut().unsettled += differing.len() as u64;
        Ok(())
    }

    /// Counts differences, and repairs them.
    async fn note(&self, differing: Vec<Look>, at_micros: i64) -> Result<(), Stop> {
        if differing.is_empty() {
            return Ok(());
        }
        let found: Vec<(Place, Difference)> =
            differing.iter().filter_map(|look| Some((look.place.clone(), look.difference?))).collect();
        let left = match self.wanted.repair {
            true => self.repair(differing, at_micros).await?,
            false => found.iter().map(|(place, _)| place.clone()).collect(),
        };
        for ((key, clustering), difference) in found {
            let mut status = self.reads.check.status_mut();
            match difference {
                Difference::Missing => status.missing += 1,
                Difference::Wrong => status.wrong += 1,
                Difference::Ghost => status.ghosts += 1,
            }
            let place = (key, clustering);
            let repaired = !left.contains(&place);
            status.repaired += u64::from(repaired);
            assert!(status.repaired <= status.differences(), "only rows that differ are repaired");
            drop(status);
            let ((key, clustering), kind) = (place, FoundKind::View(difference));
            let found = FoundDifference { kind, key, clustering, repaired };
            self.reads.check.list(found, self.wanted.listed_max);
        }
        Ok(())
    }

    /// Repairs rows of the view; the places that still differ.
    async fn repair(&self, mut differing: Vec<Look>, mut at_micros: i64) -> Result<Vec<Place>, Stop> {
        let context = self.reads.coordinator.context();
        // The row of the base, and if a deletion hides it in the view, newer than that.
        let mut floor = i64::MIN;
        for _ in 0..2 {
            let updates = differing.iter().map(|look| {
                let (key, clustering) = &look.place;
                let (expected, found) = (look.expected.as_ref(), look.found.as_ref());
                let row = self.view.repair(clustering, expected, found, floor, self.reads.seconds());
                let mut update = PartitionUpdate::new(self.view.table().clone(), key.clone());
                update.add_row(row);
                update
            });
            let batches = Batches::new(context, &self.reads.coordinator.operations().batchlog);
            let written = batches.write_late(updates.collect(), at_micros, (Delivery::Again, TIMEOUT)).await;
            written.map_err(|error| Stop::Failed(error.to_string()))?;
            at_micros = context.hinting().begin_write();
            floor = context.rt().wall_micros();
            differing = self.look(differing.into_iter().map(|look| look.place).collect()).await?;
            differing.retain(|look| look.difference.is_some());
            if differing.is_empty() {
                break;
            }
        }
        Ok(differing.into_iter().map(|look| look.place).collect())
    }

    /// Reads the rows at places of the view, and the base rows of them before.
    async fn look(&self, places: Vec<Place>) -> Result<Vec<Look>, Stop> {
        let origins: Vec<Option<Place>> =
            places.iter().map(|(key, row)| self.view.origin(&self.base, key, row)).collect();
        let mut bases = self.rows(&self.base, origins.iter().flatten()).await?;
        let mut rows = self.rows(self.view.table(), places.iter()).await?;
        let now = self.reads.seconds();
        let looks = places.into_iter().zip(origins).map(|(place, origin)| {
            let base = origin.as_ref().and_then(|origin| bases.remove(origin));
            let expected = origin.as_ref().zip(base.as_ref()).and_then(|((key, _), row)| {
                let (key, row) = self.view.expected(key, row, now)?;
                (key == place.0 && row.clustering == place.1).then_some(row)
            });
            let found = rows.remove(&place);
            let difference = self.view.compare(&place.0, expected.as_ref(), found.as_ref(), now);
            Look { place, base, expected, found, difference }
        });
        Ok(looks.collect())
    }

    /// The live rows of these places of a table.
    async fn rows(
        &self,
        table: &Arc<Table>,
        places: impl Iterator<Item = &Place>,
    ) -> Result<BTreeMap<Place, Row>, Stop> {
        let mut ranges: BTreeMap<&DecoratedKey, Vec<RowRange>> = BTreeMap::new();
        for (key, clustering) in places {
            ranges.entry(key).or_default().push(RowRange::row(clustering));
        }
        let now = self.reads.seconds();
        let commands: Vec<ReadCommand> = ranges
            .into_iter()
            .map(|(key, ranges)| {
                let keys = Partitions::Keys(Keys::from_elem(key.clone(), 1));
                let all = ReadCommand::all_of(table.clone(), keys, now);
                ReadCommand { slices: Slices::new(ranges), limits: ROWS, bypass_cache: true, ..all }
            })
            .collect();
        let reads = commands.into_iter().map(|command| self.reads.pages(command));
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(PARTITIONS_AT_ONCE);
        let mut rows = BTreeMap::new();
        while let Some(found) = reads.next().await {
            rows.extend(found?);
        }
        Ok(rows)
    }
}

/// Ranges of tokens in parts that do not go around the ring's end, in the order of the ring, [`PARTS_MIN`] at least when there are as many tokens.
fn parts(ranges: &[TokenRange]) -> Vec<TokenRange> {
    let straight = straight(ranges);
    let each = PARTS_MIN.div_ceil(straight.len().max(1)) as i128;
    let mut parts = Vec::with_capacity(straight.len() * each as usize);
    for TokenRange { after, upto } in straight {
        let width = i128::from(upto) - i128::from(after);
        let each = each.min(width);
        let end = |part: i128| (i128::from(after) + width * part / each) as i64;
        parts.extend((0..each).map(|part| TokenRange { after: end(part), upto: end(part + 1) }));
    }
    assert!(parts.iter().all(|part| part.after < part.upto), "a part has a token");
    assert!(parts.windows(2).all(|two| two[0].upto <= two[1].after), "parts are ordered and do not overlap");
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_ranges_in_order() {
        let range = |after, upto| TokenRange { after, upto };
        assert_eq!(parts(&[range(5, 7)]), [range(5, 6), range(6, 7)]);
        let all = parts(&[range(i64::MIN, i64::MAX)]);
        assert_eq!((all.len(), all[0].after, all[255].upto), (PARTS_MIN, i64::MIN, i64::MAX));
        assert!(all.windows(2).all(|two| two[0].upto == two[1].after && two[0].after < two[0].upto));
        // One that goes around the end, and all of the ring from one token.
        let around = parts(&[range(100, -100)]);
        assert_eq!((around[0].after, around.last().unwrap().upto), (i64::MIN, i64::MAX));
        assert!(around.iter().all(|part| part.upto <= -100 || part.after >= 100));
        let whole = parts(&[range(7, 7)]);
        assert!(whole.windows(2).all(|two| two[0].upto == two[1].after));
        assert_eq!((whole[0].after, whole.last().unwrap().upto), (i64::MIN, i64::MAX));
        assert_eq!(parts(&[]), []);
    }
}
