//! Transactions over items of several partitions and tables (docs/design/transactions.md).
//!
//! A transaction writes its record, puts an intent on each of its items, and is committed by one lightweight transaction on its
//! record. A reader that meets an intent reads the record, so all effects become visible at once; and any reader finishes a transaction that a
//! coordinator has left.

use std::rc::Rc;
use std::time::Duration;

use exec::backend::Coordinator;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use items::Item;
use mutation::Timestamp;

use crate::error::{ApiError, ErrorKind, Result};
use crate::intent::{Attempt, Effect, Intent, Prepared, hex};
use crate::record::{Record, Status, decide, items_text};
use crate::settle::conflict;
use crate::store::Store;
use crate::table::{ApiTable, RowKey, RowWrite};

/// Retries of a read of a commit's outcome that was not answered in time.
const COMMIT_TRIES_MAX: usize = 3;
/// After a failed write of a record that begins the next is tried so much later, then twice that, and so on.
const BEGIN_PAUSE: Duration = Duration::from_millis(20);
/// How often it is tried again at most.
const BEGIN_TRIES_MAX: usize = 16;
/// Items that get their intents at once: each is in memory meanwhile.
const PREPARES_AT_ONCE: usize = 25;

/// One item of a transaction.
pub(crate) struct Participant<'a> {
    pub(crate) table: &'a ApiTable,
    pub(crate) key: &'a RowKey,
    /// Its key attributes.
    pub(crate) key_item: &'a Item,
}

/// Decides the change of a participant (by its number), given its item; an error is a reason to cancel.
pub(crate) type DecideEffect<'a> = &'a dyn Fn(usize, Option<&Item>) -> Result<Effect>;

/// The request of a transaction.
pub(crate) struct Origin<'a> {
    /// By which the client repeats it.
    pub(crate) token: Option<&'a str>,
    /// Of the request.
    pub(crate) fingerprint: u128,
}

/// How a transaction ended.
pub(crate) enum Verdict {
    /// It is done.
    Committed,
    /// An earlier request with the same token has done it.
    Repeated,
    /// It is not: why, for each participant; none for those that were not the reason.
    Cancelled(Vec<Option<ApiError>>),
}

/// An attempt to carry a transaction out.
pub(crate) struct Own<'a> {
    /// Of its record.
    pub(crate) key: &'a str,
    pub(crate) attempt: Attempt,
    pub(crate) participants: &'a [Participant<'a>],
    /// The intents of the participants, as far as they are known: by their numbers.
    pub(crate) prepared: Vec<Option<Prepared>>,
}

/// How the record of a transaction was found.
enum Begun {
    Started,
    Done,
    Failed(ApiError),
}

impl<C: Coordinator> Store<'_, C> {
    /// Carries a transaction out.
    pub(crate) async fn transaction(
        &self,
        origin: Origin<'_>,
        participants: &[Participant<'_>],
        decide: DecideEffect<'_>,
    ) -> Result<Verdict> {
        let attempt = Attempt::from_be_bytes(self.executor.clock().random());
        let key = match origin.token {
            Some(token) => format!("token:{token}"),
            None => hex(attempt),
        };
        let fresh = Record {
            status: Status::Pending,
            attempt,
            fingerprint: origin.fingerprint,
            begun: self.executor.clock().wall_micros(),
            items: items_text(participants.iter().map(|one| (one.table.name(), one.key_item))),
            datacenter: Some(self.datacenter()),
        };
        match self.begin_record(&key, &fresh).await? {
            Begun::Started => {}
            Begun::Done => return Ok(Verdict::Repeated),
            Begun::Failed(error) => return Err(error),
        }
        let prepare = |(at, one)| self.prepare(one, (&key, attempt), move |item| decide(at, item));
        let prepares = stream::iter(participants.iter().enumerate().map(prepare));
        let prepares: Vec<Result<_>> = prepares.buffered(PREPARES_AT_ONCE).collect().await;
        let mut own = Own { key: &key, attempt, participants, prepared: Vec::new() };
        if prepares.iter().all(Result::is_ok) {
            own.prepared = prepares.into_iter().map(|known| known.unwrap_or(None)).collect();
            return self.conclude(&own, &fresh).await;
        }
        let (prepared, reasons) = prepares
            .into_iter()
            .map(|one| match one {
                Ok(known) => (known, None),
                Err(error) => (None, Some(error)),
            })
            .unzip::<_, _, _, Vec<Option<ApiError>>>();
        own.prepared = prepared;
        self.cancel(&own).await;
        match reasons.iter().flatten().find(|error| !error.is_reason()) {
            Some(error) => Err(error.clone()),
            None => Ok(Verdict::Cancelled(reasons)),
        }
    }

    /// Commits an attempt whose items all have their intents, and carries it out.
    async fn conclude(&self, own: &Own<'_>, fresh: &Record) -> Result<Verdict> {
        let (status, at) = self.commit(own).await?;
        match status {
            Status::Committed | Status::Applied => {
                let record = at.map(|at| (fresh, at));
                self.apply(own, record).await;
                Ok(Verdict::Committed)
            }
            // Another has taken it for abandoned.
            Status::Pending | Status::Cancelled => {
                self.finish_all(own, false).await;
                Ok(Verdict::Cancelled(own.participants.iter().map(|_| Some(conflict())).collect()))
            }
        }
    }

    /// Takes the record for a new attempt. The first transaction of a cluster makes the table of records, and while several nodes do so at once, or do
    /// not use it yet, their replicas refuse requests to it: then it is tried again, as long as the request has time.
    async fn begin_record(&self, key: &str, fresh: &Record) -> Result<Begun> {
        let deadline = self.deadline(self.executor.limits().write_timeout);
        let (mut pause, mut tries) = (BEGIN_PAUSE, 0);
        loop {
            let begun = match self.records_table().await {
                Ok(table) => self.change_record(&table, key, |found| begin(found, fresh)).await,
                Err(error) => Err(error),
            };
            match begun {
                Err(error) if error.kind == ErrorKind::InternalServer => {
                    if tries == BEGIN_TRIES_MAX || self.executor.clock().now() + pause >= deadline {
                        return Err(error);
                    }
                    tracing::debug!("the record of transaction {key} is tried again: {}", error.message);
                }
                begun => return begun,
            }
            self.executor.clock().pause(pause).await;
            (pause, tries) = (pause * 2, tries + 1);
        }
    }

    /// Puts an intent on an item. It is returned unless it is large.
    async fn prepare(
        &self,
        one: &Participant<'_>,
        (record, attempt): (&str, Attempt),
        decide: impl Fn(Option<&Item>) -> Result<Effect>,
    ) -> Result<Option<Prepared>> {
        let mut prepared = None;
        let mut decided = |item: Option<Rc<Item>>, at: Timestamp| {
            let (effect, on_item) = (decide(item.as_deref())?, item.is_some());
            let intent = Rc::new(Intent { record: record.to_owned(), attempt, effect, on_item });
            prepared = intent.is_small().then(|| Prepared { intent: intent.clone(), at });
            Ok(Some(RowWrite::Prepare(intent)))
        };
        self.agree_at(one.table, one.key, &mut decided).await?;
        Ok(prepared)
    }

    /// Decides that an attempt is committed; the final decision. Its time, if this has written the decision.
    async fn commit(&self, own: &Own<'_>) -> Result<(Status, Option<Timestamp>)> {
        let table = self.records_table().await?;
        let (mut tries, mut written_at) = (0, None);
        loop {
            tries += 1;
            let decided = self.change_record_at(&table, own.key, |found, at| {
                let (written, status) = decide(found, own.attempt, Status::Committed);
                if written.is_some() {
                    written_at = Some(at);
                }
                (written, status)
            });
            match decided.await {
                Err(error) if tries == COMMIT_TRIES_MAX => return Err(error),
                Err(_) => {}
                Ok(status) => return Ok((status, written_at)),
            }
        }
    }

    /// Cancels an attempt and takes its intents back, as far as that is possible now.
    pub(crate) async fn cancel(&self, own: &Own<'_>) {
        let Ok(table) = self.records_table().await else { return };
        let cancelled =
            self.change_record(&table, own.key, |found| decide(found, own.attempt, Status::Cancelled));
        // A reader that meets an intent cancels the attempt when it is abandoned.
        if let Ok(Status::Cancelled) = cancelled.await {
            self.finish_all(own, false).await;
        }
    }

    /// Carries out the effects of a committed attempt; the remaining ones are carried out by readers that meet them, and by the sweep. `record` is its
    /// record with the time at which it became committed, where that is known.
    pub(crate) async fn apply(&self, own: &Own<'_>, record: Option<(&Record, Timestamp)>) {
        if !self.finish_all(own, true).await {
            return;
        }
        let Ok(table) = self.records_table().await else { return };
        let applied = match record {
            // Nothing else follows the decision, so it needs no other.
            Some((record, committed_at)) => {
                let applied = Record { status: Status::Applied, ..record.clone() };
                self.write(vec![self.record_update(&table, own.key, &applied, committed_at + 1)]).await
            }
            None => {
                let change = |found| decide(found, own.attempt, Status::Applied);
                self.change_record(&table, own.key, change).await.map(|_| ())
            }
        };
        if let Err(error) = applied {
            tracing::debug!("the record of transaction {} stays: {}", own.key, error.message);
        }
    }

    async fn finish_all(&self, own: &Own<'_>, committed: bool) -> bool {
        let left_out = self.canaries.partial_commit.then(|| own.participants.len() - 1);
        let finished = own.participants.iter().enumerate().map(|(at, one)| async move {
            let committed = committed && left_out != Some(at);
            match own.prepared.get(at) {
                Some(Some(prepared)) => self.finish(one.table, one.key, prepared, committed).await,
                _ => {
                    let attempt = (own.key, own.attempt);
                    self.finish_by_agreement(one.table, one.key, attempt, committed).await
                }
            }
        });
        join_all(finished).await.into_iter().all(|result| result.is_ok())
    }
}

/// Takes a record for a new attempt. A token that is used again stands for the same transaction.
fn begin(found: Option<Record>, fresh: &Record) -> (Option<Record>, Begun) {
    let Some(found) = found else { return (Some(fresh.clone()), Begun::Started) };
    if found.fingerprint != fresh.fingerprint {
        let text = "Provided idempotent token is already used with a different set of parameters";
        let error = ApiError::new(ErrorKind::IdempotentParameterMismatch, text);
        return (None, Begun::Failed(error));
    }
    match found.status {
        Status::Committed | Status::Applied => (None, Begun::Done),
        Status::Cancelled => (Some(fresh.clone()), Begun::Started),
        // An earlier try of this attempt, which seemed to have failed.
        Status::Pending if found.attempt == fresh.attempt => (None, Begun::Started),
        Status::Pending if found.is_abandoned(fresh.begun) => (Some(fresh.clone()), Begun::Started),
        Status::Pending => {
            let text = "Transaction with the provided token is in progress";
            (None, Begun::Failed(ApiError::new(ErrorKind::TransactionInProgress, text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_for_one_transaction() {
        let fresh = Record { begun: 5, ..Record::empty(Status::Pending, 2) };
        assert!(matches!(begin(None, &fresh), (Some(_), Begun::Started)));
        assert!(matches!(
            begin(Some(Record::empty(Status::Cancelled, 1)), &fresh),
            (Some(_), Begun::Started)
        ));
        for done in [Status::Committed, Status::Applied] {
            assert!(matches!(begin(Some(Record::empty(done, 1)), &fresh), (None, Begun::Done)));
        }
        let (None, Begun::Failed(error)) = begin(Some(Record::empty(Status::Pending, 1)), &fresh) else {
            panic!("a transaction in progress is begun again");
        };
        assert_eq!(error.kind, ErrorKind::TransactionInProgress);
        assert!(matches!(begin(Some(fresh.clone()), &fresh), (None, Begun::Started)));
        let late = Record { begun: 60_000_000, ..fresh.clone() };
        assert!(matches!(begin(Some(Record::empty(Status::Pending, 1)), &late), (Some(_), Begun::Started)));
        let other = Record { fingerprint: 2, ..fresh };
        let (None, Begun::Failed(error)) = begin(Some(Record::empty(Status::Applied, 1)), &other) else {
            panic!("a token is used for two requests");
        };
        assert_eq!(error.kind, ErrorKind::IdempotentParameterMismatch);
    }
}
