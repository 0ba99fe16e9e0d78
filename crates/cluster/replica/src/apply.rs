//! Writes that take more than this shard's engine: of several shards, in parts, or with their steps told.

use engine::Updates;
use futures_util::future::try_join_all;
use mutation::codec::EncodedUpdates;
use mutation::{PartitionUpdate, RangeTombstones};

use crate::{Replica, ReplicaError, TraceLog, Write, message};

/// In memory, bytes. Less than this fits every commit log.
const SMALL_BYTES: usize = 8 << 10;

impl Replica {
    pub(crate) async fn apply_with_care(&self, mut write: Write<'_>) -> Result<(), ReplicaError> {
        let updates = std::mem::take(&mut write.updates);
        let encoded = write.encoded.take();
        match write.divisible {
            false => self.apply_whole(&write, updates, encoded).await,
            true => self.apply_in_parts(&write, updates, encoded).await,
        }
    }

    /// Applies updates, those of one shard as one. `encoded` has the bytes of all of them.
    async fn apply_whole(
        &self,
        write: &Write<'_>,
        updates: Updates,
        mut encoded: Option<Box<EncodedUpdates>>,
    ) -> Result<(), ReplicaError> {
        let own = self.own_shard();
        if self.owns(&updates) {
            return self.apply_here(write.on(own, updates, encoded), write.trace).await;
        }
        let all = updates.len();
        let mut by_shard: Vec<Updates> = vec![Updates::new(); usize::from(self.shard_count())];
        for update in updates {
            by_shard[usize::from(self.shard_of(update.table.id, update.key.token))].push(update);
        }
        let parts = (0..).zip(by_shard).filter(|(_, updates)| !updates.is_empty());
        let parts = parts.map(|(shard, updates)| {
            // One shard has all, or none can use the bytes of all.
            let encoded = if updates.len() == all { encoded.take() } else { None };
            (shard, write.on(shard, updates, encoded))
        });
        let writes = parts.map(|(shard, part)| async move {
            if shard == own {
                return self.apply_here(part, write.trace).await;
            }
            self.record(write.trace, || format!("Sending MUTATION to shard {shard}"));
            let call = message::Apply { write: part, is_traced: write.trace.is_some() };
            let (done, events) = self.call(shard, call).await;
            self.take_steps(write.trace, shard, events);
            done
        });
        try_join_all(writes).await.map(|_| ())
    }

    /// Applies updates in one entry of the commit log where they fit, and otherwise in parts.
    async fn apply_in_parts(
        &self,
        write: &Write<'_>,
        updates: Updates,
        encoded: Option<Box<EncodedUpdates>>,
    ) -> Result<(), ReplicaError> {
        let mut parts = vec![(updates, encoded)];
        while let Some((part, encoded)) = parts.pop() {
            if part.iter().map(PartitionUpdate::memory_size).sum::<usize>() <= SMALL_BYTES {
                self.apply_whole(write, part, encoded).await?;
                continue;
            }
            match self.apply_whole(write, part.clone(), encoded).await {
                Ok(()) => {}
                Err(error @ ReplicaError::MutationTooLarge { .. }) => {
                    let (one, other) = halves(part).ok_or(error)?;
                    parts.extend([(other, None), (one, None)]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Applies the updates of this shard.
    pub(crate) async fn apply_here(
        &self,
        write: engine::Write,
        trace: Option<&TraceLog>,
    ) -> Result<(), ReplicaError> {
        self.record(trace, || "Appending to commitlog".to_owned());
        for update in &write.updates {
            self.record(trace, || format!("Adding to {} memtable", update.table.name));
        }
        let engine = self.engine();
        let done = engine.apply(write).await;
        self.record(trace, || match &done {
            Ok(()) => format!("Commit log acknowledged ({})", engine.sync_mode_name()),
            Err(error) => error.to_string(),
        });
        Ok(done?)
    }
}

/// Half of the partitions each, or of one partition half of the rows; none of a single row.
fn halves(mut updates: Updates) -> Option<(Updates, Updates)> {
    if updates.len() > 1 {
        let other = updates.split_off(updates.len() / 2);
        return Some((updates, other));
    }
    let mut whole = updates.pop().filter(|update| update.rows().len() > 1)?;
    let (table, key, deletion) = (whole.table.clone(), whole.key.clone(), whole.deletion);
    let static_row = whole.take_static_row();
    let range_tombstones = std::mem::replace(&mut whole.range_tombstones, RangeTombstones::new());
    let mut rows = whole.into_rows();
    let other = PartitionUpdate::with_rows(table.clone(), key.clone(), rows.split_off(rows.len() / 2));
    let mut one = PartitionUpdate::with_rows(table, key, rows);
    (one.deletion, one.range_tombstones) = (deletion, range_tombstones);
    one.set_static_row(static_row);
    Some((vec![one], vec![other]))
}
