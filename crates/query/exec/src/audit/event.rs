//! From a plan to its entry in the audit log. Types are Cassandra's; statements that it does not have are named by their words.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql::ast::{QualifiedName, Statement};
use schema::Table;

use super::{AuditCategory, AuditEvent};
use crate::modification::ModificationKind;
use crate::plan::Plan;

impl AuditEvent {
    /// That of a plan; `session` is the keyspace of names without one.
    pub fn of_plan(plan: &Plan, session: Option<&str>) -> Self {
        let about = |kind: &str, category, table: Option<&Table>| Self {
            keyspace: table.map(|table| table.keyspace.clone()),
            scope: table.map(|table| table.name.clone()),
            ..Self::new(kind, category)
        };
        let table = plan.table().map(|table| &**table);
        match plan {
            Plan::Select(_) => about("SELECT", AuditCategory::Query, table),
            Plan::Modification(plan) if plan.kind == ModificationKind::Delete => {
                about("DELETE", AuditCategory::Dml, table)
            }
            Plan::Modification(_) | Plan::Setting(_) => about("UPDATE", AuditCategory::Dml, table),
            Plan::Batch(plan) => Self {
                scope: None,
                batched: batched(plan.statements.iter().map(|statement| &statement.table)),
                ..about("BATCH", AuditCategory::Dml, table)
            },
            Plan::Truncate(_) => about("TRUNCATE", AuditCategory::Ddl, table),
            Plan::Prune(_) => about("PRUNE_MATERIALIZED_VIEW", AuditCategory::Ddl, table),
            Plan::Other(statement) => of_statement(statement, session),
        }
    }

    /// That of a statement that is prepared.
    pub fn prepared(self) -> Self {
        let category = AuditCategory::Prepare;
        Self { kind: "PREPARE_STATEMENT".to_owned(), category, statement: None, ..self }
    }
}

/// The tables of a batch, each once.
pub(crate) fn batched<'a>(tables: impl Iterator<Item = &'a Arc<Table>>) -> Vec<(String, String)> {
    let names = tables.map(|table| (table.keyspace.clone(), table.name.clone()));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn of_statement(statement: &Statement, session: Option<&str>) -> AuditEvent {
    let (kind, category) = match statement {
        Statement::Use(_) => ("USE_KEYSPACE".to_owned(), AuditCategory::Other),
        Statement::Describe(_) => ("DESCRIBE".to_owned(), AuditCategory::Other),
        // A user is a role.
        Statement::CreateUser(_) => ("CREATE_ROLE".to_owned(), AuditCategory::Dcl),
        Statement::AlterUser(_) => ("ALTER_ROLE".to_owned(), AuditCategory::Dcl),
        Statement::DropUser(_) => ("DROP_ROLE".to_owned(), AuditCategory::Dcl),
        Statement::AddIdentity(_) => ("CREATE_IDENTITY".to_owned(), AuditCategory::Dcl),
        other => {
            let category = match crate::roles::is_about_roles(other) {
                true => AuditCategory::Dcl,
                false => AuditCategory::Ddl,
            };
            (other.name().replace("MATERIALIZED VIEW", "VIEW").replace(' ', "_"), category)
        }
    };
    let (keyspace, scope) = match statement {
        Statement::Use(ast) => (Some(ast.keyspace.name.clone()), None),
        Statement::CreateKeyspace(ast) => (Some(ast.name.name.clone()), None),
        Statement::AlterKeyspace(ast) => (Some(ast.name.name.clone()), None),
        Statement::DropKeyspace(ast) => (Some(ast.name.name.clone()), None),
        other => match object(other) {
            Some(name) => {
                (name.keyspace.clone().or_else(|| session.map(str::to_owned)), Some(name.name.clone()))
            }
            None => (None, None),
        },
    };
    AuditEvent { keyspace, scope, ..AuditEvent::new(&kind, category) }
}

/// The object of a change of the schema: of an index or trigger that is created, its table.
fn object(statement: &Statement) -> Option<&QualifiedName> {
    Some(match statement {
        Statement::CreateTable(ast) => &ast.name,
        Statement::CopyTable(ast) => &ast.name,
        Statement::AlterTable(ast) => &ast.name,
        Statement::DropTable(ast) => &ast.name,
        Statement::CreateType(ast) => &ast.name,
        Statement::AlterType(ast) => &ast.name,
        Statement::DropType(ast) => &ast.name,
        Statement::CreateIndex(ast) => &ast.table,
        Statement::DropIndex(ast) => &ast.name,
        Statement::CreateView(ast) => &ast.name,
        Statement::AlterView(ast) => &ast.name,
        Statement::DropView(ast) => &ast.name,
        Statement::CreateFunction(ast) => &ast.name,
        Statement::DropFunction(ast) => &ast.name,
        Statement::CreateAggregate(ast) => &ast.name,
        Statement::DropAggregate(ast) => &ast.name,
        Statement::CreateTrigger(ast) => &ast.table,
        Statement::DropTrigger(ast) => &ast.table,
        _ => return None,
    })
}
