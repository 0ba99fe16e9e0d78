//! Merges the answers of several replicas to one, and finds the rows that each of them lacks. Pure, but for places to yield: pages may hold
//! 100,000 range tombstones.
//!
//! A replica's page ends where its own limits end it, so that pages cover different ranges. Only the range that all
//! of them cover can be merged: up to the end of the shortest. When the result
//! has fewer rows than the limit, the read continues from there (Cassandra's short-read protection).

use mutation::merge::{Merger, Step};
use mutation::{Fragment, PartitionUpdate};
use replica::compare::{clip_in_steps, lacks_in_steps, order, stream};
use replica::page::{PageBuilder, Progress};
use replica::steps::{free_page, free_partitions, free_ranges};
use replica::{Form, Limits, Partitions, ReadCommand, ReadPage, Resume};
use rt::preempt::Pace;

use crate::Canaries;

/// The sum of several pages.
#[derive(Debug)]
pub struct Reconciled {
    /// Live rows within the command's limits. Its `more` is the position to resume at, also when the limits were not reached.
    pub page: ReadPage,
    /// For each page, in their order, the rows that its replica lacks.
    pub repairs: Vec<Vec<PartitionUpdate>>,
}

/// Merges pages of [`Form::Reconcilable`] that answer `command`, which names one partition or a range.
///
/// # Panics
/// When the command names several partitions: each has replicas of its own.
pub async fn reconcile(command: &ReadCommand, pages: Vec<ReadPage>) -> Reconciled {
    reconcile_injected(command, pages, Canaries::default()).await
}

/// [`reconcile`] with injected bugs.
pub(crate) async fn reconcile_injected(
    command: &ReadCommand,
    mut pages: Vec<ReadPage>,
    injected: Canaries,
) -> Reconciled {
    assert!(
        !matches!(&command.partitions, Partitions::Keys(keys) if keys.len() != 1),
        "one partition or a range"
    );
    assert!(!pages.is_empty(), "there is a page to merge");
    let mut pace = Pace::new();
    let end = pages
        .iter()
        .filter_map(|page| page.more.as_ref())
        .min_by(|a, b| order(a, b, command.reversed))
        .cloned();
    if let Some(end) = end.as_ref().filter(|_| !injected.unclipped_pages) {
        for page in &mut pages {
            clip_in_steps(page, end, command.reversed, &mut pace).await;
        }
    }
    let tombstones = pages.iter().map(|page| page.tombstones).max().unwrap_or(0);
    let live = ReadCommand { form: Form::Live, ..command.clone() };
    let whole = ReadCommand { form: Form::Full, limits: Limits::NONE, ..command.clone() };
    let mut wanted = Wanted::new(&live, end);
    let mut merged = PageBuilder::new(&whole);
    let mut merger = Merger::new(command.table.clone(), pages.len(), command.reversed);
    for (input, page) in pages.iter().enumerate() {
        let buffer = merger.buffer(input);
        for fragment in page.partitions.iter().flat_map(|partition| stream(partition, command.reversed)) {
            buffer.push_back(fragment);
            pace.step().await;
        }
        merger.end(input);
    }
    loop {
        match merger.next() {
            Step::Fragment(fragment) => {
                wanted.push(&fragment);
                merged.push(fragment);
                pace.step().await;
            }
            Step::End => break,
            Step::Need(_) => unreachable!("pages are whole, a partition at a time"),
        }
    }
    let merged = merged.finish().partitions;
    let mut repairs: Vec<Vec<PartitionUpdate>> = Vec::with_capacity(pages.len());
    for page in &pages {
        repairs.push(lacks_in_steps(&command.table, page, &merged, command.reversed, &mut pace).await);
    }
    let mut page = wanted.finish();
    page.tombstones = tombstones;
    assert_eq!(repairs.len(), pages.len(), "what a replica lacks is known of each");
    free_partitions(merged).await;
    for page in pages {
        free_page(page).await;
    }
    Reconciled { page, repairs }
}

/// A page that came in [`Form::Full`] as its client is to see it.
pub async fn to_live(command: &ReadCommand, mut page: ReadPage) -> ReadPage {
    let (now, mut pace) = (command.now, Pace::new());
    for partition in &mut page.partitions {
        free_ranges(std::mem::take(&mut partition.range_tombstones), &mut pace).await;
    }
    page.partitions.retain_mut(|partition| {
        partition.rows.retain(|row| row.is_live(now));
        let resumes = command
            .resume
            .as_ref()
            .is_some_and(|resume| resume.key == partition.key && resume.rows_in_partition > 0);
        !partition.rows.is_empty()
            || !resumes && partition.static_row.as_ref().is_some_and(|row| row.has_live_cell(now))
    });
    page
}

/// The client's page, as it grows.
struct Wanted {
    builder: PageBuilder,
    /// The end of the rows that are certain.
    end: Option<Resume>,
    one_partition: bool,
    open: Option<mutation::DecoratedKey>,
    skipping: bool,
    full: bool,
    /// Where the next page begins, when the limits do not say it.
    again: Option<Resume>,
}

impl Wanted {
    fn new(command: &ReadCommand, end: Option<Resume>) -> Self {
        let mut builder = PageBuilder::new(command);
        if let Some(resume) = &command.resume {
            builder.resume(resume.key.clone(), resume.rows_in_partition);
        }
        let one_partition = matches!(command.partitions, Partitions::Keys(_));
        let again = end.clone().filter(|end| !one_partition || end.clustering.is_some());
        Self { builder, end, one_partition, open: None, skipping: false, full: false, again }
    }

    fn push(&mut self, fragment: &Fragment) {
        if self.full {
            return;
        }
        match fragment {
            Fragment::PartitionStart { key, .. } => {
                self.open = Some(key.clone());
                self.skipping = false;
            }
            Fragment::PartitionEnd => {
                let open = self.open.take();
                let cut = self
                    .end
                    .as_ref()
                    .filter(|end| end.clustering.is_some() && Some(&end.key) == open.as_ref());
                if let Some(end) = cut {
                    if self.skipping {
                        // The partition has had all its rows, regardless of later ones.
                        self.again = (!self.one_partition).then(|| Resume {
                            clustering: None,
                            rows_in_partition: 0,
                            ..end.clone()
                        });
                    } else {
                        let rows_in_partition = self.builder.break_off();
                        self.again = Some(Resume { rows_in_partition, ..end.clone() });
                        return;
                    }
                }
            }
            Fragment::StaticRow(_) | Fragment::Row(_) | Fragment::RangeTombstoneChange { .. } => {
                if self.skipping {
                    return;
                }
            }
        }
        match self.builder.push(fragment.clone()) {
            Progress::Full => self.full = true,
            Progress::SkipPartition => self.skipping = true,
            Progress::More => {}
        }
    }

    fn finish(self) -> ReadPage {
        let mut page = self.builder.finish();
        if !self.full {
            page.more = self.again;
        }
        page
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
