//! Questions to whole nodes, which together have each token of a range as often as the consistency level asks.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use mutation::PartitionRange;
use schema::Table;
use topology::{NodeIndex, Replicas};

use crate::RequestError;
use crate::admission::Admission;
use crate::contact::{self, Needs};
use crate::context::Context;
use crate::peer_error::PeerError;
use crate::read::parts;
use crate::reader::{ReadOptions, Reader};

/// The answers of the nodes that were asked.
type Answers<T> = BTreeMap<NodeIndex, Result<T, PeerError>>;

/// A question about a range of a table that each node answers of all that it has.
pub(crate) struct Covering<'a> {
    pub(crate) context: &'a Context,
    pub(crate) table: &'a Table,
    pub(crate) range: PartitionRange,
}

impl Covering<'_> {
    /// The answers of as few nodes as are enough; others are asked for those that fail.
    ///
    /// # Errors
    /// As of a read, and the nodes' own.
    pub(crate) async fn ask<T>(
        &self,
        options: ReadOptions,
        ask: impl AsyncFn(&Reader<'_>, NodeIndex) -> Result<T, PeerError>,
    ) -> Result<Vec<T>, RequestError> {
        loop {
            let reader = Reader::new(self.context, self.context.maps().of(self.table)?, options);
            let ReadOptions { consistency, deadline } = options;
            self.context.lease().hold(&reader.erm, None, consistency, deadline).await?;
            let found = self.ask_once(&reader, &ask).await;
            let goes_by = reader.erm.view.topology_version();
            let is_final = found.is_ok() || !reader.saw_newer_topology.get();
            if is_final || !Admission(&self.context).catch_up(goes_by, deadline).await {
                return found;
            }
        }
    }

    async fn ask_once<T>(
        &self,
        reader: &Reader<'_>,
        ask: &impl AsyncFn(&Reader<'_>, NodeIndex) -> Result<T, PeerError>,
    ) -> Result<Vec<T>, RequestError> {
        let view = &*reader.erm.view;
        let parts = parts(reader.erm.placement.now(), &self.range, None);
        let parts: Vec<Replicas> = parts.into_iter().map(|(_, replicas)| replicas).collect();
        let (consistency, mut answers) = (reader.options.consistency, Answers::<T>::new());
        let needs = Needs::new(consistency, &reader.erm.replication, view, &[]);
        loop {
            let mut wanted: Vec<NodeIndex> = Vec::new();
            for replicas in &parts {
                let mut candidates = contact::candidates(
                    view,
                    replicas,
                    0,
                    &self.context.read_latencies().slow_among(view, replicas),
                );
                candidates.retain(|node| !matches!(answers.get(node), Some(Err(_))));
                // Nodes that are queried anyway come first.
                candidates.sort_by_key(|node| !(wanted.contains(node) || answers.contains_key(node)));
                let chosen = needs.choose(consistency, view, &candidates);
                let chosen = chosen.map_err(|unavailable| not_enough(reader, &answers, unavailable))?;
                for node in chosen {
                    if !wanted.contains(&node) {
                        wanted.push(node);
                    }
                }
            }
            wanted.retain(|node| !answers.contains_key(node));
            if wanted.is_empty() {
                break;
            }
            let asked = wanted.iter().map(|node| ask(reader, *node));
            let count = answers.len() + wanted.len();
            answers.extend(wanted.iter().copied().zip(join_all(asked).await));
            assert_eq!(answers.len(), count, "a node is queried once");
            assert!(count <= view.nodes().len(), "only nodes of the view are queried");
        }
        Ok(answers.into_values().flatten().collect())
    }
}

/// The error of a question that nodes have failed; that of too few live ones when none has.
fn not_enough<T>(reader: &Reader<'_>, answers: &Answers<T>, unavailable: RequestError) -> RequestError {
    let errors: Vec<(NodeIndex, PeerError)> =
        answers.iter().filter_map(|(node, answer)| Some((*node, answer.as_ref().err()?.clone()))).collect();
    match (errors.is_empty(), unavailable) {
        (false, RequestError::Unavailable { required, .. }) => {
            let received = answers.len() - errors.len();
            assert!(required > 0, "too few nodes are fewer than are needed");
            reader.not_enough(received.min(required as usize - 1), required as usize, false, &errors)
        }
        (_, unavailable) => unavailable,
    }
}
