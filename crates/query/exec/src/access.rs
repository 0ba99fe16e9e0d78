//! Whether the caller may run a plan: looked at each time it runs, since a plan is shared by all clients that prepared it.
//!
//! Reads and writes of tables cost two lookups by hash and allocate nothing once the role and the table are known to the shard
//! (`auth::AccessCache`). Statements that change the schema are rare, and name their resources.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use auth::{AccessCache, Permission, Resource};
use cql::ast::Statement;
use schema::{Schema, ServiceLevel, Table};

use crate::error::{Result, unauthorized};
use crate::lookup::{Lookup, keyspace_of};
use crate::modification::ModificationPlan;
use crate::needed::{needed, parts_of_aggregate};
use crate::performer::{Performer, refused};
use crate::plan::Plan;
use crate::principal::Principal;

/// Authorisation on one shard.
pub(crate) struct Access {
    cache: AccessCache,
    /// Whether `authorizer` asks for permissions.
    enabled: bool,
    /// Whether masks are applied.
    masking: bool,
}

/// The refusal of requests that only a known role may make.
pub(crate) const ANONYMOUS: &str = "You have to be logged in and not anonymous to perform this request";

/// Tables that everybody may read, for drivers and tools depend on them.
fn is_readable_by_all(keyspace: &str, table: &str) -> bool {
    match keyspace {
        "system_schema" | "system_virtual_schema" => true,
        // Of requests that drivers have traced. The list of slow ones is for operators: it has those of all clients.
        "system_traces" => matches!(table, "sessions" | "events"),
        // Consumers of CDC logs look for their streams there.
        "system_distributed" => {
            matches!(table, "cdc_generation_timestamps" | "cdc_streams_descriptions_v2")
        }
        "system" => {
            matches!(table, "local" | "peers" | "peers_v2" | "size_estimates" | "table_estimates")
        }
        _ => false,
    }
}

impl Access {
    pub(crate) fn new(enabled: bool, masking: bool) -> Self {
        Self { cache: AccessCache::default(), enabled, masking }
    }

    /// Whether permissions are asked for.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// A directory decides on the roles of roles.
    pub(crate) fn follow_directory(&self) {
        self.cache.follow_directory();
    }

    /// The roles of a role by its groups in the directory.
    pub(crate) fn set_directory_roles(&self, role: &str, roles: Option<BTreeSet<String>>) {
        self.cache.set_directory_roles(role, roles);
    }

    /// How the requests of a role are served.
    pub(crate) fn service_level(&self, schema: &Arc<Schema>, role: &str) -> Rc<ServiceLevel> {
        self.cache.service_level(schema, role)
    }

    /// The place of the service level that gives a role's shares, in the order of their names; none for the default.
    pub(crate) fn level_place(&self, schema: &Arc<Schema>, role: &str) -> Option<usize> {
        self.cache.level_place(schema, role)
    }

    /// The role of a request; none for an anonymous one.
    pub(crate) fn performer<'a>(
        &self,
        schema: &Arc<Schema>,
        principal: &Principal<'a>,
    ) -> Option<Performer<'a>> {
        let name = principal.role?;
        Some(Performer { name, access: self.cache.role(schema, name), restricted: self.enabled })
    }

    /// Refuses statements for which a role has no permission.
    pub(crate) fn authorize(
        &self,
        schema: &Arc<Schema>,
        role: Option<&str>,
        permission: Permission,
        resource: &Resource,
    ) -> Result<()> {
        let Some(name) = role else { return unauthorized(ANONYMOUS) };
        if let (Permission::Select, Resource::Table { keyspace, name }) = (permission, resource)
            && is_readable_by_all(keyspace, name)
        {
            return Ok(());
        }
        let performer = Performer { name, access: self.cache.role(schema, name), restricted: self.enabled };
        performer.ensure(permission, resource)
    }

    /// Refuses a plan that the caller may not run.
    ///
    /// # Errors
    /// Cassandra's, with the permission that is missing.
    pub(crate) fn check(
        &self,
        plan: &Plan,
        principal: &Principal<'_>,
        keyspace: Option<&str>,
        schema: &Arc<Schema>,
    ) -> Result<()> {
        match plan {
            Plan::Select(select) => {
                // A read of a view is a read of its base.
                let table = select.named_table();
                let derivation = table.derivation.as_ref().filter(|derivation| derivation.is_view());
                let base = derivation.and_then(|derivation| schema.table_by_id(derivation.base()));
                self.check_table(Permission::Select, base.unwrap_or(table), principal, schema)?;
                self.check_called(&plan.user_defined(), principal, schema)?;
                match &select.masked {
                    None if select.fragments_of.is_some() => self.check_unmasked(table, principal, schema),
                    Some(masked) => self.check_masked(&select.table, &masked.restricted, principal, schema),
                    None => Ok(()),
                }
            }
            Plan::Modification(plan) => self.check_modification(plan, principal, schema),
            Plan::Batch(batch) => {
                for statement in &batch.statements {
                    self.check_modification(statement, principal, schema)?;
                }
                self.check_called(&plan.user_defined(), principal, schema)
            }
            Plan::Truncate(plan) => self.check_table(Permission::Modify, &plan.table, principal, schema),
            // It is a SELECT in ScyllaDB: nothing goes that the base has.
            Plan::Prune(plan) => self.check_table(Permission::Select, &plan.base, principal, schema),
            // A grant on all keyspaces, as applications have it, is none on the node's settings.
            Plan::Setting(plan) => match self.performer(schema, principal) {
                Some(performer) if performer.access.is_superuser => Ok(()),
                Some(_) => unauthorized(format!(
                    "Only superusers are allowed to change settings in {}",
                    plan.table.full_name()
                )),
                None => unauthorized(ANONYMOUS),
            },
            Plan::Other(statement) => self.check_other(statement, principal, keyspace, schema),
        }
    }

    /// Refuses a write that the caller may not make. A condition reads.
    pub(crate) fn check_modification(
        &self,
        plan: &ModificationPlan,
        principal: &Principal<'_>,
        schema: &Arc<Schema>,
    ) -> Result<()> {
        self.check_table(Permission::Modify, &plan.table, principal, schema)?;
        if !plan.conditions.is_empty() {
            self.check_table(Permission::Select, &plan.table, principal, schema)?;
        }
        if plan.table.masked_columns().next().is_some() {
            let columns = plan.conditions.columns().iter();
            let asked =
                |column: &schema::Column| columns.clone().any(|condition| condition.column.id == column.id);
            let asked = plan.table.masked_columns().filter(|column| asked(column));
            let asked: Vec<String> = asked.map(|column| column.name.clone()).collect();
            self.check_masked(&plan.table, &asked, principal, schema)?;
        }
        let called: Vec<_> = plan.calls.iter().map(|call| Resource::of_function(&call.function)).collect();
        self.check_called(&called, principal, schema)
    }

    /// Refuses a caller that may not execute one of these functions and aggregates.
    fn check_called(
        &self,
        called: &[Resource],
        principal: &Principal<'_>,
        schema: &Arc<Schema>,
    ) -> Result<()> {
        if called.is_empty() {
            return Ok(());
        }
        let Some(performer) = self.performer(schema, principal) else { return unauthorized(ANONYMOUS) };
        called.iter().try_for_each(|one| performer.ensure(Permission::Execute, one))
    }

    /// Whether a caller sees masked values.
    pub(crate) fn may_unmask(&self, table: &Table, principal: &Principal<'_>, schema: &Arc<Schema>) -> bool {
        !self.enabled
            || !self.masking
            || principal
                .role
                .is_some_and(|role| self.cache.on_table(schema, role, table).has(Permission::Unmask))
    }

    /// Refuses a caller that asks for all columns of a table as they are stored and may not see some.
    fn check_unmasked(&self, table: &Table, principal: &Principal<'_>, schema: &Arc<Schema>) -> Result<()> {
        if table.masked_columns().next().is_none() || self.may_unmask(table, principal, schema) {
            return Ok(());
        }
        let Some(role) = principal.role else { return unauthorized(ANONYMOUS) };
        unauthorized(format!(
            "User {role} has no UNMASK permission on table {}, cannot read its mutation fragments",
            table.full_name()
        ))
    }

    /// Refuses a caller that asks for rows by the values of masked columns, which would reveal them.
    fn check_masked(
        &self,
        table: &Table,
        columns: &[String],
        principal: &Principal<'_>,
        schema: &Arc<Schema>,
    ) -> Result<()> {
        if columns.is_empty() || !self.masking {
            return Ok(());
        }
        let Some(role) = principal.role else { return unauthorized(ANONYMOUS) };
        let held = self.cache.on_table(schema, role, table);
        if held.has(Permission::Unmask) || held.has(Permission::SelectMasked) {
            return Ok(());
        }
        unauthorized(format!(
            "User {role} has no UNMASK nor SELECT_MASKED permission on table {}, cannot query masked columns [{}]",
            table.full_name(),
            columns.join(", ")
        ))
    }

    fn check_table(
        &self,
        permission: Permission,
        table: &Table,
        principal: &Principal<'_>,
        schema: &Arc<Schema>,
    ) -> Result<()> {
        let Some(role) = principal.role else { return unauthorized(ANONYMOUS) };
        if self.cache.on_table(schema, role, table).has(permission) {
            return Ok(());
        }
        if permission == Permission::Select && is_readable_by_all(&table.keyspace, &table.name) {
            return Ok(());
        }
        refused(role, permission, &Resource::table(table))
    }

    /// Statements about roles are checked where they are carried out.
    fn check_other(
        &self,
        statement: &Statement,
        principal: &Principal<'_>,
        keyspace: Option<&str>,
        schema: &Arc<Schema>,
    ) -> Result<()> {
        let Some(performer) = self.performer(schema, principal) else { return unauthorized(ANONYMOUS) };
        match statement {
            Statement::CreateTrigger(_) if !performer.access.is_superuser => {
                return unauthorized("Only superusers are allowed to perform CREATE TRIGGER queries");
            }
            Statement::DropTrigger(_) if !performer.access.is_superuser => {
                // Cassandra's spelling.
                return unauthorized("Only superusers are allowed to perfrom DROP TRIGGER queries");
            }
            Statement::CopyTable(ast) => {
                let source = keyspace_of(&ast.source, keyspace)?.to_owned();
                let source = Resource::Table { keyspace: source, name: ast.source.name.clone() };
                performer.ensure(Permission::Select, &source)?;
            }
            _ => {}
        }
        let lookup = Lookup { schema };
        match needed(statement, keyspace, &lookup)? {
            Some((permission, resource)) => {
                performer.ensure(permission, &resource)?;
                match statement {
                    Statement::CreateAggregate(ast) => parts_of_aggregate(ast, keyspace, &lookup)?
                        .iter()
                        .try_for_each(|part| performer.ensure(Permission::Execute, part)),
                    _ => Ok(()),
                }
            }
            None if names_missing(statement) || is_checked_elsewhere(statement) => Ok(()),
            None if performer.access.is_superuser => Ok(()),
            None => {
                unauthorized(format!("Only superusers are allowed to perform {} queries", statement.name()))
            }
        }
    }
}

/// Whether a statement needs the permission on the object that it names, so that none is needed where that is missing: the planner reports it.
fn names_missing(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::DropIndex(_)
            | Statement::DropView(_)
            | Statement::AlterView(_)
            | Statement::DropFunction(_)
            | Statement::DropAggregate(_)
    )
}

/// Whether a statement needs no permission, or is checked where it is carried out.
fn is_checked_elsewhere(statement: &Statement) -> bool {
    matches!(statement, Statement::Use(_) | Statement::Describe(_)) || crate::roles::is_about_roles(statement)
}
