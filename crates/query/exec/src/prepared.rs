//! Prepared statements: a plan with what clients are told about it, under the id that the text determines.

use std::sync::Arc;

use cql::ast::Statement;
use schema::{Schema, Table};
use wire::{Metadata, PreparedMetadata};

use crate::bind::MarkerSpec;
use crate::describe;
use crate::error::{ExecError, Result};
use crate::expr::resolve::Markers;
use crate::lookup::Lookup;
use crate::modification::ModificationPlan;
use crate::modification::batch::{BatchPlan, is_conditional};
use crate::select::SelectPlan;
use crate::select::selection::metadata;

/// What a statement was resolved to.
#[derive(Debug)]
pub enum Plan {
    /// SELECT.
    Select(SelectPlan),
    /// INSERT, UPDATE, DELETE.
    Modification(ModificationPlan),
    /// BATCH.
    Batch(BatchPlan),
    /// A statement that is planned anew whenever it is executed.
    Other(Statement),
}

/// A prepared statement.
#[derive(Debug)]
pub struct Prepared {
    /// The statement's text.
    pub text: String,
    /// The session's keyspace when it was prepared.
    pub keyspace: Option<String>,
    /// Its plan.
    pub plan: Plan,
    /// Its markers.
    pub markers: Vec<MarkerSpec>,
    /// What PREPARE answers.
    pub metadata: PreparedMetadata,
    /// Under this id clients were told of other result columns before: rows must name theirs, unless the client says
    /// which it knows.
    pub result_changed: bool,
}

/// Whether a statement holds under a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// As it is.
    Current,
    /// Its tables have the columns that it was made for, but are not the same values.
    Outdated,
    /// Its tables have other columns, or are gone.
    Invalid,
}

impl Prepared {
    /// Parses and resolves a statement.
    pub fn new(text: &str, keyspace: Option<&str>, lookup: &Lookup<'_>) -> Result<Self> {
        let parsed = cql::parse(text)?;
        let mut markers = Markers::new(parsed.markers.len());
        let plan = Self::plan(parsed.statement, keyspace, lookup, &mut markers)?;
        let markers = markers.finish();
        let result = match &plan {
            Plan::Select(plan) => plan.selection.metadata.clone(),
            Plan::Other(Statement::Describe(describe)) => {
                describe::result_metadata(describe, lookup, keyspace)
            }
            _ => Metadata::none(),
        };
        let bind_markers = match plan.table() {
            Some(table) => bind_metadata(&table.keyspace, &table.name, &markers),
            None => bind_metadata("", "", &markers),
        };
        let metadata = PreparedMetadata {
            id: wire::statement_id(keyspace.unwrap_or_default(), text),
            bind_markers,
            partition_key_markers: plan.key_markers(),
            result,
            is_conditional: plan.is_conditional(),
        };
        let (text, keyspace) = (text.to_owned(), keyspace.map(str::to_owned));
        Ok(Self { text, keyspace, plan, markers, metadata, result_changed: false })
    }

    fn plan(
        statement: Statement,
        keyspace: Option<&str>,
        lookup: &Lookup<'_>,
        markers: &mut Markers,
    ) -> Result<Plan> {
        Ok(match statement {
            Statement::Select(ast) => Plan::Select(SelectPlan::prepare(&ast, lookup, keyspace, markers)?),
            Statement::Insert(ast) => {
                Plan::Modification(ModificationPlan::insert(&ast, lookup, keyspace, markers)?)
            }
            Statement::Update(ast) => {
                Plan::Modification(ModificationPlan::update(&ast, lookup, keyspace, markers)?)
            }
            Statement::Delete(ast) => {
                Plan::Modification(ModificationPlan::delete(&ast, lookup, keyspace, markers)?)
            }
            Statement::Batch(ast) => Plan::Batch(BatchPlan::prepare(&ast, lookup, keyspace, markers)?),
            other => {
                let known = crate::ddl::is_schema_change(&other)
                    || matches!(other, Statement::Use(_) | Statement::Truncate(_) | Statement::Describe(_));
                if !known {
                    return Err(ExecError::unsupported(other.name()));
                }
                Plan::Other(other)
            }
        })
    }

    /// Whether it holds under this schema.
    pub(crate) fn fit(&self, schema: &Arc<Schema>) -> Fit {
        let of = |table: &Arc<Table>| match schema.table_by_id(table.id) {
            Some(now) if Arc::ptr_eq(now, table) => Fit::Current,
            Some(now) if now.columns() == table.columns() => Fit::Outdated,
            _ => Fit::Invalid,
        };
        let worse = |a: Fit, b: Fit| match (a, b) {
            (Fit::Invalid, _) | (_, Fit::Invalid) => Fit::Invalid,
            (Fit::Current, Fit::Current) => Fit::Current,
            _ => Fit::Outdated,
        };
        match &self.plan {
            Plan::Select(plan) => of(&plan.table),
            Plan::Modification(plan) => of(&plan.table),
            Plan::Batch(plan) => {
                plan.statements.iter().map(|statement| of(&statement.table)).fold(Fit::Current, worse)
            }
            Plan::Other(_) => Fit::Current,
        }
    }
}

fn bind_metadata(keyspace: &str, table: &str, markers: &[MarkerSpec]) -> Metadata {
    metadata(keyspace, table, markers.iter().map(|marker| (marker.name.as_str(), &marker.ty)))
}

impl Plan {
    /// Whether it has conditions.
    pub fn is_conditional(&self) -> bool {
        match self {
            Plan::Modification(plan) => !plan.conditions.is_empty(),
            Plan::Batch(plan) => is_conditional(plan.statements.iter()),
            Plan::Select(_) | Plan::Other(_) => false,
        }
    }

    /// The statement's table; of a batch the first statement's.
    pub fn table(&self) -> Option<&Arc<Table>> {
        match self {
            Plan::Select(plan) => Some(&plan.table),
            Plan::Modification(plan) => Some(&plan.table),
            Plan::Batch(plan) => plan.statements.first().map(|statement| &statement.table),
            Plan::Other(_) => None,
        }
    }

    /// The markers of the partition key's columns in order, when each has one.
    fn key_markers(&self) -> Vec<u16> {
        let markers = match self {
            Plan::Select(plan) => &plan.restrictions.key_markers,
            Plan::Modification(plan) => &plan.key_markers,
            Plan::Batch(plan) => match plan.statements.first() {
                Some(first) => &first.key_markers,
                None => return Vec::new(),
            },
            Plan::Other(_) => return Vec::new(),
        };
        let all: Option<Vec<u16>> = markers.iter().map(|m| m.and_then(|m| u16::try_from(m).ok())).collect();
        all.unwrap_or_default()
    }
}
