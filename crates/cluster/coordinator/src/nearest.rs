//! Searches for the nearest vectors, or the most relevant texts, of a table.
//!
//! A node searches all that it has, regardless of the ranges of the others: a graph is walked through once, and not once for
//! each range. So a place may come from several nodes, or from one that has lost it; the rows are read afterwards from their replicas.

use std::sync::Arc;

use mutation::PartitionRange;
use replica::{Candidate, Candidates, NearestQuery, NearestTo, nearest_codec};
use rpc::Verb;
use rt::Instant;
use schema::Table;
use topology::NodeIndex;

use crate::admission::Admission;
use crate::context::Context;
use crate::covering::Covering;
use crate::kind::Kind;
use crate::message::stamp;
use crate::peer_error::{PeerError, unreadable};
use crate::reader::{ReadOptions, Reader};
use crate::{Consistency, Coordinator, RequestError};

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
                let search = Nearest { context, table, query };
                let covering = Covering { context, table, range: PartitionRange::all() };
                let options = ReadOptions { consistency, deadline };
                let answers =
                    covering.ask(options, async |reader, node| search.ask_node(reader, node).await).await?;
                let mut found = Candidates::default();
                answers.into_iter().for_each(|answer| found.add(answer));
                Candidate::keep_nearest(&mut found.places, query.count);
                assert!(
                    found.places.len() <= query.count,
                    "a search finds at most as many rows as are requested"
                );
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
