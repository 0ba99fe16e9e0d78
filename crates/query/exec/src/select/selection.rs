//! The select clause: which values a result row holds, and the names and types that clients see.

use std::collections::BTreeSet;

use bytes::Bytes;
use cql::ast::{Selection as SelectionAst, SelectorKind};
use mutation::{ColumnSelection, counter};
use schema::{Column, ColumnId, ColumnKind, Table};
use types::CqlType;

use crate::error::Result;
use crate::expr::CallScope;
use crate::expr::calls::{UserCall, map_parts, take_calls};
use crate::expr::literal::text;
use crate::expr::resolve::{AggregateCall, Resolver};
use crate::expr::row::{ColumnRef, RowView, complex_value};
use crate::expr::{Env, Expr, Kind};
use crate::functions::{Aggregate, Function};
use crate::sink::{ResultColumns, RowSink, check_result_bytes, too_large};

/// The values of a result row.
#[derive(Clone, Debug)]
pub enum Outputs {
    /// Columns as they are: handed to the sink without a step between.
    Columns(Vec<ColumnRef>),
    /// Computed values.
    Exprs(Vec<Expr>),
    /// One JSON object of these values, each with its name in quotes.
    Json(Vec<(String, Expr)>),
}

/// A resolved select clause.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The values.
    pub outputs: Outputs,
    /// The columns of the result.
    pub result: ResultColumns,
    /// The aggregates that outputs refer to.
    pub aggregates: Vec<AggregateCall>,
    /// Whether the result is of groups and not of rows, also where no aggregate is needed for it.
    aggregated: bool,
    /// The user-defined functions that are called for each row that is returned or aggregated.
    pub row_calls: Vec<UserCall>,
    /// Those that are called for each group.
    pub group_calls: Vec<UserCall>,
    /// The static and regular columns that are read.
    pub columns: BTreeSet<ColumnId>,
    /// Whether everything is selected (`*`).
    pub all: bool,
    /// Whether static columns are selected, and no regular ones.
    pub only_static: bool,
    /// Columns selected by name and those of the key that are read, for the rules of DISTINCT.
    pub names: Vec<String>,
}

fn outputs(named: Vec<(String, Expr)>, json: bool, is_plain: bool) -> Outputs {
    if json {
        return Outputs::Json(named.into_iter().map(|(name, expr)| (json_name(&name), expr)).collect());
    }
    match is_plain {
        true => Outputs::Columns(named.into_iter().filter_map(|(_, expr)| column_of(expr)).collect()),
        false => Outputs::Exprs(named.into_iter().map(|(_, expr)| expr).collect()),
    }
}

fn result_columns(table: &Table, json: bool, named: &[(String, Expr)]) -> ResultColumns {
    if json {
        return ResultColumns::new(&table.keyspace, &table.name, [("[json]", &CqlType::Text)]);
    }
    let columns = named.iter().map(|(name, expr)| (name.as_str(), &expr.ty));
    ResultColumns::new(&table.keyspace, &table.name, columns)
}

/// The order in which `*` lists columns: keys, static columns, regular columns.
fn all_columns(table: &Table) -> impl Iterator<Item = &Column> {
    table.shown_columns()
}

/// The name of a member of a JSON object: in quotes, and in quotes twice where the column's name needs them.
fn json_name(name: &str) -> String {
    let mut out = String::new();
    let quoted = if name.chars().any(char::is_uppercase) { format!("\"{name}\"") } else { name.to_owned() };
    types::json::write_string(&quoted, &mut out);
    out
}

impl Selection {
    /// Resolves a select clause. `grouped` when the statement has GROUP BY.
    ///
    /// # Errors
    /// As [`Resolver::selector`].
    pub fn resolve(
        ast: &SelectionAst,
        json: bool,
        grouped: bool,
        resolver: &mut Resolver<'_>,
    ) -> Result<Self> {
        let table = resolver.table;
        resolver.columns = true;
        let mut named: Vec<(String, Expr)> = Vec::new();
        let mut columns_only = true;
        let mut names = Vec::new();
        let all = matches!(ast, SelectionAst::All);
        match ast {
            SelectionAst::All => {
                for column in all_columns(table) {
                    names.push(column.name.clone());
                    named.push((column.name.clone(), resolver.column_value(column)?));
                }
            }
            SelectionAst::Selectors(selectors) => {
                for selector in selectors {
                    let expr = resolver.selector(&selector.selector, None)?;
                    let name = match (&selector.alias, &selector.selector.kind) {
                        (Some(alias), _) => alias.name.clone(),
                        // A cast of a column to the type that it has is the column.
                        (None, SelectorKind::Cast(inner, _)) if matches!(expr.kind, Kind::Column(_)) => {
                            text(inner)
                        }
                        (None, _) => text(&resolver.qualified(&selector.selector)),
                    };
                    if let SelectorKind::Column(column) = &selector.selector.kind {
                        names.push(column.name.clone());
                    } else {
                        columns_only = false;
                    }
                    named.push((name, expr));
                }
            }
        }
        resolver.columns = false;
        let aggregated = grouped || !resolver.aggregates.is_empty();
        if aggregated {
            named = named.into_iter().map(|(name, expr)| (name, first_values(expr, resolver))).collect();
        }
        let mut aggregates = std::mem::take(&mut resolver.aggregates);
        let (columns, statics, regulars) = columns_read(&named, &aggregates);
        names.extend(keys_read(&named, &aggregates, table));
        let (mut row_calls, mut group_calls) = (Vec::new(), Vec::new());
        take_input_calls(&mut aggregates, &mut row_calls);
        let calls = if aggregated { &mut group_calls } else { &mut row_calls };
        named.iter_mut().for_each(|(_, expr)| replace_calls(expr, calls));
        let result = result_columns(table, json, &named);
        let is_plain = (all || columns_only) && !aggregated && !resolver.masked;
        let outputs = outputs(named, json, is_plain);
        let only_static = statics && !regulars;
        Ok(Self {
            outputs,
            result,
            aggregates,
            aggregated,
            row_calls,
            group_calls,
            columns,
            all,
            only_static,
            names,
        })
    }

    /// Whether user-defined functions are called for groups or the rows in them.
    pub fn calls_in_groups(&self) -> bool {
        let user = |aggregate: &AggregateCall| matches!(aggregate.kind, Aggregate::User(_));
        !self.row_calls.is_empty() || !self.group_calls.is_empty() || self.aggregates.iter().any(user)
    }

    /// The columns whose relevance to a query is selected.
    pub fn relevance_of(&self) -> BTreeSet<String> {
        let mut columns = BTreeSet::new();
        let mut visit = |expr: &Expr| {
            expr.any(&mut |part| {
                if let Kind::Call(function, _) = &part.kind
                    && let Function::Text(function) = &**function
                {
                    columns.extend(function.relevance_of().map(str::to_owned));
                }
                false
            });
        };
        match &self.outputs {
            Outputs::Columns(_) => {}
            Outputs::Exprs(exprs) => exprs.iter().for_each(&mut visit),
            Outputs::Json(members) => members.iter().for_each(|(_, expr)| visit(expr)),
        }
        let calls = self.row_calls.iter().chain(&self.group_calls);
        calls.flat_map(|call| &call.arguments).for_each(&mut visit);
        self.aggregates.iter().flat_map(|aggregate| &aggregate.inputs).for_each(&mut visit);
        columns
    }

    /// Whether the result is of groups and not of rows.
    pub fn is_aggregate(&self) -> bool {
        self.aggregated
    }

    /// The columns that a read has to fetch for it, together with the columns that filters look at.
    pub fn fetch(&self, also: impl IntoIterator<Item = ColumnId>) -> ColumnSelection {
        if self.all {
            return ColumnSelection::All;
        }
        let all: BTreeSet<ColumnId> = self.columns.iter().copied().chain(also).collect();
        ColumnSelection::Some(all.into_iter().collect())
    }

    /// Hands a row to a sink.
    ///
    /// # Errors
    /// Also when the result becomes larger than a result may be, before an oversized one is put together.
    pub fn write(&self, env: &Env<'_>, rows: &mut impl RowSink) -> Result<()> {
        match &self.outputs {
            Outputs::Columns(columns) => {
                if let Some(row) = env.row {
                    // The same large value may be named often: an oversized result is refused before any of it is copied.
                    if columns.len() > COLUMNS_COPIED_AT_ONCE {
                        check_result_bytes(rows.byte_count() + plain_len(row, columns))?;
                    }
                    for column in columns {
                        match rows.is_too_large() {
                            false => write_column(row, column, rows),
                            true => rows.cell(None),
                        }
                    }
                }
                rows.end_row();
            }
            Outputs::Exprs(exprs) => {
                // Everything is computed before anything is written, so that an error leaves no half row behind.
                let mut values = Vec::with_capacity(exprs.len());
                let mut bytes = rows.byte_count();
                for expr in exprs {
                    let value = expr.eval_option(env)?;
                    bytes += value.as_ref().map_or(0, Bytes::len);
                    check_result_bytes(bytes)?;
                    values.push(value);
                }
                values.iter().for_each(|value| rows.cell(value.as_deref()));
                rows.end_row();
            }
            Outputs::Json(members) => {
                let mut text = String::from("{");
                for (at, (name, expr)) in members.iter().enumerate() {
                    if at > 0 {
                        text.push_str(", ");
                    }
                    text.push_str(name);
                    text.push_str(": ");
                    match expr.eval_option(env)? {
                        Some(value) => {
                            check_result_bytes(rows.byte_count() + text.len() + value.len())?;
                            text.push_str(&expr.ty.to_json(&value));
                        }
                        None => text.push_str("null"),
                    }
                    check_result_bytes(rows.byte_count() + text.len())?;
                }
                text.push('}');
                rows.cell(Some(text.as_bytes()));
                rows.end_row();
            }
        }
        if rows.is_too_large() { Err(too_large()) } else { Ok(()) }
    }
}

/// Rows of more columns are measured before they are copied.
const COLUMNS_COPIED_AT_ONCE: usize = 64;

/// Bytes of those values of a row that need not be put together first.
fn plain_len(row: &RowView<'_>, columns: &[ColumnRef]) -> usize {
    let plain = columns.iter().filter(|column| !column.ty.is_multi_cell() && !column.ty.is_counter());
    plain.map(|column| row.borrowed(column).map_or(0, <[u8]>::len)).sum()
}

fn column_of(expr: Expr) -> Option<ColumnRef> {
    match expr.kind {
        Kind::Column(column) => Some(column),
        _ => None,
    }
}

/// The columns of the primary key that outputs read.
fn keys_read(named: &[(String, Expr)], aggregates: &[AggregateCall], table: &Table) -> Vec<String> {
    let mut names = Vec::new();
    let mut visit = |column: &ColumnRef| {
        let columns = match column.kind {
            ColumnKind::PartitionKey => table.partition_key(),
            ColumnKind::Clustering => table.clustering(),
            ColumnKind::Static | ColumnKind::Regular => return,
        };
        names.extend(columns.get(usize::from(column.position)).map(|column| column.name.clone()));
    };
    named.iter().for_each(|(_, expr)| expr.columns(&mut visit));
    let inputs = aggregates.iter().flat_map(|aggregate| &aggregate.inputs);
    inputs.for_each(|expr| expr.columns(&mut visit));
    names
}

/// The columns that outputs read, and whether static and regular ones are among them.
fn columns_read(named: &[(String, Expr)], aggregates: &[AggregateCall]) -> (BTreeSet<ColumnId>, bool, bool) {
    let (mut columns, mut statics, mut regulars) = (BTreeSet::new(), false, false);
    let mut visit = |column: &ColumnRef| match column.kind {
        ColumnKind::Static => {
            statics = true;
            columns.insert(column.id);
        }
        ColumnKind::Regular => {
            regulars = true;
            columns.insert(column.id);
        }
        ColumnKind::Clustering => regulars = true,
        ColumnKind::PartitionKey => {}
    };
    let inputs = aggregates.iter().flat_map(|aggregate| &aggregate.inputs);
    named.iter().map(|(_, expr)| expr).chain(inputs).for_each(|expr| expr.columns(&mut visit));
    (columns, statics, regulars)
}

/// Takes the calls of user-defined functions out of the arguments of aggregates.
fn take_input_calls(aggregates: &mut [AggregateCall], calls: &mut Vec<UserCall>) {
    aggregates
        .iter_mut()
        .flat_map(|aggregate| &mut aggregate.inputs)
        .for_each(|input| replace_calls(input, calls));
}

fn replace_calls(expr: &mut Expr, calls: &mut Vec<UserCall>) {
    let whole = std::mem::replace(expr, Expr::constant(CqlType::Blob, None));
    *expr = take_calls(whole, CallScope::Row, calls);
}

/// Among aggregates, a plain value is that of its group's first row.
fn first_values(expr: Expr, resolver: &mut Resolver<'_>) -> Expr {
    let has_aggregate = expr.any(&mut |e| matches!(e.kind, Kind::Aggregate(_)));
    // A user-defined function is called once a group, and not for each row.
    let mut has_call = false;
    expr.user_functions(&mut |_| has_call = true);
    let times = matches!(expr.kind, Kind::Meta(_));
    if !has_aggregate && (!has_call || times) {
        return if expr.reads_row() { resolver.first_of(expr) } else { expr };
    }
    Expr { ty: expr.ty, kind: map_parts(expr.kind, &mut |part| first_values(part, resolver)) }
}

/// Hands a column's value to a sink, without a copy in between where it is stored as it is sent.
#[inline]
pub fn write_column(row: &RowView<'_>, column: &ColumnRef, rows: &mut impl RowSink) {
    match column.kind {
        ColumnKind::PartitionKey | ColumnKind::Clustering => rows.cell(row.borrowed(column)),
        ColumnKind::Static | ColumnKind::Regular => {
            if column.ty.is_multi_cell() {
                let value = row
                    .complex(column)
                    .and_then(|complex| complex_value(&column.ty, complex, row.now, |_| true));
                match value {
                    Some(value) => rows.cell(Some(&value)),
                    None => rows.cell(None),
                }
            } else if column.ty.is_counter() {
                match row.cell(column) {
                    Some(cell) => rows.cell(Some(&counter::total(cell.value).to_be_bytes())),
                    None => rows.cell(None),
                }
            } else {
                rows.cell(row.borrowed(column));
            }
        }
    }
}
