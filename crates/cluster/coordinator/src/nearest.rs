//! Searches for the nearest vectors, or the most relevant texts, of a table: of nodes that together have each token as often as the consistency level asks.
//!
//! A node searches all that it has, regardless of the ranges of the others: a graph is walked through once, and not once for
//! each range. So a place may come from several nodes, or from one that has lost it; the rows are read afterwards from their replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use mutation::PartitionRange;
use replica::{Candidate, Candidates, NearestQuery, NearestTo, nearest_codec};
use rpc::Verb;
use rt::Instant;
use schema::Table;
use topology::{NodeIndex, Replicas};

use crate::admission::Admission;
use crate::contact::{self, Needs};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::stamp;
use crate::peer_error::{PeerError, unreadable};
use crate::read::parts;
use crate::reader::{ReadOptions, Reader};
use crate::{Consistency, Coordinator, RequestError};

/// The answers of the nodes that were asked.
type Answers = BTreeMap<NodeIndex, Result<Candidates, PeerError>>;

impl Coordinator {
    /// The places of a table whose vectors are nearest to one, nearest first, or whose texts are the most relevant; each of them once.
    ///
    /// # Errors
    /// As of a read, and when the index is not there or not built yet on a replica.
    pub async fn nearest(
        &self,
        table: &Arc<Table>,
        query: &Arc<NearestQuery>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Candidates, RequestError> {
        let context = self.context();
        match context.maps().kind(table)? {
            Kind::Computed => Err(RequestError::Invalid("Virtual tables have no indexes".to_owned())),
            // Tables of LocalStrategy have no indexes either.
            Kind::Local | Kind::Replicated => {
                let mut search = Nearest { context, table, query };
                let found = search.run(ReadOptions { consistency, deadline }).await?;
                context.record(|| format!("Index {} found {} candidates", query.index, found.places.len()));
                Ok(found)
            }
        }
    }
}

struct Nearest<'a> {
    context: &'a Context,
    table: &'a Arc<Table>,
    query: &'a Arc<NearestQuery>,
}

impl Nearest<'_> {
    async fn run(&mut self, options: ReadOptions) -> Result<Candidates, RequestError> {
        loop {
            let reader = Reader::new(self.context, self.context.maps().of(self.table)?, options);
            let ReadOptions { consistency, deadline } = options;
            self.context.lease().hold(&reader.erm, None, consistency, deadline).await?;
            let found = self.ask(&reader).await;
            let goes_by = reader.erm.view.topology_version();
            let is_final = found.is_ok() || !reader.saw_newer_topology.get();
            if is_final || !Admission(&self.context).catch_up(goes_by, deadline).await {
                return found;
            }
        }
    }

    /// Asks as few nodes as are enough, and others for those that fail.
    async fn ask(&self, reader: &Reader<'_>) -> Result<Candidates, RequestError> {
        let view = &*reader.erm.view;
        let parts = parts(reader.erm.placement.now(), &PartitionRange::all(), None);
        let parts: Vec<Replicas> = parts.into_iter().map(|(_, replicas)| replicas).collect();
        let (consistency, mut answers) = (reader.options.consistency, Answers::new());
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
            let asked = wanted.iter().map(|node| self.ask_node(reader, *node));
            let count = answers.len() + wanted.len();
            answers.extend(wanted.iter().copied().zip(join_all(asked).await));
            assert_eq!(answers.len(), count, "a node is queried once");
            assert!(count <= view.nodes().len(), "only nodes of the view are queried");
        }
        let mut found = Candidates::default();
        answers.into_values().flatten().for_each(|answer| found.add(answer));
        Candidate::keep_nearest(&mut found.places, self.query.count);
        assert!(
            found.places.len() <= self.query.count,
            "a search finds at most as many rows as are requested"
        );
        Ok(found)
    }

    async fn ask_node(&self, reader: &Reader<'_>, node: NodeIndex) -> Result<Candidates, PeerError> {
        let (context, view, deadline) = (self.context, &*reader.erm.view, reader.options.deadline);
        if node == view.own() {
            let _under_way = Admission(&context).admit_own(view)?;
            return context.here(deadline, context.replica().nearest(self.table.id, self.query)).await;
        }
        let len = match &self.query.to {
            NearestTo::Vector(vector) => vector.len() * 4,
            NearestTo::Text(text) => text.len(),
        };
        let mut body = stamp(view, 64 + len);
        nearest_codec::encode_query(self.table.id, self.query, &mut body);
        let answer =
            context.remote().call(view.first_shard(node), Verb::Nearest, body.into(), deadline).await?;
        nearest_codec::decode_candidates(&answer, self.table)
            .ok_or_else(|| unreadable(&"candidates of a search"))
    }
}

/// The error of a search that nodes have failed; that of too few live ones when none has.
fn not_enough(reader: &Reader<'_>, answers: &Answers, unavailable: RequestError) -> RequestError {
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
