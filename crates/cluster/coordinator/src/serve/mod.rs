//! This node's answers to other nodes (`message` has the bodies), and each shard's answers to the others of its node.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod base_hints;
mod forward;
mod shards;
mod traced;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutation::PartitionUpdate;
use mutation::codec::DecodedUpdates;
use replica::{
    Origin, Partitions, Read, ReadCommand, ReadPage, Replica, ReplicaError, TraceLog, Truncation, Write,
};
use replica::{nearest_codec, ordered_scan_codec, read_codec};
use rpc::{Messenger, Refusal, Verb};
use schema::{Schema, TableId};
use stdx::Reader;
use topology::HostId;

use self::base_hints::{BaseHints, has_followers};
use crate::admission::Admission;
use crate::context::Context;
use crate::counter::add_here;
use crate::given_id::GivenId;
use crate::logged::Batches;
use crate::message::{
    ASKS_TRUNCATION, ASKS_TRUNCATION_PERMIT, ASKS_VIEW_BUILD, CHECKS_GIVEN_ID, REBUILDS_VIEWS, STAMP_LEN,
    TRUNCATE_VERSIONS, decode_received, encode_updates, ring_of, split_begun,
};
use crate::paxos;
use crate::peer_error::{code, malformed, not_heard, refusal, stale_topology, unread};
use crate::rate_check::RateCheck;
use crate::truncate::Truncations;
use crate::truncation_permit::TruncationPermit;
use crate::view_builds::ViewBuildStatus;
use crate::{Coordinator, Operation};

impl Coordinator {
    /// Reaches the other nodes through `messenger` from now on, and answers them.
    ///
    /// # Panics
    /// When it is called twice.
    pub fn connect(&self, messenger: &Messenger) {
        self.context().connect(messenger);
        serve(self, messenger);
    }
}

/// This node's answers to other nodes.
fn serve(coordinator: &Coordinator, messenger: &Messenger) {
    let server = Rc::new(Server::new(coordinator));
    let on = |verb: Verb| {
        let server = server.clone();
        messenger.serve(verb, move |incoming| {
            let server = server.clone();
            async move { server.answer(verb, (incoming.from, incoming.body), None).await }
        });
    };
    let traced = server.clone();
    messenger.serve(Verb::Traced, move |incoming| {
        let server = traced.clone();
        async move { server.answer_traced(incoming).await }
    });
    forward::serve(coordinator, messenger);
    serve_ring(coordinator.context(), messenger);
    [
        Verb::Read,
        Verb::ReadDigest,
        Verb::Nearest,
        Verb::ScanIndex,
        Verb::Apply,
        Verb::ReadRepair,
        Verb::Hint,
        Verb::Increment,
        Verb::PaxosPrepare,
        Verb::PaxosPropose,
        Verb::PaxosCommit,
        Verb::Truncate,
        Verb::BatchStore,
        Verb::BatchRemove,
    ]
    .into_iter()
    .for_each(on);
}

pub(super) struct Server {
    coordinator: Coordinator,
    base_hints: BaseHints,
}

impl Server {
    fn new(coordinator: &Coordinator) -> Self {
        Self { coordinator: coordinator.clone(), base_hints: BaseHints::default() }
    }

    fn schema(&self) -> Arc<Schema> {
        self.coordinator.context().schema()
    }

    fn batches(&self) -> Batches<'_> {
        Batches::new(self.coordinator.context(), &self.coordinator.operations().batchlog)
    }

    fn replica(&self) -> &Replica {
        self.coordinator.context().replica()
    }

    /// Answers a request of a host.
    async fn answer(
        &self,
        verb: Verb,
        (from, body): (HostId, Bytes),
        trace: Option<&TraceLog>,
    ) -> Result<Bytes, Refusal> {
        let ring = ring_of(&body);
        // The nodes that store a batch are not chosen by a token.
        let (body, _under_way) = match verb {
            Verb::BatchStore | Verb::BatchRemove => (body, None),
            _ => {
                Admission(&self.coordinator.context()).admit(body).map(|(body, guard)| (body, Some(guard)))?
            }
        };
        match verb {
            Verb::Read => {
                let (command, page) = self.read((from, &body), trace).await?;
                let mut out = Vec::with_capacity(256);
                read_codec::encode_page(&command, page, &mut out).await;
                Ok(out.into())
            }
            Verb::ReadDigest => {
                let (command, page) = self.read((from, &body), trace).await?;
                let digest = self.coordinator.context().digest_of(&command, &page).await;
                replica::steps::free_page(page).await;
                Ok(Bytes::copy_from_slice(&digest.to_be_bytes()))
            }
            Verb::Nearest => self.nearest(&body).await,
            Verb::ScanIndex => self.scan_index(&body).await,
            Verb::Hint => self.hint(&body, ring).await,
            Verb::Apply => self.apply(from, (ring, &body), trace).await,
            Verb::ReadRepair => self.read_repair((ring, &body), trace).await,
            Verb::Increment => {
                let mut states = Vec::new();
                let updates = self.updates(&body)?.updates;
                Admission(&self.coordinator.context()).check_owned(ring, &updates)?;
                self.check_rates(from, &updates).await?;
                for update in updates {
                    let state = add_here(self.coordinator.context(), update, trace).await;
                    states.push(state.map_err(|error| refusal(&error))?);
                }
                Ok(encode_updates(&states))
            }
            Verb::PaxosPrepare | Verb::PaxosPropose | Verb::PaxosCommit => {
                paxos::answer(&self.coordinator.lwt(), verb, (ring, &body), trace).await
            }
            // A node that joins by a newer topology version would not be notified.
            Verb::Truncate if self.coordinator.context().fence().is_earlier(ring) => {
                Err(stale_topology(ring))
            }
            Verb::Truncate => self.truncate(&body).await,
            Verb::BatchStore => {
                let kept = self.batches().keep_batch_of_another(&body)?.await;
                kept.map(|()| Bytes::new()).map_err(|error| refusal(&error))
            }
            Verb::BatchRemove => {
                let removed = self.batches().remove_batch_of_another(&body)?.await;
                removed.map(|()| Bytes::new()).map_err(|error| refusal(&error))
            }
            other => Err(malformed(format!("{} is not served here", other.name()))),
        }
    }

    /// Applies the rows that a read has found this replica to lack.
    async fn read_repair(
        &self,
        (ring, body): (u64, &Bytes),
        trace: Option<&TraceLog>,
    ) -> Result<Bytes, Refusal> {
        let mut reader = Reader::new(body);
        let times = (reader.i64(), reader.i64());
        let (Ok(begun_micros), Ok(truncated_at)) = times else {
            return Err(malformed("the message ends too early"));
        };
        let received = self.updates(&body.slice_ref(reader.rest()))?;
        Admission(&self.coordinator.context()).check_owned(ring, &received.updates)?;
        let write = Write::received(Origin::ReadRepair, received).in_parts();
        let write = write.with_truncation(Truncation::LeavesOutRead { begun_micros, truncated_at });
        let applied = self.replica().apply(write.traced(trace)).await;
        applied.map(|()| Bytes::new()).map_err(|error| refusal(&error))
    }

    async fn apply(
        &self,
        from: HostId,
        (ring, body): (u64, &Bytes),
        trace: Option<&TraceLog>,
    ) -> Result<Bytes, Refusal> {
        let (begun_micros, updates) = split_begun(body)?;
        let received = self.updates(&updates)?;
        Admission(&self.coordinator.context()).check_owned(ring, &received.updates)?;
        let counts = received.updates.iter().any(|update| update.table.is_counter());
        if !counts {
            // An increment has been counted where it was coordinated and where it was added.
            self.check_rates(from, &received.updates).await?;
        }
        let origin = if counts { Origin::Counter } else { Origin::Client };
        let write = Write::received(origin, received).with_truncation(Truncation::Refuses(begun_micros));
        match self.replica().apply(write.traced(trace)).await {
            Ok(()) => Ok(Bytes::new()),
            Err(ReplicaError::Truncated(at_micros)) => Ok(Bytes::copy_from_slice(&at_micros.to_be_bytes())),
            Err(error) => Err(refusal(&error)),
        }
    }

    async fn hint(&self, body: &Bytes, ring: u64) -> Result<Bytes, Refusal> {
        let (begun_micros, updates) = split_begun(body)?;
        let received = self.updates(&updates)?;
        Admission(&self.coordinator.context()).check_owned(ring, &received.updates)?;
        let schema = self.schema();
        let _room = match received.updates.iter().any(|update| has_followers(&schema, &update.table)) {
            true => Some(self.base_hints.begin(body.len()).ok_or_else(|| {
                let why = "too many late writes of tables with views or CDC are being applied";
                Refusal::new(Refusal::OVERLOADED, why)
            })?),
            false => None,
        };
        let write =
            Write::received(Origin::Hint, received).with_truncation(Truncation::LeavesOut(begun_micros));
        let applied = self.replica().apply(write).await;
        applied.map(|()| Bytes::new()).map_err(|error| refusal(&error))
    }

    /// Refuses writes that a host coordinates and whose partitions have reached their limit.
    async fn check_rates(&self, from: HostId, updates: &[PartitionUpdate]) -> Result<(), Refusal> {
        let context = self.coordinator.context();
        for update in updates.iter().filter(|update| update.table.is_rate_limited()) {
            RateCheck(&context).check_for(from, &update.table, update.key.token, Operation::Write).await?;
        }
        Ok(())
    }

    async fn read(
        &self,
        (from, body): (HostId, &Bytes),
        trace: Option<&TraceLog>,
    ) -> Result<(ReadCommand, ReadPage), Refusal> {
        let schema = self.schema();
        let command =
            read_codec::decode_command(body, |id| schema.table_by_id(id).cloned()).map_err(unread)?;
        if command.table.is_rate_limited()
            && let Partitions::Keys(keys) = &command.partitions
        {
            let context = self.coordinator.context();
            for key in keys {
                RateCheck(&context).check_for(from, &command.table, key.token, Operation::Read).await?;
            }
        }
        let page = self.replica().read(Read::of(&command).traced(trace)).await;
        Ok((command, page.map_err(|error| refusal(&error))?))
    }

    async fn nearest(&self, body: &Bytes) -> Result<Bytes, Refusal> {
        let query = nearest_codec::decode_query(body);
        let (table, query) = query.ok_or_else(|| malformed("a search that this node cannot read"))?;
        let found = self.replica().nearest(table, &Arc::new(query)).await;
        let mut out = Vec::with_capacity(256);
        nearest_codec::encode_candidates(&found.map_err(|error| refusal(&error))?, &mut out);
        Ok(out.into())
    }

    async fn scan_index(&self, body: &Bytes) -> Result<Bytes, Refusal> {
        let schema = self.schema();
        let scan = ordered_scan_codec::decode_scan(body, |id| schema.table_by_id(id).cloned());
        let (table, scan) = scan.ok_or_else(|| malformed("a scan of an index that this node cannot read"))?;
        let found = self.replica().scan_index(table, &Arc::new(scan)).await;
        let mut out = Vec::with_capacity(256);
        ordered_scan_codec::encode_places(&found.map_err(|error| refusal(&error))?, &mut out);
        Ok(out.into())
    }

    fn updates(&self, body: &Bytes) -> Result<DecodedUpdates, Refusal> {
        let schema = self.schema();
        // A stored body must not keep the connection's whole buffer alive.
        let body = Bytes::copy_from_slice(body);
        decode_received(&body, self.coordinator.context().layouts(), |id| schema.table_by_id(id).cloned())
    }

    async fn truncate(&self, body: &Bytes) -> Result<Bytes, Refusal> {
        let mut reader = Reader::new(body);
        let short = |_| malformed("the message ends too early");
        let version = reader.u8().map_err(short)?;
        if !TRUNCATE_VERSIONS.contains(&version) {
            return Err(malformed("a version of truncations that this node does not know"));
        }
        let table = TableId(reader.array().map_err(short)?);
        let failed = |message| Refusal::new(code::STORAGE, message);
        let truncations = Truncations::new(self.coordinator.context());
        match version {
            ASKS_TRUNCATION => {
                let times = truncations.truncated_at(table).await;
                Ok(times.into_iter().flat_map(i64::to_be_bytes).collect())
            }
            ASKS_VIEW_BUILD => {
                self.coordinator.view_build_here(table).await.map(ViewBuildStatus::encode).map_err(failed)
            }
            REBUILDS_VIEWS => {
                truncations.rebuild_views_here(table).await.map(|()| Bytes::new()).map_err(failed)
            }
            CHECKS_GIVEN_ID => {
                let version = reader.array().map_err(short)?;
                let checked = GivenId(self.coordinator.context()).check_here(table, version).await;
                checked.map(|()| Bytes::new()).map_err(failed)
            }
            ASKS_TRUNCATION_PERMIT => {
                let mut answer = Vec::with_capacity(16);
                truncations.permit(Duration::from_nanos(reader.u64().map_err(short)?)).encode(&mut answer);
                Ok(answer.into())
            }
            _ => {
                let at_micros = reader.i64().map_err(short)?;
                let permit = TruncationPermit::decode(&mut reader).map_err(short)?;
                let truncated = truncations.truncate_by(permit, table, at_micros).await;
                truncated.map(|at| Bytes::copy_from_slice(&at.to_be_bytes())).map_err(failed)
            }
        }
    }
}

/// Answers nodes that make this node learn of a topology version.
fn serve_ring(context: &Context, messenger: &Messenger) {
    let server = context.clone();
    messenger.serve(Verb::Ring, move |incoming| {
        let context = server.clone();
        async move {
            let Ok(number) = <[u8; STAMP_LEN]>::try_from(&*incoming.body) else {
                return Err(malformed("the number of a ring has 8 bytes"));
            };
            let ring = u64::from_be_bytes(number);
            match Admission(&context).enforce_here(ring, incoming.deadline).await {
                true => Ok(Bytes::new()),
                false => Err(not_heard(ring)),
            }
        }
    });
}
