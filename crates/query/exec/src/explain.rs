//! Plans as text: the access path and the steps on it, for reviews of changes of the planner.

use std::fmt::Write as _;

use mutation::ColumnSelection;
use schema::{ColumnId, ColumnKind, Table};

use crate::expr::row::ColumnRef;
use crate::expr::{CellPart, Expr, Kind};
use crate::functions::Aggregate;
use crate::modification::condition::Conditions;
use crate::modification::operation::Operation;
use crate::modification::{ModificationKind, ModificationPlan};
use crate::plan::Plan;
use crate::select::SelectPlan;
use crate::select::selection::Outputs;
use crate::where_clause::access::{AccessPath, KeyAccess, RangeAccess};
use crate::where_clause::access::{IndexAccess, IndexPart, IndexScope, Wanted};
use crate::where_clause::choice::{Choice, TupleChoice, TupleValue};
use crate::where_clause::filter::{Filter, Test};
use crate::where_clause::rows::{RowRestriction, SliceEnd, TokenRange};

/// A plan as text, a line for each of its parts; bind markers are `?` with their number.
pub fn explain(plan: &Plan) -> String {
    let mut out = String::new();
    match plan {
        Plan::Select(plan) => select(plan, &mut out),
        Plan::Modification(plan) => modification(plan, &mut out),
        Plan::Batch(plan) => {
            let kind = format!("{:?}", plan.kind).to_lowercase();
            let _ = writeln!(out, "batch {kind}");
            plan.statements.iter().for_each(|statement| modification(statement, &mut out));
            timeout(plan.timeout.as_ref(), plan.statements.first().map(|first| &*first.table), &mut out);
        }
        Plan::Truncate(plan) => {
            let _ = writeln!(out, "truncate {}", plan.table.full_name());
            timeout(plan.timeout.as_ref(), Some(&plan.table), &mut out);
        }
        Plan::Prune(plan) => {
            let _ = writeln!(out, "prune {} of {}", plan.view().full_name(), plan.base.full_name());
            line(&mut out, "access", &access(&plan.select.access, plan.view()));
            timeout(plan.select.timeout.as_ref(), Some(plan.view()), &mut out);
        }
        Plan::Setting(plan) => {
            let _ = writeln!(out, "change a setting of {}", plan.table.full_name());
            line(&mut out, "name", &expr(&plan.name, &plan.table));
            if let Some(value) = &plan.value {
                line(&mut out, "value", &expr(value, &plan.table));
            }
        }
        Plan::Other(statement) => {
            let _ = writeln!(out, "{}, planned when it is run", statement.name());
        }
    }
    out
}

fn line(out: &mut String, what: &str, value: &str) {
    let _ = writeln!(out, "  {what:<8}{value}");
}

fn timeout(timeout: Option<&Expr>, table: Option<&Table>, out: &mut String) {
    if let (Some(timeout), Some(table)) = (timeout, table) {
        line(out, "timeout", &expr(timeout, table));
    }
}

fn select(plan: &SelectPlan, out: &mut String) {
    let table = &*plan.table;
    let _ = writeln!(out, "select {}{}", table.full_name(), if plan.computed { " (computed)" } else { "" });
    line(out, "access", &access(&plan.access, table));
    if !plan.filters.is_empty() {
        let filters: Vec<String> = plan.filters.iter().map(|one| filter(one, table)).collect();
        line(out, "filter", &filters.join(" and "));
    }
    let fetch = match &plan.fetch {
        ColumnSelection::All => "all".to_owned(),
        ColumnSelection::Some(ids) => names_of(ids, table),
    };
    line(out, "fetch", &fetch);
    if let Some(width) = plan.group_width {
        let columns = table.columns().iter().take(width).map(|column| column.name.as_str());
        let function = plan.group_function.iter().map(|function| expr(function, table));
        let columns = columns.map(str::to_owned).chain(function);
        line(out, "group", &columns.collect::<Vec<_>>().join(", "));
    }
    if plan.selection.is_aggregate() {
        let aggregates = plan.selection.aggregates.iter().map(|call| {
            let input = match call.inputs.as_slice() {
                [] => "*".to_owned(),
                inputs => list(inputs, table),
            };
            match &call.kind {
                Aggregate::CountRows => "count(*)".to_owned(),
                Aggregate::Native(function) => format!("{}({input})", function.full_name()),
                Aggregate::First => format!("first({input})"),
                Aggregate::User(user) => {
                    let merged = if user.merges.is_some() { ", by ranges where it can" } else { "" };
                    format!("{}.{}({input}){merged}", user.definition.keyspace, user.definition.name)
                }
            }
        });
        line(out, "reduce", &aggregates.collect::<Vec<_>>().join(", "));
    }
    if !plan.sort.is_empty() {
        let columns = plan
            .sort
            .iter()
            .map(|by| format!("{}{}", name(&by.column, table), if by.descending { " desc" } else { "" }));
        line(out, "sort", &columns.collect::<Vec<_>>().join(", "));
    } else if plan.reversed {
        line(out, "order", "reversed");
    }
    let (values, form) = match &plan.selection.outputs {
        Outputs::Columns(columns) => (columns.iter().map(|one| name(one, table)).collect::<Vec<_>>(), ""),
        Outputs::Exprs(exprs) => (exprs.iter().map(|one| expr(one, table)).collect(), ""),
        Outputs::Json(members) => (members.iter().map(|(_, one)| expr(one, table)).collect(), "json of "),
    };
    let distinct = if plan.distinct { "distinct " } else { "" };
    line(out, "return", &format!("{distinct}{form}{}", values.join(", ")));
    for (what, limit) in [("limit", &plan.limit), ("each", &plan.per_partition_limit)] {
        if let Some(limit) = limit {
            line(out, what, &expr(limit, table));
        }
    }
    timeout(plan.timeout.as_ref(), Some(table), out);
    if plan.bypass_cache {
        line(out, "cache", "bypassed");
    }
}

fn modification(plan: &ModificationPlan, out: &mut String) {
    let table = &*plan.table;
    let verb = match plan.kind {
        ModificationKind::Insert => "insert into",
        ModificationKind::Update => "update",
        ModificationKind::Delete => "delete from",
    };
    let _ = writeln!(out, "{verb} {}", table.full_name());
    line(out, "access", &access(&AccessPath::of_keys(plan.access.clone(), table), table));
    let mut reads: Vec<ColumnId> = plan.columns_to_read().collect();
    reads.sort();
    reads.dedup();
    if !reads.is_empty() {
        line(out, "read", &names_of(&reads, table));
    }
    match &plan.conditions {
        Conditions::None => {}
        Conditions::NotExists => line(out, "if", "not exists"),
        Conditions::Exists => line(out, "if", "exists"),
        Conditions::Columns(columns) => {
            let columns: Vec<String> = columns.iter().map(|one| name(&one.column, table)).collect();
            line(out, "if", &columns.join(", "));
        }
    }
    let operations: Vec<String> = plan.operations().map(operation).collect();
    let what = if operations.is_empty() && plan.kind == ModificationKind::Delete {
        "rows".to_owned()
    } else {
        operations.join(", ")
    };
    line(out, "write", &what);
}

/// A change of a column: its kind, without values.
fn operation(operation: &Operation) -> String {
    let debug = format!("{:?}", operation.change);
    let kind: String = debug.chars().take_while(|c| c.is_alphanumeric()).collect();
    format!("{} {}", kind.to_lowercase(), operation.name)
}

fn names_of(ids: &[ColumnId], table: &Table) -> String {
    let names: Vec<&str> =
        ids.iter().filter_map(|id| table.column_by_id(*id)).map(|column| column.name.as_str()).collect();
    if names.is_empty() { "keys alone".to_owned() } else { names.join(", ") }
}

fn name(column: &ColumnRef, table: &Table) -> String {
    let at = usize::from(column.position);
    let found = match column.kind {
        ColumnKind::PartitionKey => table.partition_key().get(at),
        ColumnKind::Clustering => table.clustering().get(at),
        ColumnKind::Static | ColumnKind::Regular => table.column_by_id(column.id),
    };
    found.map_or_else(|| "?".to_owned(), |column| column.name.clone())
}

fn access(path: &AccessPath, table: &Table) -> String {
    let parts = match path {
        AccessPath::Key(access) | AccessPath::Keys(access) | AccessPath::Slice(access) => keys(access, table),
        AccessPath::Range(access) | AccessPath::Full(access) => range(access, table),
        AccessPath::Index(access) => index(access, table),
    };
    format!("{}: {}", path.name(), parts.join("; "))
}

fn keys(access: &KeyAccess, table: &Table) -> Vec<String> {
    let columns = table.partition_key().iter().zip(&access.keys);
    let mut parts: Vec<String> =
        columns.map(|(column, choice)| format!("{} {}", column.name, choice_text(choice, table))).collect();
    parts.extend(access.token.as_ref().map(|range| token(range, table)));
    parts.extend(rows(&access.rows, table));
    parts
}

fn range(access: &RangeAccess, table: &Table) -> Vec<String> {
    let ring = || "the whole ring".to_owned();
    let mut parts = vec![access.token.as_ref().map_or_else(ring, |range| token(range, table))];
    parts.extend(rows(&access.rows, table));
    parts
}

fn index(access: &IndexAccess, table: &Table) -> Vec<String> {
    let places = if access.partitions { "partitions" } else { "rows" };
    let of_part = |part: &IndexPart| format!("{} where {}", part.index, wanted(part, table));
    let indexes: Vec<String> = access.parts.iter().map(of_part).collect();
    let mut parts = vec![format!("{places} of {}", indexes.join(" and "))];
    parts.extend(match &access.within {
        IndexScope::Range(access) => range(access, table),
        IndexScope::Partition(access) => keys(access, table),
    });
    parts
}

fn wanted(part: &IndexPart, table: &Table) -> String {
    let column = &part.column;
    let end = |sign: &str, end: &Option<(Expr, bool)>| {
        let (value, included) = end.as_ref()?;
        Some(format!("{column} {sign}{} {}", if *included { "=" } else { "" }, expr(value, table)))
    };
    match &part.wanted {
        Wanted::Equal(value) => format!("{column} has {}", expr(value, table)),
        Wanted::In(values) => format!("{column} {}", choice_text(values, table)),
        Wanted::Terms(_, value) => format!("{column} has the terms of {}", expr(value, table)),
        Wanted::Entry(key, value) => format!("{column}[{}] = {}", expr(key, table), expr(value, table)),
        Wanted::Like(_, pattern) => format!("{column} like {}", expr(pattern, table)),
        Wanted::Slice { from, to } => {
            let ends = [end(">", from), end("<", to)];
            ends.into_iter().flatten().collect::<Vec<_>>().join(" and ")
        }
    }
}

fn token(range: &TokenRange, table: &Table) -> String {
    let end = |sign: &str, end: &Option<(Expr, bool)>| {
        let (value, inclusive) = end.as_ref()?;
        Some(format!("token {sign}{} {}", if *inclusive { "=" } else { "" }, expr(value, table)))
    };
    let ends = [end(">", &range.start), end("<", &range.end)];
    ends.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

fn rows(rows: &[RowRestriction], table: &Table) -> Vec<String> {
    rows_from(0, rows, table)
}

/// Restrictions that begin at a clustering column.
fn rows_from(first: usize, rows: &[RowRestriction], table: &Table) -> Vec<String> {
    let mut at = first;
    let mut parts = Vec::new();
    let names = |from: usize, width: usize| {
        let columns = table.clustering().iter().skip(from).take(width).map(|column| column.name.as_str());
        columns.collect::<Vec<_>>().join(", ")
    };
    for row in rows {
        match row {
            RowRestriction::Single(choice) => {
                parts.push(format!("{} {}", names(at, 1), choice_text(choice, table)));
                at += 1;
            }
            RowRestriction::Multi(width, choice) => {
                let values = match choice {
                    TupleChoice::One(value) => format!("= {}", tuple(value, table)),
                    TupleChoice::List(values) => {
                        let values: Vec<String> = values.iter().map(|value| tuple(value, table)).collect();
                        format!("in ({})", values.join(", "))
                    }
                    TupleChoice::Marker(marker) => format!("in {}", expr(marker, table)),
                };
                parts.push(format!("({}) {values}", names(at, *width)));
                at += width;
            }
            RowRestriction::Slice { start, end, except } => {
                let side = |sign: &str, end: &Option<SliceEnd>| {
                    let end = end.as_ref()?;
                    let equal = if end.inclusive { "=" } else { "" };
                    Some(format!("({}) {sign}{equal} {}", names(at, end.width), tuple(&end.value, table)))
                };
                parts.extend([side(">", start), side("<", end)].into_iter().flatten());
                for values in except {
                    let without = std::slice::from_ref(values);
                    parts.extend(rows_from(at, without, table).into_iter().map(|text| format!("not {text}")));
                }
            }
        }
    }
    parts
}

fn tuple(value: &TupleValue, table: &Table) -> String {
    match value {
        TupleValue::Parts(parts) => format!("({})", list(parts, table)),
        TupleValue::Whole(whole) => expr(whole, table),
    }
}

fn choice_text(choice: &Choice, table: &Table) -> String {
    match choice {
        Choice::One(one) => format!("= {}", expr(one, table)),
        Choice::List(values) => format!("in ({})", list(values, table)),
        Choice::Marker(marker) => format!("in {}", expr(marker, table)),
    }
}

fn filter(filter: &Filter, table: &Table) -> String {
    test(&filter.name, &filter.test, table)
}

fn test(name: &str, test: &Test, table: &Table) -> String {
    let what = match test {
        Test::Compare(operator, value) => format!("{} {}", operator.symbol(), expr(value, table)),
        Test::In(choice) => choice_text(choice, table),
        Test::Contains(value) => format!("contains {}", expr(value, table)),
        Test::ContainsKey(value) => format!("contains key {}", expr(value, table)),
        Test::SameAs(_) => "is that of the base".to_owned(),
        Test::Like(_, pattern) => format!("like {}", expr(pattern, table)),
        Test::Matches(pattern) => format!("matches {}", expr(pattern, table)),
        Test::Analyzed(_, inner) => return format!("{} (analyzed)", self::test(name, inner, table)),
        Test::Not(inner) => return format!("not {}", self::test(name, inner, table)),
        Test::Element { key, test, .. } => {
            return self::test(&format!("{name}[{}]", expr(key, table)), test, table);
        }
    };
    format!("{name} {what}")
}

fn list(values: &[Expr], table: &Table) -> String {
    values.iter().map(|value| expr(value, table)).collect::<Vec<_>>().join(", ")
}

fn expr(value: &Expr, table: &Table) -> String {
    match &value.kind {
        Kind::Constant(None) => "null".to_owned(),
        Kind::Constant(Some(bytes)) => value.ty.to_json(bytes),
        Kind::Bind(at) => format!("?{at}"),
        Kind::Column(column) => name(column, table),
        Kind::Meta(meta) => {
            let part = if matches!(meta.part, CellPart::Whole) { "" } else { " (part)" };
            format!("{}({}{part})", format!("{:?}", meta.what).to_lowercase(), name(&meta.column, table))
        }
        Kind::Field(inner, at) => format!("{}.{at}", expr(inner, table)),
        Kind::Element(inner, key, _) => format!("{}[{}]", expr(inner, table), expr(key, table)),
        Kind::Slice(inner, from, to, _) => {
            let end = |end: &Option<Box<Expr>>| end.as_ref().map_or_else(String::new, |end| expr(end, table));
            format!("{}[{}..{}]", expr(inner, table), end(from), end(to))
        }
        Kind::Extreme { greatest, of } => {
            format!("{}({})", if *greatest { "greatest" } else { "least" }, list(&**of, table))
        }
        Kind::Call(function, args) => format!("{}({})", function.full_name(), list(args, table)),
        Kind::Build(parts) => format!("({})", list(parts, table)),
        Kind::Aggregate(at) => format!("aggregate {at}"),
        Kind::Called(scope, at) => format!("{} call {at}", format!("{scope:?}").to_lowercase()),
    }
}
