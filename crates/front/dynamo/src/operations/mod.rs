//! The operations, one a file, and how a request finds its own.

mod backups;
mod batch_execute_statement;
mod batch_get_item;
mod batch_write_item;
mod capacity_units;
mod consumed;
mod continuous_backups;
mod create_backup;
mod create_table;
mod delete_backup;
mod delete_item;
mod delete_table;
mod describe_backup;
mod describe_stream;
mod describe_table;
mod estimate;
mod execute_statement;
mod execute_transaction;
mod export_table;
mod get_item;
mod get_records;
mod get_shard_iterator;
mod import_table;
mod indexes;
mod item_collection;
mod key_schema;
mod limits;
mod list_backups;
mod list_streams;
mod list_tables;
pub(crate) mod names;
mod page;
mod partiql;
mod places;
mod put_item;
mod query;
mod query_index;
mod query_ordered;
mod restore_table;
mod scan;
mod search_vectors;
mod secondary_indexes;
mod size;
pub(crate) mod statement;
mod stream_specification;
mod system_tables;
mod tags;
mod throughput;
mod time_to_live;
mod traced;
mod transact_get_items;
mod transact_write_items;
mod transfers;
mod update_item;
mod update_table;
mod vector_indexes;
mod write;

use std::cell::{Ref, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use auth::{Permission, Resource};
use cluster::SchemaEdit;
use exec::audit::{AuditCategory, AuditEvent, AuditOutcome};
use exec::backend::Coordinator;
use exec::ddl::log_edits;
use exec::{Executor, Principal};
use hyper::http::request::Parts;
use items::{Item, item_size};
use replica::TraceLog;
use rt::{Injected, Rt};
use schema::{Role, Schema};
use serde_json::{Map, Value as Json};

pub use limits::DescribedEndpoint;

use crate::Isolation;
use crate::audit;
use crate::backup::{SnapshotStore, Worker};
use crate::canaries::Canaries;
use crate::constraints;
use crate::error::{ApiError, ErrorKind, Result};
use crate::local_nodes::local_nodes;
use crate::metrics::{ApiFigures, Metrics};
use crate::pages;
use crate::permissions::{self, tables_of};
use crate::reply::{Reply, text_of};
use crate::request::{Capacity, Request};
use crate::settings::ApiSettings;
use crate::signature::{Signature, Signed};
use crate::store::Store;
use crate::streams::Streams;
use crate::sweep::INTERVAL as SWEEP_INTERVAL;
use crate::table::{self, ApiTable};
use crate::table_cache::TableCache;
use crate::transfer::Transfers;
use crate::transfer::s3::ObjectStore;
use consumed::Consumed;
use names::{OPERATIONS, UNSUPPORTED};
use size::write_units;
use write::{Decided, ItemWrite};

/// How old changes are that streams show, unless something else is configured.
const STREAMS_WINDOW: Duration = Duration::from_secs(10);
/// How often a node looks for parts of backups that it has to carry out.
const BACKUPS_INTERVAL: Duration = Duration::from_secs(1);

/// Refuses a role that may not log in at this node or from an address, with the text for its client; the address is that of the peer of the TCP
/// connection.
pub type Admission = Rc<dyn Fn(&Role, SocketAddr) -> std::result::Result<(), String>>;

/// A request without a signer: the role that has signed it where it may not do so from here, and the error.
pub(crate) struct Unsigned {
    pub(crate) role: Option<String>,
    pub(crate) error: ApiError,
}

impl From<ApiError> for Unsigned {
    fn from(error: ApiError) -> Self {
        Self { role: None, error }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// The API on one shard.
pub struct Dynamo<C> {
    executor: Rc<Executor<C>>,
    isolation: Isolation,
    settings: Rc<RefCell<ApiSettings>>,
    /// The check of the places of roles; none where they may sign from anywhere.
    admission: Option<Admission>,
    host_names: Rc<[String]>,
    streams: Rc<Streams>,
    metrics: Rc<Metrics>,
    tables: Rc<TableCache>,
    /// Exports and imports; none where the operator allows no directory for them.
    transfers: Option<Rc<Transfers>>,
    /// The snapshots of this node, for backups; none where it makes none.
    snapshots: Option<Rc<dyn SnapshotStore>>,
    /// The timeout of the service level of the role that has signed the request; none for the node's.
    timeout: Option<Duration>,
    /// Where the steps of the request are recorded, if it is traced.
    trace: Option<TraceLog>,
    /// Injected bugs.
    canaries: Injected<Canaries>,
}

impl<C> Clone for Dynamo<C> {
    fn clone(&self) -> Self {
        Self {
            executor: self.executor.clone(),
            settings: self.settings.clone(),
            admission: self.admission.clone(),
            host_names: self.host_names.clone(),
            streams: self.streams.clone(),
            metrics: self.metrics.clone(),
            tables: self.tables.clone(),
            transfers: self.transfers.clone(),
            snapshots: self.snapshots.clone(),
            trace: self.trace.clone(),
            ..*self
        }
    }
}

impl<C: Coordinator> Dynamo<C> {
    /// The API over the shard's executor; `isolation` is that of tables that have none of their own.
    pub fn new(executor: Rc<Executor<C>>, isolation: Isolation) -> Self {
        let streams = Rc::new(Streams::new(STREAMS_WINDOW));
        let host_names = Rc::new([]);
        let metrics = Rc::default();
        Self {
            executor,
            isolation,
            settings: Rc::default(),
            admission: None,
            host_names,
            streams,
            metrics,
            tables: Rc::default(),
            transfers: None,
            snapshots: None,
            timeout: None,
            trace: None,
            canaries: Injected::default(),
        }
    }

    /// The same with these bugs.
    pub fn with_canaries(self, canaries: Injected<Canaries>) -> Self {
        Self { canaries, ..self }
    }

    /// The same where streams show changes that are at least so old. It has to be longer than writes take, with the difference of the nodes'
    /// clocks: a change that is stored later than that is not seen by readers that have read on.
    pub fn with_streams_window(self, window: Duration) -> Self {
        Self { streams: Rc::new(Streams::new(window)), ..self }
    }

    /// The same with these settings, until they are changed.
    pub fn with_settings(self, settings: ApiSettings) -> Self {
        self.configure(settings);
        self
    }

    /// Uses changed settings from the next request on.
    pub(crate) fn configure(&self, settings: ApiSettings) {
        *self.settings.borrow_mut() = settings;
    }

    /// The settings as they are now.
    pub(crate) fn settings(&self) -> Ref<'_, ApiSettings> {
        self.settings.borrow()
    }

    /// The same where a role that has signed a request is refused by this check of its place.
    pub fn admitting_by(self, admission: Admission) -> Self {
        Self { admission: Some(admission), ..self }
    }

    /// The same with exports and imports, whose records lie in this directory, and their files, too, unless a service has them.
    pub fn with_export_directory(self, rt: &Rt, directory: PathBuf, objects: Option<ObjectStore>) -> Self {
        let view = self.executor.coordinator().view();
        let node = view.node(view.own()).host.to_string();
        Self { transfers: Some(Rc::new(Transfers::new(rt, directory, objects, node))), ..self }
    }

    /// The same with backups, which are snapshots on all nodes.
    pub fn with_snapshots(self, snapshots: Rc<dyn SnapshotStore>) -> Self {
        Self { snapshots: Some(snapshots), ..self }
    }

    /// The same where web pages may reach the API under these names, beside `localhost` and addresses.
    pub fn with_host_names(self, host_names: Rc<[String]>) -> Self {
        Self { host_names, ..self }
    }

    /// The addresses of the nodes that `GET /localnodes` with this query asks for.
    pub(crate) fn local_nodes(&self, query: &str) -> String {
        local_nodes(&self.executor.coordinator().view(), query)
    }

    /// Refuses a request that a foreign web page has a browser send, where requests need no signature: a page cannot sign.
    ///
    /// # Errors
    /// When it is one.
    pub(crate) fn check_page(&self, head: &Parts) -> Result<()> {
        if self.settings().enforces_authorization {
            return Ok(());
        }
        let refusal = pages::refusal(&self.host_names, head);
        refusal.map_or(Ok(()), |why| Err(ApiError::new(ErrorKind::AccessDenied, why)))
    }

    /// The role that has signed a request; none where authentication is off. Its name is the access key, and the hash of its password the
    /// secret, as in ScyllaDB. `address` is that of the peer of the TCP connection.
    ///
    /// # Errors
    /// When the request is not signed by a role that may log in, here and from that address.
    pub(crate) async fn signer(
        &self,
        request: &Signed<'_>,
        address: SocketAddr,
    ) -> Result<Option<String>, Unsigned> {
        let enforces = {
            let settings = self.settings();
            if !settings.enforces_authorization && !settings.warns_authorization {
                return Ok(None);
            }
            settings.enforces_authorization
        };
        let signed = self.verified(request, address).await;
        if let Err(Unsigned { error, .. }) = &signed {
            self.metrics.count(|figures| figures.authentication_failures += 1);
            self.warn(|| format!("a request of {address} is not signed by a role: {}", error.message));
        }
        if enforces { signed.map(Some) } else { Ok(signed.ok()) }
    }

    /// Names a request that is refused, or would be, in the log, where the operator wants it.
    fn warn(&self, what: impl FnOnce() -> String) {
        let settings = self.settings();
        if settings.warns_authorization {
            let outcome =
                if settings.enforces_authorization { "refused" } else { "carried out all the same" };
            tracing::warn!("{}; it is {outcome}", what());
        }
    }

    async fn verified(&self, request: &Signed<'_>, address: SocketAddr) -> Result<String, Unsigned> {
        let signature = Signature::of(request)?;
        let schema = self.schema();
        let role = schema.role(&signature.key).filter(|role| role.can_login);
        let Some((role, secret)) = role.and_then(|role| Some((role, role.salted_hash.as_deref()?))) else {
            let text = "The security token included in the request is invalid.";
            return Err(ApiError::new(ErrorKind::UnrecognizedClient, text).into());
        };
        signature.check(request, secret, self.executor.clock().wall_micros() / 1_000_000).await?;
        // Behind the signature: nobody else learns the limits of a role.
        let admitted = self.admission.as_ref().map_or(Ok(()), |check| check(role, address));
        admitted.map_err(|why| Unsigned {
            role: Some(role.name.clone()),
            error: ApiError::new(ErrorKind::AccessDenied, why),
        })?;
        Ok(signature.key)
    }

    /// Refuses a request that its role has no permission for.
    fn authorize(&self, operation: &str, request: &Request, role: Option<&str>) -> Result<()> {
        let (enforces, warns) = {
            let settings = self.settings();
            (settings.enforces_authorization, settings.warns_authorization)
        };
        // Where signatures are only looked at, one that is missing was named already.
        if !enforces && (!warns || role.is_none()) {
            return Ok(());
        }
        // Nobody in particular has decided on other operations.
        let all = || vec![(Permission::Authorize, Resource::Data)];
        for (permission, resource) in permissions::needed(operation, request).unwrap_or_else(all) {
            if let Err(error) = self.executor.authorize(role, permission, &resource) {
                self.metrics.count(|figures| figures.authorization_failures += 1);
                self.warn(|| format!("{operation} by role {}: {error}", role.unwrap_or_default()));
                if enforces {
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Carries out a request: the operation's name, as `X-Amz-Target` gives it behind the version, and the body. `host` is where the
    /// client found the node, `role` the signer of the request.
    pub async fn call(&self, operation: &str, body: &[u8], host: &str, role: Option<&str>) -> Answer {
        self.answer(operation, body, (host, None), role).await
    }

    /// [`Dynamo::call`] of a client at an address, for the audit log.
    pub(crate) async fn answer(
        &self,
        operation: &str,
        body: &[u8],
        (host, source): (&str, Option<SocketAddr>),
        role: Option<&str>,
    ) -> Answer {
        let known = self.metrics.begin(operation);
        let (began, watched) = (self.executor.clock().now(), self.executor.begin());
        let result = match self.begin_trace(operation, body) {
            None => self.run(operation, body, host, role).await,
            Some(trace) => Box::pin(self.run_traced(trace, (operation, body), (host, source), role)).await,
        };
        if let Some(operation) = known {
            self.metrics.end(operation, self.executor.clock().now().duration_since(began));
            self.executor.end(watched, || described(operation, Request::parse(body).ok().as_ref()));
        }
        if let Some(address) = source.filter(|_| self.executor.is_audited()) {
            let outcome = audit::outcome(&result);
            Box::pin(self.audit((operation, body), Principal { role, address }, outcome)).await;
        }
        match result {
            Ok(reply) => Answer { status: 200, body: reply.into_text() },
            Err(error) => self.refused(&error),
        }
    }

    /// Adds a request that has ended to the audit log.
    async fn audit(&self, (operation, body): (&str, &[u8]), principal: Principal<'_>, outcome: AuditOutcome) {
        let request = Request::parse(body).ok();
        let event = audit::event(operation, request.as_ref());
        let text = || described(operation, request.as_ref());
        self.executor.audit(&principal, Some(event), text, outcome).await;
    }

    /// Adds a request that no role may make from here to the audit log.
    pub(crate) async fn audit_refused(&self, operation: &str, address: SocketAddr, refused: &Unsigned) {
        let event = AuditEvent::new("LOGIN_ERROR", AuditCategory::Auth);
        let principal = Principal { role: refused.role.as_deref(), address };
        let text = || format!("DynamoDB {operation}; {}", refused.error.message);
        // The login failed: its type and category stay.
        self.executor.audit(&principal, Some(event), text, AuditOutcome::Succeeded).await;
    }

    /// The answer to a request that failed, which is counted.
    pub(crate) fn refused(&self, error: &ApiError) -> Answer {
        self.metrics.failed(error);
        Answer { status: error.kind.status(), body: error.body() }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The counters of this shard. Connections and requests under way are those of its [`Server`](crate::Server).
    pub fn figures(&self) -> ApiFigures {
        self.metrics.figures(&self.schema())
    }

    /// Finishes the transactions that their coordinators have left behind and whose records have this node as their first replica; how
    /// many there were.
    ///
    /// # Errors
    /// When records cannot be read.
    pub async fn finish_abandoned(&self) -> Result<u64, ApiError> {
        self.store().sweep().await
    }

    /// Deletes the items, and rows of CQL, whose time to live is over, in the ranges of which this node is the first replica; how many there were.
    ///
    /// # Errors
    /// When a table cannot be read or written.
    pub async fn expire(&self) -> Result<u64, ApiError> {
        self.store().expire().await
    }

    /// Carries out this node's parts of backups and of tables that are being restored; how many there were.
    ///
    /// # Errors
    /// When records cannot be read or written; other parts are carried out by the next look.
    pub async fn look_at_backups(&self, rt: &Rt) -> Result<u64, ApiError> {
        let store = self.store();
        let recovered = store.recover(rt, &self.streams, &self.own_host()).await?;
        let recovered = recovered + self.drop_left_pasts().await?;
        let Some(worker) = self.worker() else { return Ok(recovered) };
        let recovered = recovered + self.go_on_deleting().await?;
        Ok(recovered + store.back_up(&worker).await? + store.restore(rt, &worker).await?)
    }

    /// This node's id, as records have it.
    fn own_host(&self) -> String {
        let view = self.executor.coordinator().view();
        view.node(view.own()).host.to_string()
    }

    /// This node, where it makes snapshots.
    fn worker(&self) -> Option<Worker> {
        Some(Worker { snapshots: self.snapshots.clone()?, own: self.own_host(), taken: RefCell::default() })
    }

    /// [`Dynamo::look_at_backups`] again and again, for ever. A restoration that takes long keeps no backup waiting.
    pub(crate) async fn keep_backups(&self, rt: &Rt) {
        let (store, worker, own) = (self.store(), self.worker(), self.own_host());
        let report = |done: Result<u64>| {
            if let Err(error) = done {
                tracing::warn!("this node's parts of backups are not done yet: {}", error.message);
            }
        };
        let recovering = async {
            loop {
                rt.sleep(BACKUPS_INTERVAL).await;
                report(store.recover(rt, &self.streams, &own).await);
                report(self.drop_left_pasts().await);
            }
        };
        let Some(worker) = &worker else { return recovering.await };
        let backing_up = async {
            loop {
                rt.sleep(BACKUPS_INTERVAL).await;
                report(self.go_on_deleting().await);
                report(store.back_up(worker).await);
            }
        };
        let restoring = async {
            loop {
                rt.sleep(BACKUPS_INTERVAL).await;
                report(store.restore(rt, worker).await);
            }
        };
        futures_util::future::join3(backing_up, restoring, recovering).await;
    }

    /// [`Dynamo::expire`] every `period`, for ever.
    pub(crate) async fn expire_every(&self, rt: &Rt, period: Duration) {
        loop {
            rt.sleep(period).await;
            match self.expire().await {
                Ok(0) => {}
                Ok(count) => {
                    tracing::info!("deleted {count} items and rows whose time to live is over")
                }
                Err(error) => {
                    tracing::warn!(
                        "items and rows whose time to live is over were not all deleted: {}",
                        error.message
                    );
                }
            }
        }
    }

    /// [`Dynamo::finish_abandoned`] now and then, for ever.
    pub(crate) async fn sweep(&self, rt: &Rt) {
        let mut warned = Vec::new();
        loop {
            rt.sleep(SWEEP_INTERVAL).await;
            let lacks = self.store().own_keyspaces_lacking();
            if lacks != warned {
                lacks.iter().for_each(|lack| tracing::warn!("{lack}"));
                warned = lacks;
            }
            match self.finish_abandoned().await {
                Ok(0) => {}
                Ok(count) => {
                    tracing::info!("finished {count} transactions of the DynamoDB API that were left behind")
                }
                Err(error) => {
                    tracing::warn!(
                        "transactions that were left behind were not looked for: {}",
                        error.message
                    );
                }
            }
        }
    }

    async fn run(&self, operation: &str, body: &[u8], host: &str, role: Option<&str>) -> Result<Reply> {
        let Some(operation) = OPERATIONS.into_iter().find(|known| *known == operation) else {
            self.metrics.count(|figures| figures.unsupported_operations += 1);
            return match UNSUPPORTED.contains(&operation) {
                true => Err(ApiError::new(
                    ErrorKind::UnknownOperation,
                    format!("{operation} is an operation of DynamoDB that Torc does not have"),
                )),
                false => Err(ApiError::new(ErrorKind::UnknownOperation, "")),
            };
        };
        let (request, began) = (Request::parse(body)?, self.executor.clock().now());
        let request = &request;
        self.authorize(operation, request, role)?;
        let level = role.map(|_| self.executor.service_level(role));
        let result = match level.and_then(|level| level.timeout) {
            None => self.carry_out((operation, request), host, role).await,
            timeout => {
                let served = Self { timeout, ..self.clone() };
                Box::pin(served.carry_out((operation, request), host, role)).await
            }
        };
        if request.has("TableName")
            && let Ok(table) = self.table(request)
        {
            self.metrics.end_of(&table, operation, self.executor.clock().now().duration_since(began));
        }
        result
    }

    async fn carry_out(
        &self,
        (operation, request): (&str, &Request),
        host: &str,
        role: Option<&str>,
    ) -> Result<Reply> {
        constraints::check(operation, request)?;
        if let Some(table) = self.system_table(operation, request)? {
            return Box::pin(self.carry_out_on_system(&table, (operation, request), role)).await;
        }
        match operation {
            "BatchExecuteStatement" => Box::pin(self.batch_execute_statement(request)).await,
            "BatchGetItem" => Box::pin(self.batch_get_item(request)).await,
            "DeleteItem" => Box::pin(self.delete_item(request)).await,
            "ExecuteStatement" => Box::pin(self.execute_statement(request)).await,
            "ExecuteTransaction" => Box::pin(self.execute_transaction(request)).await,
            "GetItem" => Box::pin(self.get_item(request)).await,
            "GetRecords" => Box::pin(self.get_records(request)).await,
            "PutItem" => Box::pin(self.put_item(request)).await,
            "Query" => Box::pin(self.query(request)).await,
            "Scan" => Box::pin(self.scan(request)).await,
            "SearchVectors" => Box::pin(self.search_vectors(request)).await,
            "TransactGetItems" => Box::pin(self.transact_get_items(request)).await,
            "UpdateItem" => Box::pin(self.update_item(request)).await,
            _ => self.carry_out_small((operation, request), host, role).await.map(Reply::from),
        }
    }

    /// Carries out an operation whose answer has no item.
    async fn carry_out_small(
        &self,
        (operation, request): (&str, &Request),
        host: &str,
        role: Option<&str>,
    ) -> Result<Json> {
        match operation {
            "BatchWriteItem" => Box::pin(self.batch_write_item(request)).await,
            "CreateBackup" => Box::pin(self.create_backup(request)).await,
            "CreateTable" => Box::pin(self.create_table(request, role)).await,
            "DeleteBackup" => Box::pin(self.delete_backup(request, role)).await,
            "DeleteTable" => Box::pin(self.delete_table(request)).await,
            "DescribeExport" => Box::pin(self.describe_export(request)).await,
            "DescribeImport" => Box::pin(self.describe_import(request)).await,
            "ExportTableToPointInTime" => Box::pin(self.export_table(request)).await,
            "ImportTable" => Box::pin(self.import_table(request, role)).await,
            "ListExports" => Box::pin(self.list_exports(request)).await,
            "ListImports" => Box::pin(self.list_imports(request)).await,
            "DescribeBackup" => Box::pin(self.describe_backup(request)).await,
            "ListBackups" => Box::pin(self.list_backups(request)).await,
            "RestoreTableFromBackup" => Box::pin(self.restore_table_from_backup(request, role)).await,
            "RestoreTableToPointInTime" => Box::pin(self.restore_table_to_point_in_time(request, role)).await,
            "UpdateContinuousBackups" => Box::pin(self.update_continuous_backups(request)).await,
            "DescribeContinuousBackups" => self.describe_continuous_backups(request),
            "DescribeEndpoints" => self.settings().described_endpoint.answer(host),
            "DescribeLimits" => Ok(limits::limits()),
            "DescribeStream" => self.describe_stream(request),
            "DescribeTable" => self.describe_table(request).await,
            "DescribeTimeToLive" => self.describe_time_to_live(request),
            "GetShardIterator" => self.get_shard_iterator(request),
            "ListStreams" => self.list_streams(request),
            "ListTables" => self.list_tables(request),
            "ListTagsOfResource" => self.list_tags_of_resource(request),
            "TransactWriteItems" => Box::pin(self.transact_write_items(request)).await,
            "TagResource" => Box::pin(self.tag_resource(request)).await,
            "UpdateTimeToLive" => Box::pin(self.update_time_to_live(request)).await,
            "UntagResource" => Box::pin(self.untag_resource(request)).await,
            _ => Box::pin(self.update_table(request)).await,
        }
    }

    fn store(&self) -> Store<'_, C> {
        Store {
            executor: &self.executor,
            isolation: self.isolation,
            metrics: &self.metrics,
            timeout: self.timeout.or(self.settings().timeout),
            trace: self.trace.as_ref(),
            canaries: self.canaries,
        }
    }

    /// Carries out a write of one item, which `looks` at the item also when the write does not depend on it.
    async fn write_item(&self, write: &ItemWrite, looks: bool) -> Result<Decided> {
        let store = self.store();
        let reads = looks || write.reads();
        let is_blind = !reads && store.writes_blindly(&write.table);
        let (mut decided, mut bytes) = (Decided::default(), 0);
        let mut decide = |old: Option<Rc<Item>>| {
            bytes = old.as_deref().map_or(0, item_size);
            decided = write.decide(old)?;
            Ok(if is_blind { write.blind() } else { write.row_write(&decided) })
        };
        let done = store.modify(&write.table, &write.key, reads, &mut decide).await;
        match &done {
            Ok(()) => {
                let consumed =
                    Consumed::of_write(&write.table, decided.before.as_deref(), decided.after.as_deref());
                self.count_write((&write.table, write.operation()), &consumed, 1.0);
                decided.consumed = consumed;
            }
            // A write whose condition does not hold consumes units of the item that it has looked at.
            Err(error) if error.is_failed_condition() => {
                self.metrics.wrote(&write.table, write.operation(), write_units(bytes));
            }
            Err(_) => {}
        }
        done?;
        Ok(decided)
    }

    /// Counts the units of a write of one item, so many times.
    fn count_write(&self, (table, operation): (&ApiTable, &'static str), consumed: &Consumed, times: f64) {
        self.metrics.wrote(table, operation, times * consumed.of_the_table());
        if consumed.of_indexes() > 0.0 {
            self.metrics.wrote(table, "Index", times * consumed.of_indexes());
        }
    }

    /// The answer to a write of one item; `shown` are the attributes that were asked for.
    async fn written(
        &self,
        request: &Request,
        write: &ItemWrite,
        decided: &Decided,
        (shown, asked): (Option<&Option<Rc<Item>>>, Capacity),
    ) -> Result<Reply> {
        let mut answer = Map::new();
        decided.consumed.show(&mut answer, request.named_table(), asked);
        if request.item_collections()? {
            self.add_item_collection(&mut answer, &write.table, &write.key_item).await;
        }
        Ok(match shown {
            Some(Some(item)) => Reply::of_text("Attributes", &text_of(item), answer),
            _ => Json::Object(answer).into(),
        })
    }

    /// The time of tables' descriptions, seconds since 1970.
    fn now_seconds(&self) -> f64 {
        (self.executor.clock().wall_micros() / 1000) as f64 / 1000.0
    }

    fn schema(&self) -> Arc<Schema> {
        self.executor.coordinator().schema()
    }

    fn table(&self, request: &Request) -> Result<ApiTable> {
        self.tables.find(&self.schema(), request.table_name()?)
    }

    /// Changes a table of the schema by `change`, which may be called again when others change the schema meanwhile.
    async fn change_table(
        &self,
        find: impl Fn(&Schema) -> Result<ApiTable>,
        change: impl Fn(&ApiTable, &mut table::Details) -> Result<()>,
    ) -> Result<ApiTable> {
        self.change_table_in(find, |_, found, details| change(found, details)).await
    }

    /// [`Dynamo::change_table`] by a change that depends on other tables.
    async fn change_table_in(
        &self,
        find: impl Fn(&Schema) -> Result<ApiTable>,
        change: impl Fn(&Schema, &ApiTable, &mut table::Details) -> Result<()>,
    ) -> Result<ApiTable> {
        let plan = |schema: &Schema, view: &coordinator::ClusterView, id: [u8; 16]| {
            let found = find(schema)?;
            let mut details = found.details();
            change(schema, &found, &mut details)?;
            let mut builder = found.table.to_builder();
            details.write(&mut builder, found.key_names(), view);
            let table = builder.build().map_err(|error| ApiError::validation(error.to_string()))?;
            let log = log_edits(&table, schema, view, id, self.executor.timestamp())?;
            let mut edits = vec![SchemaEdit::PutTable(table)];
            edits.extend(log);
            Ok::<_, ApiError>(edits)
        };
        self.executor.change_schema_by(None, plan).await?;
        find(&self.schema())
    }
}

/// A slow request for the log: its operation and its tables, and nothing of its items.
fn described(operation: &str, request: Option<&Request>) -> String {
    let tables: BTreeSet<String> = tables_of(operation, request).into_iter().map(|(_, name)| name).collect();
    match tables.is_empty() {
        true => format!("DynamoDB {operation}"),
        false => format!("DynamoDB {operation} on {}", tables.into_iter().collect::<Vec<_>>().join(", ")),
    }
}
