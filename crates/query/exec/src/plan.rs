//! Plans: statements whose names, types and access paths are resolved, ready to be run with any values.

use std::sync::Arc;

use auth::Resource;
use cql::ast::Statement;
use rt::preempt::{Pace, yield_now};
use schema::{Schema, Table, UserAggregate, UserFunction};

use crate::describe;
use crate::error::{ExecError, Result};
use crate::expr::bind::MarkerSpec;
use crate::expr::calls::UserCall;
use crate::expr::resolve::Markers;
use crate::functions::{Aggregate, UserAggregation};
use crate::lookup::Lookup;
use crate::modification::ModificationPlan;
use crate::modification::batch::{BatchPlan, is_conditional};
use crate::prune::PrunePlan;
use crate::select::{SelectPlan, Source};
use crate::setting::SettingPlan;
use crate::sink::ResultColumns;
use crate::truncate::TruncatePlan;

/// Statements of a BATCH that are parsed between two looks whether to yield.
const STATEMENTS_AT_ONCE: usize = 64;

/// The result of resolving a statement.
#[derive(Debug)]
pub enum Plan {
    /// SELECT.
    Select(SelectPlan),
    /// INSERT, UPDATE, DELETE.
    Modification(ModificationPlan),
    /// BATCH.
    Batch(BatchPlan),
    /// TRUNCATE.
    Truncate(TruncatePlan),
    /// PRUNE MATERIALIZED VIEW.
    Prune(Box<PrunePlan>),
    /// UPDATE of a table that shows the node's settings.
    Setting(Box<SettingPlan>),
    /// A statement that is planned anew whenever it is executed.
    Other(Statement),
}

/// Whether a statement holds under a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// As it is.
    Current,
    /// Its tables have the columns that it was made for, but are not the same values.
    Outdated,
    /// Its tables have other columns, or are gone.
    Invalid,
}

/// A function that is replaced by one of the same result leaves the metadata of statements as they are.
fn fit_of_function(function: &Arc<UserFunction>, schema: &Schema) -> Fit {
    let home = schema.keyspace(&function.keyspace);
    match home.and_then(|home| home.functions.get(&function.signature())) {
        Some(now) if Arc::ptr_eq(now, function) => Fit::Current,
        Some(now) if now.returns == function.returns => Fit::Outdated,
        _ => Fit::Invalid,
    }
}

fn fit_of_aggregate(aggregate: &Arc<UserAggregate>, schema: &Schema) -> Fit {
    let home = schema.keyspace(&aggregate.keyspace);
    match home.and_then(|home| home.aggregates.get(&aggregate.signature())) {
        Some(now) if Arc::ptr_eq(now, aggregate) => Fit::Current,
        Some(now) if now.returns == aggregate.returns => Fit::Outdated,
        _ => Fit::Invalid,
    }
}

/// Frees a long syntax tree.
async fn free(ast: cql::ast::Batch) {
    let mut pace = Pace::new();
    for statement in ast.statements {
        drop(statement);
        pace.step().await;
    }
}

/// The longest text of a statement of which other shards run parts: it is sent with each of them.
const DIVIDED_TEXT_MAX: usize = 64 << 10;

impl Plan {
    /// Parses and resolves a statement: its plan, and its bind markers in order.
    ///
    /// # Errors
    /// When the text is not CQL, has no meaning for this schema, or is not supported.
    pub fn parse(text: &str, keyspace: Option<&str>, lookup: &Lookup<'_>) -> Result<(Self, Vec<MarkerSpec>)> {
        let parsed = cql::parse(text)?;
        let mut markers = Markers::new(parsed.markers.len());
        let plan = Self::resolve(parsed.statement, keyspace, lookup, &mut markers)?;
        Ok((plan.of_text(text, keyspace, &markers), markers.finish()))
    }

    /// [`Plan::parse`] of a long text, giving way to other tasks: between statements of a BATCH, and between parsing and resolving.
    ///
    /// # Errors
    /// The same.
    pub async fn parse_in_steps(
        text: &str,
        keyspace: Option<&str>,
        lookup: &Lookup<'_>,
    ) -> Result<(Self, Vec<MarkerSpec>)> {
        let mut parsing = cql::Parsing::new(text);
        let mut pace = Pace::new();
        let parsed = loop {
            if let Some(parsed) = parsing.advance(STATEMENTS_AT_ONCE)? {
                break parsed;
            }
            pace.count(STATEMENTS_AT_ONCE);
            pace.step().await;
        };
        drop(parsing);
        yield_now().await;
        let mut markers = Markers::new(parsed.markers.len());
        let plan = match parsed.statement {
            Statement::Batch(ast) => {
                let plan = BatchPlan::prepare_in_steps(&ast, lookup, keyspace, &mut markers).await?;
                free(ast).await;
                Self::Batch(plan)
            }
            other => Self::resolve(other, keyspace, lookup, &mut markers)?,
        };
        Ok((plan.of_text(text, keyspace, &markers), markers.finish()))
    }

    /// The plan, which knows its text if other shards may run parts of it.
    fn of_text(mut self, text: &str, keyspace: Option<&str>, markers: &Markers) -> Self {
        if let Self::Select(plan) = &mut self
            && plan.selection.is_aggregate()
            && !markers.varies()
            && text.len() <= DIVIDED_TEXT_MAX
        {
            plan.source = Some(Source { text: text.to_owned(), keyspace: keyspace.map(str::to_owned) });
        }
        self
    }

    /// Resolves a statement; bind markers are collected in `markers`.
    ///
    /// # Errors
    /// When the statement has no meaning for this schema, or is not supported.
    pub fn resolve(
        statement: Statement,
        keyspace: Option<&str>,
        lookup: &Lookup<'_>,
        markers: &mut Markers,
    ) -> Result<Self> {
        Ok(match statement {
            Statement::Select(ast) => Self::Select(SelectPlan::prepare(&ast, lookup, keyspace, markers)?),
            Statement::Insert(ast) => {
                let plan = ModificationPlan::insert(&ast, lookup, keyspace, markers)?;
                Self::Modification(plan.with_calls(markers))
            }
            Statement::Update(ast) => match SettingPlan::prepare(&ast, lookup, keyspace, markers)? {
                Some(plan) => Self::Setting(Box::new(plan)),
                None => {
                    let plan = ModificationPlan::update(&ast, lookup, keyspace, markers)?;
                    Self::Modification(plan.with_calls(markers))
                }
            },
            Statement::Delete(ast) => match SettingPlan::prepare_delete(&ast, lookup, keyspace, markers)? {
                Some(plan) => Self::Setting(Box::new(plan)),
                None => {
                    let plan = ModificationPlan::delete(&ast, lookup, keyspace, markers)?;
                    Self::Modification(plan.with_calls(markers))
                }
            },
            Statement::Batch(ast) => Self::Batch(BatchPlan::prepare(&ast, lookup, keyspace, markers)?),
            Statement::Truncate(ast) => {
                let plan = TruncatePlan::prepare(&ast, lookup, keyspace, markers)?;
                if !markers.take_calls().is_empty() {
                    return Err(ExecError::invalid("TRUNCATE cannot call user-defined functions"));
                }
                Self::Truncate(plan)
            }
            Statement::PruneView(ast) => {
                Self::Prune(Box::new(PrunePlan::prepare(&ast, lookup, keyspace, markers)?))
            }
            other => {
                let known = crate::ddl::is_schema_change(&other)
                    || crate::roles::is_about_roles(&other)
                    || matches!(other, Statement::Use(_) | Statement::Describe(_));
                if !known {
                    return Err(ExecError::unsupported(other.name()));
                }
                if matches!(other, Statement::CreateView(_)) && markers.count() > 0 {
                    return Err(ExecError::invalid(crate::ddl::NO_MARKERS_IN_VIEWS));
                }
                Self::Other(other)
            }
        })
    }

    /// Whether it holds under this schema.
    pub fn fit(&self, schema: &Arc<Schema>) -> Fit {
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
        let tables = match self {
            Self::Select(plan) => of(plan.named_table()),
            Self::Modification(plan) => of(&plan.table),
            Self::Batch(plan) => {
                plan.statements.iter().map(|statement| of(&statement.table)).fold(Fit::Current, worse)
            }
            Self::Truncate(plan) => of(&plan.table),
            // It has a copy of the view's definition over the base.
            Self::Prune(plan) => worse(of(plan.view()), of(&plan.base)),
            Self::Setting(_) | Self::Other(_) => Fit::Current,
        };
        let mut fit = tables;
        self.user_functions(&mut |function| fit = worse(fit, fit_of_function(function, schema)));
        if let Self::Select(SelectPlan { masked: Some(masked), .. }) = self {
            let calls = masked.plan.selection.row_calls.iter().chain(&masked.plan.selection.group_calls);
            calls.for_each(|call| fit = worse(fit, fit_of_function(&call.function, schema)));
        }
        for aggregate in self.user_aggregates() {
            fit = worse(fit, fit_of_aggregate(&aggregate.definition, schema));
        }
        fit
    }

    /// The user-defined functions that are called before it runs.
    pub fn calls(&self) -> &[UserCall] {
        match self {
            Self::Select(plan) => &plan.calls,
            Self::Modification(plan) => &plan.calls,
            Self::Batch(plan) => &plan.calls,
            Self::Truncate(_) | Self::Prune(_) | Self::Setting(_) | Self::Other(_) => &[],
        }
    }

    fn user_aggregates(&self) -> impl Iterator<Item = &UserAggregation> {
        let aggregates = match self {
            Self::Select(plan) => plan.selection.aggregates.as_slice(),
            _ => &[],
        };
        aggregates.iter().filter_map(|aggregate| match &aggregate.kind {
            Aggregate::User(user) => Some(&**user),
            _ => None,
        })
    }

    /// The user-defined functions and aggregates that it calls.
    pub fn user_defined(&self) -> Vec<Resource> {
        let mut called = Vec::new();
        self.user_functions(&mut |function| called.push(Resource::of_function(function)));
        called.extend(self.user_aggregates().map(|user| Resource::of_aggregate(&user.definition)));
        called
    }

    /// Calls `visit` with every user-defined function that it calls.
    pub fn user_functions(&self, visit: &mut dyn FnMut(&Arc<UserFunction>)) {
        self.calls().iter().for_each(|call| visit(&call.function));
        if let Self::Select(plan) = self {
            let selection = &plan.selection;
            selection.row_calls.iter().chain(&selection.group_calls).for_each(|call| visit(&call.function));
        }
        for aggregate in self.user_aggregates() {
            visit(&aggregate.adds);
            aggregate.merges.iter().chain(&aggregate.ends).for_each(&mut *visit);
        }
    }

    /// The columns of its rows, when they are known before it is run.
    pub fn result_columns(&self, lookup: &Lookup<'_>, keyspace: Option<&str>) -> Option<ResultColumns> {
        match self {
            Self::Select(plan) => Some(plan.selection.result.clone()),
            Self::Other(Statement::Describe(ast)) => Some(describe::result_columns(ast, lookup, keyspace)),
            Self::Modification(_)
            | Self::Batch(_)
            | Self::Truncate(_)
            | Self::Prune(_)
            | Self::Setting(_)
            | Self::Other(_) => None,
        }
    }

    /// Whether it has conditions.
    pub fn is_conditional(&self) -> bool {
        match self {
            Self::Modification(plan) => !plan.conditions.is_empty(),
            Self::Batch(plan) => is_conditional(plan.statements.iter()),
            Self::Select(_) | Self::Truncate(_) | Self::Prune(_) | Self::Setting(_) | Self::Other(_) => false,
        }
    }

    /// The statement's table; of a batch the first statement's.
    pub fn table(&self) -> Option<&Arc<Table>> {
        match self {
            Self::Select(plan) => Some(plan.named_table()),
            Self::Modification(plan) => Some(&plan.table),
            Self::Batch(plan) => plan.statements.first().map(|statement| &statement.table),
            Self::Truncate(plan) => Some(&plan.table),
            Self::Prune(plan) => Some(plan.view()),
            Self::Setting(plan) => Some(&plan.table),
            Self::Other(_) => None,
        }
    }

    /// The tables that the statement names, one for each part of a batch.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        let batched = match self {
            Self::Batch(plan) => &plan.statements[..],
            _ => &[],
        };
        let alone = self.table().filter(|_| batched.is_empty());
        alone.into_iter().chain(batched.iter().map(|statement| &statement.table))
    }

    /// The markers of the partition key's columns in order, when each has one.
    pub fn key_markers(&self) -> Vec<u16> {
        let of_batch;
        let markers = match self {
            Self::Select(plan) => &plan.key_markers,
            Self::Modification(plan) => &plan.key_markers,
            Self::Batch(plan) => {
                of_batch = plan.key_markers();
                &of_batch
            }
            Self::Truncate(_) | Self::Prune(_) | Self::Setting(_) | Self::Other(_) => return Vec::new(),
        };
        let all: Option<Vec<u16>> = markers.iter().map(|m| m.and_then(|m| u16::try_from(m).ok())).collect();
        all.unwrap_or_default()
    }
}
