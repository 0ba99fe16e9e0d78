//! A read under way: one function for the rows of a replica and one for their digest, and the errors of a read that has too few.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use replica::steps::free_page;
use replica::{ReadCommand, ReadPage};
use rt::Instant;
use topology::NodeIndex;

use crate::admission::Admission;
use crate::context::Context;
use crate::peer_error::{self, PeerError};
use crate::replication_map::EffectiveReplicationMap;
use crate::{Consistency, Operation, ReplicaFailure, RequestError};

/// How a read is to be done.
#[derive(Clone, Copy)]
pub(crate) struct ReadOptions {
    pub(crate) consistency: Consistency,
    pub(crate) deadline: Instant,
}

/// A read under way.
pub(crate) struct Reader<'a> {
    pub(crate) context: &'a Context,
    pub(crate) erm: Rc<EffectiveReplicationMap>,
    pub(crate) options: ReadOptions,
    /// A replica has refused, for this uses a stale topology version.
    pub(crate) saw_newer_topology: Cell<bool>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(context: &'a Context, erm: Rc<EffectiveReplicationMap>, options: ReadOptions) -> Self {
        Self { context, erm, options, saw_newer_topology: Cell::new(false) }
    }

    /// A replica's rows.
    pub(crate) async fn page(
        &self,
        node: NodeIndex,
        command: &ReadCommand,
        body: Bytes,
        token: i64,
    ) -> Result<ReadPage, PeerError> {
        let (context, view, deadline) = (self.context, &self.erm.view, self.options.deadline);
        if node != view.own() {
            let owner = view.owner(node, command.table.id, token);
            return context.remote().read(owner, command, body, deadline).await;
        }
        self.own_page(command).await
    }

    /// The rows of this node's own replica.
    pub(crate) async fn own_page(&self, command: &ReadCommand) -> Result<ReadPage, PeerError> {
        let _under_way = Admission(&self.context).admit_own(&self.erm.view)?;
        self.context.read_here(command, self.options.deadline).await
    }

    /// The digest of a replica's rows.
    pub(crate) async fn digest(
        &self,
        node: NodeIndex,
        command: &ReadCommand,
        body: Bytes,
        token: i64,
    ) -> Result<u128, PeerError> {
        let view = &self.erm.view;
        if node == view.own() {
            let page = self.page(node, command, body, token).await?;
            let digest = self.context.digest_of(command, &page).await;
            free_page(page).await;
            return Ok(digest);
        }
        let owner = view.owner(node, command.table.id, token);
        self.context.remote().digest(owner, body, self.options.deadline).await
    }

    fn timed_out(&self, received: usize, required: usize, data_present: bool) -> RequestError {
        RequestError::ReadTimeout {
            consistency: self.options.consistency,
            received: received as u32,
            required: required as u32,
            data_present,
        }
    }

    fn failed(
        &self,
        received: usize,
        required: usize,
        data_present: bool,
        errors: &[(NodeIndex, PeerError)],
    ) -> RequestError {
        if let Some(why) = errors.iter().find_map(|(_, error)| match error {
            PeerError::Invalid(why) => Some(why.clone()),
            _ => None,
        }) {
            return RequestError::Invalid(why);
        }
        if let Some(limited) = peer_error::rate_limited(errors, Operation::Read) {
            return limited;
        }
        let view = &self.erm.view;
        let failures: Vec<ReplicaFailure> = errors
            .iter()
            .filter_map(|(node, error)| error.failure(peer_error::address(view, *node)))
            .collect();
        RequestError::ReadFailure {
            consistency: self.options.consistency,
            received: received as u32,
            required: required as u32,
            data_present,
            failures,
        }
    }

    /// Replicas failed, or were silent.
    pub(crate) fn not_enough(
        &self,
        received: usize,
        required: usize,
        data_present: bool,
        errors: &[(NodeIndex, PeerError)],
    ) -> RequestError {
        if errors.iter().any(|(_, error)| matches!(error, PeerError::StaleTopology(_))) {
            self.saw_newer_topology.set(true);
        }
        if peer_error::all_silent(errors) {
            return self.timed_out(received, required, data_present);
        }
        self.failed(received, required, data_present, errors)
    }
}
