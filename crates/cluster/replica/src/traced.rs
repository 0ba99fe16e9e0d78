//! The events of traced requests in a replica. An untraced request pays one test of an option a step.

use engine::ReadSources;

use crate::trace::found;
use crate::{Partitions, Read, ReadPage, Replica, ReplicaError, TraceEvent, TraceLog};

impl Replica {
    /// Records a step that happens now, here, if the request is traced.
    #[inline]
    pub(crate) fn record(&self, trace: Option<&TraceLog>, activity: impl FnOnce() -> String) {
        if let Some(trace) = trace {
            self.note(trace, activity());
        }
    }

    /// Records the steps that another shard hands back with its answer.
    pub(crate) fn take_steps(&self, trace: Option<&TraceLog>, shard: u16, events: Vec<TraceEvent>) {
        if let Some(trace) = trace {
            trace.extend(events);
            self.note(trace, format!("Processing response from shard {shard}"));
        }
    }

    fn note(&self, trace: &TraceLog, activity: impl Into<String>) {
        trace.add(self.rt().now(), self.own_shard(), activity);
    }

    /// Reads the rows of this shard, and traces the sources.
    pub(crate) async fn read_own_traced(
        &self,
        read: &Read<'_>,
        trace: &TraceLog,
    ) -> Result<ReadPage, ReplicaError> {
        let command = read.command;
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
        let page = self.read_own(read).await;
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
        if sources.clustering_skipped > 0 {
            let skipped = sources.clustering_skipped;
            self.note(trace, format!("Skipped {skipped} non-slice-intersecting sstables"));
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
}
