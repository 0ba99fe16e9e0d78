//! Reads and writes of a traced request: the same work, with what was met on the way.

use engine::{Engine, ReadSources};
use mutation::PartitionUpdate;
use rt::ShardId;

use crate::trace::TraceLog;
use crate::{Partitions, ReadCommand, ReadPage, Replica, ReplicaError, ShardRequest, ShardResponse, read};

impl Replica {
    /// [`Replica::read`] with its steps.
    pub async fn read_traced(
        &self,
        command: &ReadCommand,
        trace: &TraceLog,
    ) -> Result<ReadPage, ReplicaError> {
        let one_shard = match &command.partitions {
            Partitions::Keys(keys) if keys.len() == 1 => Some(self.shard_of(keys[0].token)),
            _ if self.shard_count() == 1 => Some(0),
            _ => None,
        };
        let Some(shard) = one_shard else {
            // Which shard contributes what is told by the shards' own figures; here the whole counts.
            self.note(
                trace,
                format!("Reading {} from {} shards", command.table.full_name(), self.shard_count()),
            );
            let page = self.read(command).await?;
            self.note(trace, found(&page));
            return Ok(page);
        };
        if shard == self.own_shard() {
            return self.read_here_traced(command, trace).await;
        }
        self.note(trace, format!("Sending READ to shard {shard}"));
        match self.call(ShardId(shard), ShardRequest::ReadTraced(command.clone())).await {
            ShardResponse::ReadTraced(page, events) => {
                trace.extend(events);
                self.note(trace, format!("Processing response from shard {shard}"));
                page
            }
            other => panic!("a traced read was answered with {other:?}"),
        }
    }

    /// Reads what this shard owns, and says from what.
    pub(crate) async fn read_here_traced(
        &self,
        command: &ReadCommand,
        trace: &TraceLog,
    ) -> Result<ReadPage, ReplicaError> {
        match &command.partitions {
            Partitions::Keys(keys) => {
                self.note(
                    trace,
                    format!("Executing single-partition query on {}", command.table.full_name()),
                );
                for key in keys {
                    let sources = self.engine().sources_of(command.table.id, key, &command.slices);
                    self.note_sources(trace, &sources, command.bypass_cache);
                }
            }
            Partitions::Range(_) => {
                let sstables = self.engine().sstable_count(command.table.id);
                let table = command.table.full_name();
                self.note(trace, format!("Executing seq scan across {sstables} sstables for {table}"));
            }
        }
        let page = read::read(self.engine(), command, None, self.tombstones_max()).await;
        match &page {
            Ok(page) => self.note(trace, found(page)),
            Err(error) => self.note(trace, error.to_string()),
        }
        page
    }

    fn note_sources(&self, trace: &TraceLog, sources: &ReadSources, bypass_cache: bool) {
        if sources.memtables > 0 {
            self.note(trace, format!("Merging data from {} memtables", sources.memtables));
        }
        if sources.bloom_skipped > 0 {
            self.note(trace, format!("Bloom filter allows skipping {} sstables", sources.bloom_skipped));
        }
        if sources.sstables.is_empty() {
            return;
        }
        if sources.cached && !bypass_cache {
            return self.note(trace, "Row cache hit");
        }
        if !bypass_cache {
            self.note(trace, "Row cache miss");
        }
        let (count, names) = (sources.sstables.len(), sources.sstables.join(", "));
        self.note(trace, format!("Merging data from {count} sstables: {names}"));
    }

    /// [`Replica::apply`] with its steps; with the time at which the write began, [`Replica::apply_begun`] of its one update.
    pub async fn apply_traced(
        &self,
        updates: Vec<PartitionUpdate>,
        begun_micros: Option<i64>,
        trace: &TraceLog,
    ) -> Result<(), ReplicaError> {
        let mut by_shard: Vec<Vec<PartitionUpdate>> = vec![Vec::new(); usize::from(self.shard_count())];
        for update in updates {
            by_shard[usize::from(self.shard_of(update.key.token))].push(update);
        }
        let parts = by_shard.into_iter().enumerate().filter(|(_, updates)| !updates.is_empty());
        let writes = parts.map(|(shard, updates)| async move {
            let shard = shard as u16;
            if shard == self.own_shard() {
                return self.apply_here_traced(updates, begun_micros, trace).await;
            }
            self.note(trace, format!("Sending MUTATION to shard {shard}"));
            match self.call(ShardId(shard), ShardRequest::ApplyTraced(updates, begun_micros)).await {
                ShardResponse::DoneTraced(done, events) => {
                    trace.extend(events);
                    self.note(trace, format!("Processing response from shard {shard}"));
                    done
                }
                other => panic!("a traced write was answered with {other:?}"),
            }
        });
        futures_util::future::try_join_all(writes).await.map(|_| ())
    }

    /// Applies updates that this shard owns.
    pub(crate) async fn apply_here_traced(
        &self,
        mut updates: Vec<PartitionUpdate>,
        begun_micros: Option<i64>,
        trace: &TraceLog,
    ) -> Result<(), ReplicaError> {
        let engine: &Engine = self.engine();
        self.note(trace, "Appending to commitlog");
        for update in &updates {
            self.note(trace, format!("Adding to {} memtable", update.table.name));
        }
        let done = match begun_micros {
            Some(begun_micros) if updates.len() == 1 => {
                engine.apply_begun(updates.remove(0), begun_micros).await
            }
            _ => engine.apply(updates).await,
        };
        match &done {
            Ok(()) => self.note(trace, format!("Commit log acknowledged ({})", engine.sync_mode_name())),
            Err(error) => self.note(trace, error.to_string()),
        }
        Ok(done?)
    }
}

fn found(page: &ReadPage) -> String {
    let rows: usize = page.partitions.iter().map(|partition| partition.rows.len()).sum();
    format!("Read {rows} live rows and {} tombstone cells", page.tombstones)
}
