//! The reads of checks of derived tables (`derived_checks`): in pages, at ALL, again when replicas do not answer.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::{Clustering, DecoratedKey, PartitionRange, RingPosition, Row, Seconds};
use replica::{Limits, Partitions, ReadCommand, ReadPage};
use rt::Instant;
use schema::{Schema, Table, TableId};
use topology::TokenRange;

use crate::derived_checks::{Check, CheckState, CheckedTokens};
use crate::{Consistency, Coordinator, RequestError};

/// Rows that are read at once, and bytes.
const PAGE: Limits = Limits { rows: 512, rows_per_partition: u64::MAX, bytes: 256 << 10 };
/// The time that the replicas have for a page, and those of a view for the repairing updates.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a read is tried before the check fails, and the pause between.
const TRIES: u32 = 4;
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// How often a row that is being written is looked at.
pub(crate) const LOOKS: u32 = 5;

/// The reason for which a check ends early.
pub(crate) enum Stop {
    Cancelled,
    Failed(String),
}

/// The reads of a check under way.
pub(crate) struct CheckReads {
    pub(crate) coordinator: Coordinator,
    derived: TableId,
    pub(crate) check: Rc<Check>,
}

/// A derived table and its base; none when either is gone.
pub(crate) fn with_base(schema: &Schema, derived: TableId) -> Option<(&Arc<Table>, &Arc<Table>)> {
    let table = schema.table_by_id(derived)?;
    Some((table, schema.table_by_id(table.derivation.as_ref()?.base())?))
}

impl CheckReads {
    /// For a new check of a table.
    pub(crate) fn new(coordinator: &Coordinator, derived: &Table) -> Self {
        let check = Rc::new(Check::new(derived, coordinator.context().rt().now()));
        Self { coordinator: coordinator.clone(), derived: derived.id, check }
    }

    /// The check has ended.
    pub(crate) fn end(&self, outcome: Result<(), Stop>) {
        let ended = match outcome {
            Ok(()) => CheckState::Finished,
            Err(Stop::Cancelled) => CheckState::Cancelled,
            Err(Stop::Failed(why)) => CheckState::Failed(why),
        };
        self.check.end(ended, self.now());
    }

    /// The ranges of tokens that were asked for.
    pub(crate) fn ranges(&self, base: &Table, tokens: CheckedTokens) -> Result<Vec<TokenRange>, Stop> {
        let placement = self.coordinator.context().maps().placement_of(base);
        let (copies, _) = placement.map_err(|error| Stop::Failed(error.to_string()))?;
        let is_straight = !matches!(tokens, CheckedTokens::Between(range) if range.after >= range.upto);
        assert!(is_straight, "tokens of a request are in order");
        Ok(match tokens {
            CheckedTokens::Between(range) => vec![range],
            CheckedTokens::All => vec![TokenRange { after: i64::MIN, upto: i64::MAX }],
            CheckedTokens::Primary => copies.now().primary_ranges_of(self.coordinator.view().own()).collect(),
        })
    }

    /// The command that reads the live rows of a range in pages.
    pub(crate) fn page_of(table: &Arc<Table>, part: TokenRange) -> ReadCommand {
        assert!(part.after < part.upto, "a part has a token");
        // No partition has the smallest token, so that `after` may be it.
        let range = PartitionRange {
            start: RingPosition::AfterToken(part.after),
            end: RingPosition::AfterToken(part.upto),
        };
        Self::paged(ReadCommand::all_of(table.clone(), Partitions::Range(range), 0))
    }

    /// A command that is answered in pages, past the row cache.
    pub(crate) fn paged(command: ReadCommand) -> ReadCommand {
        ReadCommand { limits: PAGE, bypass_cache: true, ..command }
    }

    /// The rows of a command, read in pages.
    pub(crate) async fn pages(
        &self,
        mut command: ReadCommand,
    ) -> Result<Vec<((DecoratedKey, Clustering), Row)>, Stop> {
        let mut rows = Vec::new();
        loop {
            let page = self.read(&command).await?;
            for partition in page.partitions {
                let key = partition.key;
                rows.extend(
                    partition.rows.into_iter().map(|row| ((key.clone(), row.clustering.clone()), row)),
                );
            }
            let Some(more) = page.more else { return Ok(rows) };
            command.resume = Some(more);
        }
    }

    /// Reads from all replicas.
    pub(crate) async fn read(&self, command: &ReadCommand) -> Result<ReadPage, Stop> {
        assert!(command.bypass_cache, "a check leaves the row cache as it is");
        let rt = self.coordinator.context().rt();
        let mut tries = 1;
        loop {
            self.go_on()?;
            let error = match self.coordinator.read(command, Consistency::All, rt.now() + TIMEOUT).await {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            let is_over = self.coordinator.schema().table_by_id(self.derived).is_none();
            if is_over || tries == TRIES || matches!(error, RequestError::Invalid(_)) {
                let name = command.table.full_name();
                return Err(Stop::Failed(format!("{name} cannot be read at ALL: {error}")));
            }
            tries += 1;
            rt.sleep(RETRY_PAUSE).await;
        }
    }

    /// Waits so long after a page that at most so many rows are read in a second.
    pub(crate) async fn pace(&self, began: Instant, page: &ReadPage, rows_per_second: u32) {
        let rows: usize = page.partitions.iter().map(|partition| partition.rows.len()).sum();
        let due = Duration::from_secs(1).mul_f64(rows as f64 / f64::from(rows_per_second.max(1)));
        self.coordinator.context().rt().sleep_until(began + due).await;
    }

    /// Fails when the check is to end.
    pub(crate) fn go_on(&self) -> Result<(), Stop> {
        if self.check.is_cancelled() { Err(Stop::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn now(&self) -> Instant {
        self.coordinator.context().rt().now()
    }

    /// The time by which cells live or have expired.
    pub(crate) fn seconds(&self) -> Seconds {
        Seconds::try_from(self.coordinator.context().rt().wall_micros() / 1_000_000).unwrap_or(0)
    }
}

/// Ranges of tokens that do not go around the ring's end, in the order of the ring.
pub(crate) fn straight(ranges: &[TokenRange]) -> Vec<TokenRange> {
    let mut straight = Vec::with_capacity(ranges.len() + 1);
    for range in ranges {
        if range.after < range.upto {
            straight.push(*range);
        } else {
            straight.push(TokenRange { after: range.after, upto: i64::MAX });
            straight.push(TokenRange { after: i64::MIN, upto: range.upto });
        }
    }
    straight.retain(|range| range.after < range.upto);
    straight.sort();
    assert!(straight.len() <= ranges.len() * 2, "a range goes around the ring's end once");
    straight
}
