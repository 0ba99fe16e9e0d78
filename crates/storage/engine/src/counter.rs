//! Counters: the one write that reads first.

use bytes::Bytes;
use mutation::counter::{self, CounterId};
use mutation::{Cell, ColumnData, Fragment, PartitionRange, PartitionUpdate, Row, RowRange, Slices};
use schema::ColumnId;
use stdx::HashMap;

use crate::counter_id::Counting;
use crate::counter_state::PartitionId;
use crate::{Engine, Origin, Read, Write, WriteError};

/// See [`Engine::increment`].
pub(crate) async fn increment(
    engine: &Engine,
    update: PartitionUpdate,
) -> Result<PartitionUpdate, WriteError> {
    let key = (update.table.id, update.key.key.clone());
    if engine.0.counters.is_full() && engine.0.counters.unlogged(&key).is_none() {
        log_another(engine).await?;
    }
    let _held = match engine.0.config.canaries.skip_counter_locks {
        true => None,
        false => Some(engine.0.counters.locks.lock(&key).await?),
    };
    // A count that was read before a truncation must not be written behind it.
    let store = engine.0.store_of_write(update.table.id)?;
    let logged = store.durable.get();
    let _not_truncated = crate::truncation::hold_off(vec![store]).await?;
    let counting = engine.0.counters.ids.counting(&engine.0.rt, logged).await;
    let Counting { id: owner, sync } = counting.map_err(|error| WriteError::CommitLog(error.to_string()))?;
    let known = present_values(engine, &update, owner).await?;
    let clock = engine.0.rt.wall_micros();
    let mut result = raised(&update, &known, (owner, clock));
    let counted = result.clone();
    // An increment that the log did not take is in the memtable all the same, and the values above build on it: it goes
    // to the log with this one, so that after a crash all of its cells are there or none.
    let unlogged = engine.0.counters.unlogged(&key);
    if let Some(unlogged) = unlogged {
        result.merge(unlogged);
    } else if engine.0.counters.is_full() {
        return Err(WriteError::CommitLog("it has failed for too many counters".to_owned()));
    }
    // Waiting here, so that a failure below is the log's.
    engine.0.admit_write().await?;
    let mut applied = engine.apply(Write::one(Origin::Counter, result.clone())).await;
    if matches!(applied, Err(WriteError::MutationTooLarge { .. }))
        && let Some(unlogged) = engine.0.counters.unlogged(&key)
    {
        // Together they are too large for an entry, and nothing of them was applied.
        log_in_parts(engine, &key, unlogged).await?;
        result = counted.clone();
        applied = engine.apply(Write::one(Origin::Counter, result.clone())).await;
    }
    match applied {
        Ok(()) => {
            engine.0.counters.logged(&key);
            if sync {
                engine.0.log.sync().await.map_err(crate::error::write_error)?;
            }
            Ok(counted)
        }
        Err(error) => {
            if matches!(error, WriteError::CommitLog(_)) {
                engine.0.counters.set_unlogged(key, result);
            }
            Err(error)
        }
    }
}

/// The update with the counts of this host after it in place of the deltas.
fn raised(update: &PartitionUpdate, known: &Known, (owner, clock): (CounterId, i64)) -> PartitionUpdate {
    let add = |row: &Row, known: Option<&HashMap<ColumnId, Bytes>>| {
        let mut row = row.clone();
        row.retain(|id, data| {
            if let ColumnData::Simple(cell) = data
                && !cell.is_tombstone()
            {
                let mine = known.and_then(|columns| columns.get(&id)).cloned().unwrap_or_default();
                let delta = cell.value.first_chunk::<8>().map_or(0, |delta| i64::from_be_bytes(*delta));
                *cell = Cell::live(cell.timestamp, counter::add(&mine, owner, delta, clock));
            }
            true
        });
        row
    };
    let mut result = PartitionUpdate::new(update.table.clone(), update.key.clone());
    result.add_deletion(update.deletion);
    update.range_tombstones.iter().for_each(|range| result.add_range_tombstone(range.clone()));
    if let Some(row) = update.static_row() {
        result.add_static(add(row, known.get(&None)));
    }
    for row in update.rows() {
        let place = Some(row.clustering.position().to_vec());
        result.add_row(add(row, known.get(&place)));
    }
    assert!(result.rows().len() <= update.rows().len(), "an increment writes only rows that it increments");
    result
}

/// Writes increments that the log did not take, in as many entries as they need, each of whole rows; the partition's lock is held.
async fn log_in_parts(
    engine: &Engine,
    key: &PartitionId,
    unlogged: PartitionUpdate,
) -> Result<(), WriteError> {
    let mut parts = vec![unlogged];
    while let Some(part) = parts.pop() {
        match engine.apply(Write::one(Origin::Counter, part.clone())).await {
            Err(WriteError::MutationTooLarge { .. }) if part.rows().len() > 1 => {
                let (first, second) = halves(&part);
                assert!(first.rows().len() + second.rows().len() == part.rows().len(), "no row is lost");
                parts.extend([second, first]);
            }
            // Those that were written are written once more with the others.
            written => written?,
        }
    }
    engine.0.counters.logged(key);
    Ok(())
}

/// Two updates with half of an update's rows each; the rest of it is in the first.
fn halves(update: &PartitionUpdate) -> (PartitionUpdate, PartitionUpdate) {
    let (front, back) = update.rows().split_at(update.rows().len() / 2);
    let with =
        |rows: &[Row]| PartitionUpdate::with_rows(update.table.clone(), update.key.clone(), rows.to_vec());
    let mut first = with(front);
    first.add_deletion(update.deletion);
    update.range_tombstones.iter().for_each(|range| first.add_range_tombstone(range.clone()));
    if let Some(row) = update.static_row() {
        first.add_static(row.clone());
    }
    (first, with(back))
}

/// Writes the increments of another partition that the log did not take, to have room for those of one more.
async fn log_another(engine: &Engine) -> Result<(), WriteError> {
    let Some(key) = engine.0.counters.any_unlogged() else { return Ok(()) };
    let _held = engine.0.counters.locks.lock(&key).await?;
    match engine.0.counters.unlogged(&key) {
        Some(unlogged) => {
            let _not_truncated = crate::truncation::hold_off(vec![engine.0.store_of_write(key.0)?]).await?;
            log_in_parts(engine, &key, unlogged).await
        }
        None => Ok(()),
    }
}

/// The counts of this host so far in the rows of an update: position (none for the static row), column, context.
type Known = HashMap<Option<Vec<u8>>, HashMap<ColumnId, Bytes>>;

async fn present_values(
    engine: &Engine,
    update: &PartitionUpdate,
    host: CounterId,
) -> Result<Known, WriteError> {
    let table = &update.table;
    let slices = if table.clustering().is_empty() {
        Slices::all()
    } else {
        Slices::new(update.rows().iter().map(|row| RowRange::row(&row.clustering)).collect())
    };
    let failed = |error: crate::ReadError| WriteError::Read(error.to_string());
    let range = PartitionRange::single(&update.key);
    let mut reader = engine.read(&Read::new(table.id, &range, &slices)).map_err(failed)?;
    let mut known = Known::default();
    while let Some(fragment) = reader.next().await.map_err(failed)? {
        let (place, row) = match &fragment {
            Fragment::Row(row) => (Some(row.clustering.position().to_vec()), row),
            Fragment::StaticRow(row) => (None, row),
            _ => continue,
        };
        for (id, data) in row.columns() {
            if let ColumnData::Simple(cell) = data
                && !cell.is_tombstone()
                && let Some(mine) = counter::shards(&cell.value).find(|shard| shard.id == host)
            {
                known.entry(place.clone()).or_default().insert(*id, counter::encode(&[mine]));
            }
        }
    }
    Ok(known)
}
