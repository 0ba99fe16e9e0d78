//! The answers of a shard to the other shards of its node.

use std::sync::Arc;

use replica::Replica;
use rt::Rt;
use rt::mesh::Port;
use schema::Schema;

use crate::admission::Admission;
use crate::context::Context;
use crate::given_id;
use crate::rate_check::RateCheck;
use crate::shard_calls::{
    AcquireLock, CatchUp, ChangeSchema, CheckGivenId, ConfirmLog, CountOperation, Drain, EnforceTopology,
    Gossiped, LatestPending, LearnTruncation, MigrateVote, NodeRequest, NodeResponse, NoteConfirmed,
    RebuildViews, ReleaseLock, RequestsOfTables, StoredHints, TruncatedAt, UseSchema, UseView, ViewBuild,
    Vote,
};
use crate::{ClusterView, Coordinator};

impl Coordinator {
    /// A coordinator over this shard's replica, with the schema of this moment. Shard 0 is then told to
    /// [`Coordinator::follow`].
    pub fn new(
        rt: Rt,
        view: Arc<ClusterView>,
        replica: Replica,
        port: Port<NodeRequest, NodeResponse>,
        schema: Arc<Schema>,
    ) -> Self {
        let coordinator = Self::over(Context::new(rt, view, replica, port.clone(), schema));
        let server = coordinator.clone();
        port.serve(move |_, request| {
            let coordinator = server.clone();
            async move { answer(&coordinator, request).await }
        });
        coordinator
    }
}

async fn answer(coordinator: &Coordinator, request: NodeRequest) -> NodeResponse {
    let context = coordinator.context();
    rt::serve_shard_call!(request, NodeRequest => NodeResponse {
        ChangeSchema { base, edits } => coordinator.propose_schema(base, edits).await,
        Vote { ballotage } => Box::new(coordinator.lwt().vote(*ballotage).await),
        AcquireLock { table, key, request } => coordinator.lwt().lease_lock(table, &key, request).await,
        ReleaseLock { request } => coordinator.lwt().release_lock(request),
        MigrateVote { vote } => coordinator.lwt().remember_vote(*vote).await,
        UseSchema { schema, events } => coordinator.use_schema(&schema, &events),
        UseView { view } => coordinator.use_view(view),
        StoredHints {  } => context.hinting().stored(),
        Gossiped {  } => context.gossiped().map(Box::new),
        RequestsOfTables {  } => context.requests_by_table().figures(context.rt().now()),
        ConfirmLog { deadline } => {
            context.lease().confirm_log(context.group(), context.view().is_alone(), deadline).await
        },
        NoteConfirmed { at } => context.lease().note_confirmed(at),
        CatchUp { topology, deadline } => Admission(&context).reach_ring(topology, deadline).await,
        EnforceTopology { topology, deadline } => Admission(&context).enforce_ring(topology, deadline).await,
        Drain { deadline } => Admission(&context).drain(deadline).await,
        LatestPending {  } => coordinator.latest_pending(),
        TruncatedAt { table } => context.replica().truncated_at(table),
        LearnTruncation { table, at_micros } => {
            let learnt = context.replica().engine().learn_truncation(table, at_micros).await;
            learnt.map_err(|error| error.to_string())
        },
        CountOperation { table, token, operation, limit, decision } => {
            RateCheck(&context).count_here((table, token, operation), limit, decision)
        },
        CheckGivenId { table, version } => given_id::check_on_shard_0(context, table, version),
        RebuildViews { base } => coordinator.rebuild_views_here(base).await,
        ViewBuild { view } => coordinator.view_build(view).await,
    })
}
