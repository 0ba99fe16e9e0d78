//! The reads of one SELECT, page after page: of its partitions and ranges, or by way of an index.

use mutation::PartitionRange;
use replica::{Partitions, ReadCommand, ReadPage};
use schema::Table;

use super::SelectPlan;
use super::fragments;
use super::parts::Divided;
use super::places::Places;
use super::read::{SCAN_ROWS, read};
use crate::backend::Coordinator;
use crate::error::{ExecError, Result};
use crate::expr::Env;
use crate::request::{Request, TimeoutKind};
use crate::where_clause::access::AccessPath;
use crate::where_clause::filter::BoundFilter;

/// The reads of one statement, one page after another.
pub(super) struct Pages<'a, C> {
    coordinator: &'a C,
    request: &'a Request<'a>,
    pub(super) command: ReadCommand,
    timeout: TimeoutKind,
    ended: bool,
    tombstones: u64,
    /// Of the fragments of a table: that table.
    fragments_of: Option<&'a Table>,
    /// Of a plan that uses an index.
    pub(super) places: Option<Box<Places>>,
    /// Whether all rows are read where the index is not available: of a partition, or where it is not needed.
    reads_without: bool,
}

impl<'a, C: Coordinator> Pages<'a, C> {
    /// The pages of a command of which the result takes `left` rows.
    pub(super) fn new(
        plan: &'a SelectPlan,
        coordinator: &'a C,
        request: &'a Request<'a>,
        env: &Env<'_>,
        (command, left): (ReadCommand, u64),
    ) -> Result<Self> {
        let timeout = if plan.access.names_partitions() { TimeoutKind::Read } else { TimeoutKind::Range };
        let (mut places, mut reads_without) = (None, false);
        // Places and rows are read one after the other, which is no one moment of a partition: a serial read needs one.
        let is_whole = request.consistency.is_serial() && plan.access.names_partitions();
        if let AccessPath::Index(access) = &plan.access
            && !is_whole
        {
            let table = &plan.table;
            reads_without = access.is_optional || plan.access.names_partitions();
            let parts = access.parts.iter().map(|part| Ok((part.index.clone(), part.predicates(env)?)));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            let reduced = plan.selection.is_aggregate() || plan.group_width.is_some();
            let page = request.page_size.map_or(u64::MAX, u64::from);
            let wanted = if reduced { u64::MAX } else { left.min(page) };
            places = Places::new(&command, parts, access.partitions, wanted).map(Box::new);
            request.note(|| match &places {
                Some(places) => {
                    format!("Executing read on {} using index {}", table.full_name(), places.names())
                }
                None => format!("Executing read on {} without an index: too many values", table.full_name()),
            });
        }
        let fragments_of = plan.fragments_of.as_deref();
        let (ended, tombstones) = (false, 0);
        Ok(Self {
            coordinator,
            request,
            command,
            timeout,
            ended,
            tombstones,
            fragments_of,
            places,
            reads_without,
        })
    }

    /// The statement of these, in parts.
    pub(super) fn divided<'b>(
        &self,
        plan: &'b SelectPlan,
        env: &'b Env<'b>,
        filters: &'b [BoundFilter<'b>],
    ) -> Divided<'b, C>
    where
        'a: 'b,
    {
        Divided::new(plan, self.coordinator, self.request, env, filters)
    }

    /// The pages of a token range of these, which are read by no index.
    pub(super) fn of_range(&self, range: PartitionRange) -> Self {
        assert!(self.places.is_none(), "places of an index are read in their order");
        let command = ReadCommand { partitions: Partitions::Range(range), ..self.command.clone() };
        let Self { coordinator, request, timeout, fragments_of, .. } = *self;
        Self {
            coordinator,
            request,
            command,
            timeout,
            ended: false,
            tombstones: 0,
            fragments_of,
            places: None,
            reads_without: false,
        }
    }

    /// The next page, for one that reads several ranges at once: it gets the number of the range back, and its pages.
    pub(super) async fn next_of(mut self, range: usize) -> (usize, Self, Result<Option<ReadPage>>) {
        let page = self.next(SCAN_ROWS).await;
        (range, self, page)
    }

    /// The next page of at most `rows` rows; none when everything was read.
    pub(super) async fn next(&mut self, rows: u64) -> Result<Option<ReadPage>> {
        if self.ended {
            return Ok(None);
        }
        if let Some(places) = &mut self.places {
            match Box::pin(places.next(self.coordinator, self.request, rows)).await {
                // The rest is read and filtered until the index is built.
                Err(ExecError::Request(error)) if self.reads_without && error.is_index_unavailable() => {
                    let names = places.names();
                    self.request.note(|| format!("Index {names} is not available: reading without it"));
                    self.command.resume = places.resume.take();
                    self.places = None;
                }
                page => {
                    let page = page?;
                    self.tombstones += page.as_ref().map_or(0, |page| page.tombstones);
                    return Ok(page);
                }
            }
        }
        self.command.limits.rows = rows;
        let deadline = self.request.deadline(self.timeout);
        let page = match self.fragments_of {
            None => read(self.coordinator, self.request, &self.command, deadline).await?,
            Some(base) => {
                Box::pin(fragments::pages::read(self.coordinator, base, &self.command, deadline)).await?
            }
        };
        self.ended = page.more.is_none();
        self.command.resume = page.more.clone();
        self.tombstones += page.tombstones;
        Ok(Some(page))
    }
}

impl<C> Pages<'_, C> {
    /// The next page begins behind the partition in which the last one ended.
    pub(super) fn skip_partition(&mut self) {
        if let Some(resume) = &mut self.command.resume {
            resume.clustering = None;
        }
    }

    /// Tombstones that were read so far.
    pub(super) fn tombstones(&self) -> u64 {
        self.tombstones
    }
}
