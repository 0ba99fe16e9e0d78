//! The coordinator of one shard: requests come in here whatever shard or node holds their data.

use std::cell::RefCell;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use cluster::{SchemaEdit, SchemaEvent, SchemaStore};
use futures_util::future::join_all;
use mutation::PartitionUpdate;
use replica::{ReadCommand, ReadPage, Replica, ReplicaError, TableOperation};
use rt::mesh::Port;
use rt::{Group, Instant, Rt, ShardId};
use schema::{Schema, Table, TableId};

use crate::computed::{self, ComputedTables};
use crate::schema_change::{NodeRequest, NodeResponse, SchemaChangeError};
use crate::{Consistency, Placement, ReplicaFailure, RequestError, WriteKind, WriteOptions};

/// Reasons of failure as the protocol numbers them (v5, section 9, `<reasonmap>`).
const FAILURE_UNKNOWN: u16 = 0;
const FAILURE_TOO_MANY_TOMBSTONES: u16 = 1;

/// What a coordinator is told by the node's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// This node, for error reports.
    pub address: IpAddr,
    /// Its datacenter.
    pub datacenter: String,
}

/// Called on each shard when the schema has changed, with what changed.
pub type SchemaListener = Box<dyn Fn(&Arc<Schema>, &[SchemaEvent])>;

/// One shard's coordinator. Cheap to clone.
#[derive(Clone)]
pub struct Coordinator(Rc<Inner>);

struct Inner {
    rt: Rt,
    config: CoordinatorConfig,
    replica: Replica,
    port: Port<NodeRequest, NodeResponse>,
    schema: RefCell<Arc<Schema>>,
    listeners: RefCell<Vec<Rc<SchemaListener>>>,
    computed: RefCell<Option<Rc<dyn ComputedTables>>>,
    /// Shard 0 only: the schema on disk. Taken out while a change is made, so that changes are made one by one.
    store: rt::sync::Semaphore,
    store_slot: RefCell<Option<SchemaStore>>,
}

impl Coordinator {
    /// A coordinator over this shard's replica. Shard 0 is given the schema's store.
    pub fn new(
        rt: Rt,
        config: CoordinatorConfig,
        replica: Replica,
        port: Port<NodeRequest, NodeResponse>,
        schema: Arc<Schema>,
        store: Option<SchemaStore>,
    ) -> Self {
        assert_eq!(store.is_some(), rt.shard() == ShardId(0), "shard 0 alone keeps the schema");
        let inner = Inner {
            rt,
            config,
            replica,
            port: port.clone(),
            schema: RefCell::new(schema),
            listeners: RefCell::new(Vec::new()),
            computed: RefCell::new(None),
            store: rt::sync::Semaphore::new(1),
            store_slot: RefCell::new(store),
        };
        let coordinator = Self(Rc::new(inner));
        let server = coordinator.clone();
        port.serve(move |_, request| {
            let coordinator = server.clone();
            async move { coordinator.serve(request).await }
        });
        coordinator
    }

    /// The schema in use on this shard.
    pub fn schema(&self) -> Arc<Schema> {
        self.0.schema.borrow().clone()
    }

    /// The node's data.
    pub fn replica(&self) -> &Replica {
        &self.0.replica
    }

    /// Calls `listener` on this shard at every later change of the schema.
    pub fn on_schema_change(&self, listener: SchemaListener) {
        self.0.listeners.borrow_mut().push(Rc::new(listener));
    }

    /// Answers reads of computed keyspaces from `tables` from now on.
    pub fn compute_with(&self, tables: Rc<dyn ComputedTables>) {
        *self.0.computed.borrow_mut() = Some(tables);
    }

    /// Reads.
    pub async fn read(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        if self.check(&command.table, consistency)? == Kind::Computed {
            let tables = self.0.computed.borrow().clone();
            let rows = match tables {
                Some(tables) => tables.rows(command).await,
                None => Vec::new(),
            };
            return Ok(computed::read(command, rows));
        }
        // Pinned here, so that it is not moved on its way into the timeout.
        let read = pin!(self.0.replica.read(command));
        match self.0.rt.timeout_at(deadline, read).await {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(error)) => Err(self.read_failed(consistency, error)),
            Err(_) => {
                Err(RequestError::ReadTimeout { consistency, received: 0, required: 1, data_present: false })
            }
        }
    }

    /// Writes. Updates of one shard become visible and durable together.
    pub async fn write(
        &self,
        mut updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        for update in &updates {
            self.check(&update.table, options.consistency)?;
        }
        let replica = &self.0.replica;
        let result = if updates.len() == 1 {
            let apply = pin!(replica.apply_one(updates.pop().expect("there is one")));
            self.0.rt.timeout_at(options.deadline, apply).await
        } else {
            self.0.rt.timeout_at(options.deadline, replica.apply(updates)).await
        };
        self.written(result, options.consistency, options.kind)
    }

    /// Counts: the cells of each update hold deltas.
    pub async fn increment(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        for update in &updates {
            self.check(&update.table, options.consistency)?;
        }
        let replica = &self.0.replica;
        let count =
            futures_util::future::try_join_all(updates.into_iter().map(|update| replica.increment(update)));
        let result = self.0.rt.timeout_at(options.deadline, count).await;
        self.written(result.map(|done| done.map(|_| ())), options.consistency, WriteKind::Counter)
    }

    /// Removes everything from a table, on every node.
    pub async fn truncate(&self, table: &Table, deadline: Instant) -> Result<(), RequestError> {
        let operation = TableOperation::Truncate { at_micros: self.0.rt.wall_micros() };
        match self.0.rt.timeout_at(deadline, self.0.replica.table_operation(table.id, operation)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(RequestError::Truncate(format!("Error during truncate: {error}"))),
            Err(_) => {
                Err(RequestError::Truncate("Truncate timed out - received only 0 responses".to_owned()))
            }
        }
    }

    /// Changes the schema, if it is still the one with version `base`; returns when every shard uses the new one.
    pub async fn change_schema(
        &self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
    ) -> Result<(), SchemaChangeError> {
        match self.0.port.call(ShardId(0), NodeRequest::ChangeSchema { base, edits }).await {
            NodeResponse::SchemaChanged(result) => result,
            other => panic!("a schema change was answered with {other:?}"),
        }
    }

    fn check(&self, table: &Table, consistency: Consistency) -> Result<Kind, RequestError> {
        let schema = self.0.schema.borrow();
        match schema.keyspace(&table.keyspace) {
            Some(keyspace) if keyspace.computed => Ok(Kind::Computed),
            Some(keyspace) if keyspace.system => Ok(Kind::Stored),
            Some(keyspace) => {
                let placement = Placement::single_node(keyspace, &self.0.config.datacenter);
                placement.check(consistency).map(|()| Kind::Stored)
            }
            None => Err(RequestError::Invalid(format!("Keyspace {} does not exist", table.keyspace))),
        }
    }

    fn failure(&self, code: u16, error: &ReplicaError) -> Vec<ReplicaFailure> {
        vec![ReplicaFailure { address: self.0.config.address, code, message: error.to_string() }]
    }

    fn read_failed(&self, consistency: Consistency, error: ReplicaError) -> RequestError {
        let code = match &error {
            ReplicaError::UnknownTable(_) => return RequestError::Invalid("unconfigured table".to_owned()),
            ReplicaError::TooManyTombstones { .. } => FAILURE_TOO_MANY_TOMBSTONES,
            _ => FAILURE_UNKNOWN,
        };
        let failures = self.failure(code, &error);
        RequestError::ReadFailure { consistency, received: 0, required: 1, data_present: false, failures }
    }

    fn written(
        &self,
        result: Result<Result<(), ReplicaError>, rt::Elapsed>,
        consistency: Consistency,
        kind: WriteKind,
    ) -> Result<(), RequestError> {
        let error = match result {
            Ok(Ok(())) => return Ok(()),
            Err(_) => return Err(RequestError::WriteTimeout { consistency, received: 0, required: 1, kind }),
            Ok(Err(error)) => error,
        };
        match error {
            ReplicaError::MutationTooLarge { .. } => Err(RequestError::Invalid(error.to_string())),
            ReplicaError::UnknownTable(_) => Err(RequestError::Invalid("unconfigured table".to_owned())),
            _ => {
                let failures = self.failure(FAILURE_UNKNOWN, &error);
                Err(RequestError::WriteFailure { consistency, received: 0, required: 1, kind, failures })
            }
        }
    }

    async fn serve(&self, request: NodeRequest) -> NodeResponse {
        match request {
            NodeRequest::ChangeSchema { base, edits } => {
                let keeper = self.clone();
                let change = async move { keeper.change_as_keeper(base, edits).await };
                NodeResponse::SchemaChanged(self.0.rt.uncancelled(Group::Maintenance, change).await)
            }
            NodeRequest::UseSchema(schema) => {
                self.use_schema(schema);
                NodeResponse::Used
            }
        }
    }

    /// Shard 0: makes a change durable and hands it to every shard. Changes are made one after the other.
    async fn change_as_keeper(
        &self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
    ) -> Result<(), SchemaChangeError> {
        let _turn =
            self.0.store.acquire(1).await.map_err(|_| SchemaChangeError::Failed("stopping".to_owned()))?;
        let old = self.schema();
        let mut store =
            self.0.store_slot.borrow_mut().take().expect("shard 0 keeps the schema, one change at a time");
        let changed = store.change(base, edits).await;
        *self.0.store_slot.borrow_mut() = Some(store);
        let schema = changed?;
        let failed = |error: ReplicaError| SchemaChangeError::Failed(error.to_string());
        // Engines first: a shard must be able to store what another shard's client may write at once.
        self.0.replica.set_schema(&Arc::new(schema.stored())).await.map_err(failed)?;
        let shards = (0..self.0.replica.shard_count()).map(ShardId);
        join_all(shards.map(|shard| self.0.port.call(shard, NodeRequest::UseSchema(schema.clone())))).await;
        for table in dropped_tables(&old, &schema) {
            self.0.replica.table_operation(table, TableOperation::Drop).await.map_err(failed)?;
        }
        Ok(())
    }

    fn use_schema(&self, schema: Arc<Schema>) {
        let old = self.0.schema.replace(schema.clone());
        let events = cluster::events(&old, &schema);
        let listeners = self.0.listeners.borrow().clone();
        for listener in listeners {
            listener(&schema, &events);
        }
    }
}

/// Where a table's rows come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stored,
    Computed,
}

fn dropped_tables(old: &Schema, new: &Schema) -> Vec<TableId> {
    old.tables().map(|table| table.id).filter(|id| new.table_by_id(*id).is_none()).collect()
}
