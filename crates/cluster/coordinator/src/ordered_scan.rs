//! Scans of an ordered index: the first places of nodes that together have each token as often as the consistency level asks.
//!
//! As of a search for the nearest vectors, a node scans all that it has, and the rows are read afterwards from their replicas.

use std::sync::Arc;

use replica::{OrderedPlaces, OrderedScan, UNORDERED_MAX, ordered_scan_codec};
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
    /// The first places of a table in the order of one of its ordered indexes.
    ///
    /// # Errors
    /// As of a read, and when the index is not there or not built yet on a replica.
    pub async fn scan_index(
        &self,
        table: &Arc<Table>,
        scan: &Arc<OrderedScan>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<OrderedPlaces, RequestError> {
        assert!(scan.count > 0, "a scan is for some places");
        let context = self.context();
        match context.maps().kind(table)? {
            Kind::Computed => Err(RequestError::Invalid("Virtual tables have no indexes".to_owned())),
            // Tables of LocalStrategy have no indexes either.
            Kind::Local | Kind::Replicated => {
                let covering = Covering { context, table, range: scan.range() };
                let options = ReadOptions { consistency, deadline };
                let ask =
                    async |reader: &Reader<'_>, node| ask_node(context, (table, scan), reader, node).await;
                let mut found = OrderedPlaces::default();
                covering.ask(options, ask).await?.into_iter().for_each(|answer| found.add(answer));
                found.finish(scan);
                assert!(
                    found.places.len() <= scan.count,
                    "a scan finds at most as many places as are requested"
                );
                assert!(found.unordered.len() <= UNORDERED_MAX, "unordered places are bounded");
                context.record(|| {
                    let (ordered, others) = (found.places.len(), found.unordered.len());
                    format!("Index {} found {ordered} candidates in order, and {others} others", scan.index)
                });
                Ok(found)
            }
        }
    }
}

async fn ask_node(
    context: &Context,
    (table, scan): (&Arc<Table>, &Arc<OrderedScan>),
    reader: &Reader<'_>,
    node: NodeIndex,
) -> Result<OrderedPlaces, PeerError> {
    let (view, deadline) = (&*reader.erm.view, reader.options.deadline);
    if node == view.own() {
        let _under_way = Admission(&context).admit_own(view)?;
        return context.here(deadline, context.replica().scan_index(table.id, scan)).await;
    }
    let mut body = stamp(view, 128 + scan.start.len() + scan.end.len());
    ordered_scan_codec::encode_scan(table.id, scan, &mut body);
    let answer =
        context.remote().call(view.first_shard(node), Verb::ScanIndex, body.into(), deadline).await?;
    ordered_scan_codec::decode_places(&answer, table).ok_or_else(|| unreadable(&"places of an index"))
}
