//! The statements under way on a shard, for `system_views.queries`.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;

use rt::Instant;
use wire::{Consistency, QueryParameters};

use super::prepared::Prepared;
use crate::redact::redacted;

/// Statements that are listed; later ones are not until others have ended.
const LISTED_MAX: usize = 4_096;
/// Characters of a statement that are listed.
const TEXT_MAX: usize = 1_000;

/// The message of a statement.
pub(super) enum Message {
    /// QUERY, with the text without passwords.
    Query(Rc<str>),
    /// EXECUTE.
    Execute(Rc<Prepared>),
    /// BATCH of so many statements.
    Batch(usize),
}

/// A statement and how it was asked for, put into words when somebody looks.
struct Described {
    message: Message,
    page_size: Option<i32>,
    consistency: Consistency,
}

impl std::fmt::Display for Described {
    /// In Cassandra's words.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.message {
            Message::Query(text) => write!(f, "QUERY {text}")?,
            Message::Execute(prepared) => write!(f, "EXECUTE {}", redacted(&prepared.text))?,
            Message::Batch(count) => write!(f, "BATCH of [{count}] statements")?,
        }
        let page_size = self.page_size.unwrap_or(-1);
        write!(f, " [pageSize = {page_size}] at consistency {}", self.consistency.name())
    }
}

struct Entry {
    number: u64,
    began: Instant,
    described: Described,
}

#[derive(Default)]
struct Listed {
    last: u64,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
}

/// The statements under way.
#[derive(Clone, Default)]
pub(super) struct Running(Rc<RefCell<Listed>>);

/// A statement under way, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningStatement {
    /// Its number on the shard, from 1.
    pub number: u64,
    /// When it began.
    pub began: Instant,
    /// The protocol's message and the text, without passwords.
    pub text: String,
}

/// Lists a statement until it is dropped.
pub(super) struct Listing {
    running: Running,
    place: Option<usize>,
}

impl Running {
    /// The outcome of a statement's work, listed by `begin` from when it first waits: most statements never do, and pay nothing.
    pub(super) async fn listed<F: Future>(
        &self,
        mut work: Pin<&mut F>,
        begin: impl Fn() -> Listing,
    ) -> F::Output {
        let mut listing = None;
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            if polled.is_pending() {
                listing.get_or_insert_with(&begin);
            }
            polled
        })
        .await
    }

    /// Lists a statement from now on.
    pub(super) fn begin(&self, began: Instant, message: Message, parameters: &QueryParameters) -> Listing {
        let (page_size, consistency) = (parameters.page_size, parameters.consistency);
        let described = Described { message, page_size, consistency };
        let mut listed = self.0.borrow_mut();
        listed.last += 1;
        let entry = Entry { number: listed.last, began, described };
        let place = match listed.free.pop() {
            Some(place) => Some(place),
            None if listed.entries.len() < LISTED_MAX => {
                listed.entries.push(None);
                Some(listed.entries.len() - 1)
            }
            None => None,
        };
        if let Some(slot) = place.and_then(|place| listed.entries.get_mut(place)) {
            *slot = Some(entry);
        }
        drop(listed);
        Listing { running: self.clone(), place }
    }

    /// The statements under way, the oldest first.
    pub(super) fn list(&self) -> Vec<RunningStatement> {
        let listed = self.0.borrow();
        let mut all: Vec<RunningStatement> = listed
            .entries
            .iter()
            .flatten()
            .map(|entry| RunningStatement {
                number: entry.number,
                began: entry.began,
                text: entry.described.to_string().chars().take(TEXT_MAX).collect(),
            })
            .collect();
        all.sort_by_key(|statement| statement.number);
        all
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut listed = self.running.0.borrow_mut();
        let entry = listed.entries.get_mut(place).and_then(Option::take);
        assert!(entry.is_some(), "a listed statement ends once");
        listed.free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn statements_are_listed_while_they_run_and_in_bounded_number() {
        let running = Running::default();
        let parameters = QueryParameters::new(Consistency::One);
        let query = |text: &str| running.begin(Instant::START, Message::Query(text.into()), &parameters);
        let texts = || running.list().into_iter().map(|one| (one.number, one.text)).collect::<Vec<_>>();
        let one = query("a");
        let two = query("b");
        drop(one);
        let three = running.begin(Instant::START, Message::Batch(3), &parameters);
        let suffix = format!(" [pageSize = -1] at consistency {}", parameters.consistency.name());
        let expected = [(2, format!("QUERY b{suffix}")), (3, format!("BATCH of [3] statements{suffix}"))];
        assert_eq!(texts(), expected, "a place is used again");
        drop((two, three));
        assert_eq!(texts(), []);
        let many: Vec<Listing> = (0..LISTED_MAX + 5).map(|_| query("x")).collect();
        assert_eq!(running.list().len(), LISTED_MAX);
        drop(many);
        assert_eq!(texts(), []);
        let work = pin!(async {
            assert_eq!(texts(), [], "no statement is listed before it waits");
            rt::preempt::yield_now().await;
            texts().len()
        });
        let mut polled = pin!(running.listed(work, || query("waits")));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(polled.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(polled.as_mut().poll(&mut context), Poll::Ready(1));
        let long = query(&"é".repeat(TEXT_MAX * 2));
        assert_eq!(running.list()[0].text.chars().count(), TEXT_MAX);
        drop(long);
    }
}
