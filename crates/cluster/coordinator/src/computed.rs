//! Tables that are computed when they are read: the same commands, answered from values.

use std::future::Future;
use std::pin::Pin;

use mutation::{Fragment, PartitionUpdate};
use replica::page::{PageBuilder, Progress};
use replica::{Partitions, ReadCommand, ReadPage};

/// Gives the content of computed tables.
pub trait ComputedTables {
    /// Every partition of the command's table, in any order; live rows only.
    fn rows(&self, command: &ReadCommand) -> Pin<Box<dyn Future<Output = Vec<PartitionUpdate>>>>;
}

/// Answers a command from all the partitions of its table.
pub(crate) fn read(command: &ReadCommand, mut partitions: Vec<PartitionUpdate>) -> ReadPage {
    match &command.partitions {
        Partitions::Keys(keys) => {
            partitions.retain(|partition| keys.contains(&partition.key));
            partitions.sort_by_key(|partition| keys.iter().position(|key| *key == partition.key));
        }
        Partitions::Range(range) => {
            partitions.retain(|partition| range.contains(&partition.key));
            partitions.sort_by(|a, b| a.key.cmp(&b.key));
        }
    }
    let mut page = PageBuilder::new(command);
    let mut slices = command.slices.clone();
    if let Some(resume) = &command.resume {
        let at = partitions.iter().position(|partition| partition.key == resume.key);
        let done = resume.clustering.is_none();
        partitions.drain(..at.map_or(0, |at| at + usize::from(done)));
        if let Some(last) = &resume.clustering {
            slices = slices.after(&command.table, last, command.reversed);
            page.resume(resume.key.clone(), resume.rows_in_partition);
        }
    }
    for partition in partitions {
        // Only the first partition is one that an earlier page has begun.
        let slices = std::mem::replace(&mut slices, command.slices.clone());
        let start = Fragment::PartitionStart { key: partition.key.clone(), deletion: partition.deletion };
        page.push(start);
        let mut rows = partition.into_rows();
        if command.reversed {
            rows.reverse();
        }
        let mut full = false;
        for row in rows.into_iter().filter(|row| slices.contains(&row.clustering)) {
            match page.push(Fragment::Row(row)) {
                Progress::More => {}
                Progress::SkipPartition => break,
                Progress::Full => {
                    full = true;
                    break;
                }
            }
        }
        if full || page.push(Fragment::PartitionEnd) == Progress::Full {
            break;
        }
    }
    page.finish()
}
