//! Asks replicas until enough have answered: some at first, and another one for each that fails or is slow (`speculative_retry`).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use schema::Table;
use topology::{NodeIndex, Replicas};

use crate::RequestError;
use crate::contact::{Needs, Tally};
use crate::peer_error::{self, PeerError};
use crate::reader::Reader;

/// A request to one replica, and its answer.
pub(crate) type Asked<'f, T> = Pin<Box<dyn Future<Output = (NodeIndex, Result<T, PeerError>)> + 'f>>;

/// The answers of a read's replicas to one question.
pub(crate) struct Quorum<'a> {
    reader: &'a Reader<'a>,
    table: &'a Arc<Table>,
    tally: Tally,
    /// How many replicas there are to ask.
    replicas: usize,
    /// Those that answered, in this order.
    answered: Replicas,
    errors: Vec<(NodeIndex, PeerError)>,
}

impl<'a> Quorum<'a> {
    /// Of the replicas `all`, as many as `needs` says.
    pub(crate) fn new(
        reader: &'a Reader<'a>,
        table: &'a Arc<Table>,
        needs: &Needs,
        all: &[NodeIndex],
    ) -> Self {
        let tally = Tally::new(needs, &reader.erm.view, all);
        Self { reader, table, tally, replicas: all.len(), answered: Replicas::new(), errors: Vec::new() }
    }

    /// Counts a replica that need not be asked.
    pub(crate) fn acknowledge(&mut self, node: NodeIndex) {
        self.tally.acknowledge(node, self.reader.erm.view.datacenter(node));
        self.answered.push(node);
        self.assert_counted_once();
    }

    /// A replica has answered or failed, or neither.
    fn assert_counted_once(&self) {
        assert!(self.answered.len() + self.errors.len() <= self.replicas, "a replica is counted once");
    }

    /// Asks the `first` ones, and of the `spare` ones the next for each that fails or lets `speculative_retry` pass, until enough have
    /// answered, too many have failed or the deadline is over. `ask` receives the nodes that have answered; `take` gets each answer
    /// and says whether the answers are complete, apart from their number.
    pub(crate) async fn ask<'f, T>(
        &mut self,
        first: &[NodeIndex],
        mut spare: VecDeque<NodeIndex>,
        ask: impl Fn(NodeIndex, &[NodeIndex]) -> Asked<'f, T>,
        mut take: impl FnMut(T) -> bool,
    ) {
        debug_assert!(!spare.iter().any(|node| first.contains(node)), "a spare replica is queried later");
        let (context, view) = (self.reader.context, &self.reader.erm.view);
        let (rt, deadline) = (context.rt(), self.reader.options.deadline);
        let mut asked: FuturesUnordered<Asked<'f, T>> = FuturesUnordered::new();
        for node in first {
            asked.push(ask(*node, &self.answered));
        }
        let delay = context.read_latencies().speculation(self.table);
        let mut speculate = delay.map(|delay| rt.now() + delay);
        let mut complete = false;
        while !(complete && self.tally.is_met()) {
            let until = speculate.filter(|_| !spare.is_empty()).unwrap_or(deadline).min(deadline);
            let wants_another = match rt.timeout_at(until, asked.next()).await {
                Ok(Some((node, Ok(answer)))) => {
                    complete = take(answer);
                    self.tally.acknowledge(node, view.datacenter(node));
                    self.answered.push(node);
                    false
                }
                Ok(Some((node, Err(error)))) => {
                    self.tally.fail(node, view.datacenter(node));
                    self.errors.push((node, error));
                    true
                }
                Ok(None) => break,
                Err(_) if rt.now() >= deadline => break,
                Err(_) => {
                    // Those asked are slow: one more; and after as long the next, for it may be as slow.
                    speculate = delay.filter(|delay| !delay.is_zero()).map(|delay| rt.now() + delay);
                    context.count(|stats| stats.speculated += 1);
                    true
                }
            };
            self.assert_counted_once();
            if wants_another && let Some(node) = spare.pop_front() {
                asked.push(ask(node, &self.answered));
            }
            // While all that failed were silent it is a timeout, whose count has every answer that comes in time.
            if self.tally.is_hopeless() && !peer_error::all_silent(&self.errors) {
                break;
            }
        }
    }

    /// The nodes that answered, in the order of the answers.
    ///
    /// # Errors
    /// When those are not enough, or the answers are not `complete`. `data_present` goes into the client's error.
    pub(crate) fn answered(self, complete: bool, data_present: bool) -> Result<Replicas, RequestError> {
        let received = self.tally.received() as usize;
        assert!(received <= self.answered.len(), "no more answers count than came");
        if complete && self.tally.is_met() {
            assert!(received >= self.tally.required() as usize, "a quorum has as many answers as it needs");
            return Ok(self.answered);
        }
        let required = self.tally.required() as usize;
        Err(self.reader.not_enough(received, required, data_present, &self.errors))
    }
}
