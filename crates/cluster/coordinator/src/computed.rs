//! Tables that are computed when they are read: the same commands, answered from values.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use mutation::{DecoratedKey, Fragment, PartitionUpdate, Slices};
use replica::page::{PageBuilder, Progress};
use replica::{Partitions, ReadCommand, ReadPage};
use rt::preempt::Pace;

/// A part that is computed on request takes about as long as so many steps of a loop over rows that are there.
const STEPS_OF_A_PART: usize = 64;

/// Gives the content of computed tables.
pub trait ComputedTables {
    /// The rows of the command's table; live rows only.
    fn rows(&self, command: &ReadCommand) -> Pin<Box<dyn Future<Output = ComputedRows>>>;
}

/// The content of a computed table, or the part of it that a read asks for.
pub enum ComputedRows {
    /// Every partition, in any order.
    All(Vec<PartitionUpdate>),
    /// Parts of partitions, made as they are asked for, in the order in which the command reads them: the rows of a part follow those of the
    /// part before. Rows before the command's resume position need not be among them. A part may be without rows; each is a step between
    /// which the shard does other work.
    InOrder(Box<dyn Iterator<Item = PartitionUpdate>>),
}

/// Answers a command from the rows of its table. Rows in order behind the page's last are not made.
pub async fn read_computed(command: &ReadCommand, rows: ComputedRows) -> ReadPage {
    let order = Order::new(&command.partitions);
    let mut page = Page::new(command, &order);
    let mut pace = Pace::new();
    match rows {
        ComputedRows::All(mut partitions) => {
            partitions.retain(|partition| order.place(&partition.key).is_some());
            partitions.sort_by(|a, b| order.place(&a.key).cmp(&order.place(&b.key)));
            // Also those behind the page's end are freed in steps.
            for partition in partitions {
                page.add(partition, &mut pace).await;
                pace.step().await;
            }
        }
        ComputedRows::InOrder(parts) => {
            for part in parts {
                page.add(part, &mut pace).await;
                if page.is_full {
                    break;
                }
                pace.steps(STEPS_OF_A_PART).await;
            }
        }
    }
    page.finish()
}

/// The order in which a command reads partitions.
enum Order<'a> {
    Ring(&'a mutation::PartitionRange),
    Listed(BTreeMap<&'a DecoratedKey, usize>),
}

impl<'a> Order<'a> {
    fn new(partitions: &'a Partitions) -> Self {
        match partitions {
            Partitions::Range(range) => Self::Ring(range),
            // Of a key that occurs twice the first place counts.
            Partitions::Keys(keys) => {
                Self::Listed(keys.iter().enumerate().rev().map(|(at, key)| (key, at)).collect())
            }
        }
    }

    /// By these partitions are in order; none for those that are not read.
    fn place<'k>(&self, key: &'k DecoratedKey) -> Option<(usize, Option<&'k DecoratedKey>)> {
        match self {
            Self::Ring(range) => range.contains(key).then_some((0, Some(key))),
            Self::Listed(places) => places.get(key).map(|at| (*at, None)),
        }
    }
}

/// A page that is filled from parts of partitions.
struct Page<'a> {
    command: &'a ReadCommand,
    order: &'a Order<'a>,
    builder: PageBuilder,
    /// The partition that is begun, with the rows of it that are asked for.
    open: Option<(DecoratedKey, Slices)>,
    /// No more rows of it are.
    is_skipping: bool,
    is_full: bool,
}

impl<'a> Page<'a> {
    fn new(command: &'a ReadCommand, order: &'a Order<'a>) -> Self {
        let mut builder = PageBuilder::new(command);
        if let Some(resume) = command.resume.as_ref().filter(|resume| resume.clustering.is_some()) {
            builder.resume(resume.key.clone(), resume.rows_in_partition);
        }
        Self { command, order, builder, open: None, is_skipping: false, is_full: false }
    }

    /// Adds the rows of a part as far as the page has room, and frees the others.
    async fn add(&mut self, part: PartitionUpdate, pace: &mut Pace) {
        let has_open = self.open.as_ref().is_some_and(|(key, _)| *key == part.key);
        if !self.is_full && !has_open && !part.rows().is_empty() && self.is_wanted(&part.key) {
            self.begin(&part);
        }
        let takes = !self.is_full && self.open.as_ref().is_some_and(|(key, _)| *key == part.key);
        let reversed = self.command.reversed;
        let mut rows = part.into_rows().into_iter();
        while let Some(row) = if reversed { rows.next_back() } else { rows.next() } {
            pace.step().await;
            if !takes || self.is_full || self.is_skipping {
                continue;
            }
            assert!(self.open.is_some(), "rows belong to the partition that is open");
            if self.open.as_ref().is_some_and(|(_, slices)| slices.contains(&row.clustering)) {
                let progress = self.builder.push(Fragment::Row(row));
                self.is_full = progress == Progress::Full;
                self.is_skipping = progress == Progress::SkipPartition;
            }
        }
    }

    /// Whether a partition is read, and not by an earlier page as a whole.
    fn is_wanted(&self, key: &DecoratedKey) -> bool {
        let Some(place) = self.order.place(key) else { return false };
        self.command.resume.as_ref().is_none_or(|resume| match self.order.place(&resume.key) {
            Some(resumed) if resume.clustering.is_none() => place > resumed,
            resumed => Some(place) >= resumed,
        })
    }

    /// Ends the partition that is open and begins that of `part`, if the page has room.
    fn begin(&mut self, part: &PartitionUpdate) {
        assert!(!part.rows().is_empty(), "a partition begins with a row");
        self.end();
        assert!(self.open.is_none(), "one partition after the other is read");
        if self.is_full {
            return;
        }
        let key = part.key.clone();
        let slices = &self.command.slices;
        let last = self.command.resume.as_ref().filter(|resume| resume.key == key);
        let slices = match last.and_then(|resume| resume.clustering.as_ref()) {
            Some(last) => slices.after(last, self.command.reversed),
            None => slices.clone(),
        };
        self.builder.push(Fragment::PartitionStart { key: key.clone(), deletion: part.deletion });
        self.open = Some((key, slices));
        self.is_skipping = false;
    }

    fn end(&mut self) {
        if self.open.take().is_some() {
            self.is_full = self.builder.push(Fragment::PartitionEnd) == Progress::Full;
        }
    }

    fn finish(mut self) -> ReadPage {
        if !self.is_full {
            self.end();
        }
        self.builder.finish()
    }
}
