//! SELECT: resolved to a [`SelectPlan`], carried out by [`run`].

mod fragments;
pub mod nearest;
pub mod nearest_plan;
mod pages;
pub(crate) mod part_codec;
pub mod parts;
mod places;
mod reach;
mod read;
mod reduce;
mod row_lookup;
pub mod run;
pub mod selection;
mod sort;
mod spots;

use std::sync::Arc;

use cql::ast::{
    ComparisonOperator, Direction, Ident, Select, Selection as SelectionAst, Selector, SelectorKind, Term,
};
use mutation::{ColumnSelection, Row, Seconds};
use replica::PartitionResult;
use schema::{Column, ColumnId, ColumnKind, HIDDEN, Table};
use types::CqlType;

use crate::error::{ExecError, Result, invalid};
use crate::expr::CallScope;
use crate::expr::Expr;
use crate::expr::calls::{UserCall, take_calls};
use crate::expr::literal::text;
use crate::expr::resolve::{Markers, Receiver, Resolver};
use crate::expr::row::ColumnRef;
use crate::lookup::Lookup;
use crate::request::timeout_of;
use crate::where_clause::access::AccessPath;
use crate::where_clause::choice::TupleChoice;
use crate::where_clause::filter::{Filter, Test};
use crate::where_clause::rows::RowRestriction;
use crate::where_clause::{self, Restrictions, StatementKind};
use nearest_plan::{NearestPlan, limit_expected};
use selection::Selection;

/// A clustering column by which rows of several partitions are sorted after they were read.
#[derive(Clone, Debug)]
pub struct SortColumn {
    /// The column.
    pub column: ColumnRef,
    /// The largest value comes first.
    pub descending: bool,
    /// The order is not the table's: nulls come last then, as in Cassandra.
    pub is_backwards: bool,
}

/// A prepared SELECT.
#[derive(Debug)]
pub struct SelectPlan {
    /// The table.
    pub table: Arc<Table>,
    /// `FROM MUTATION_FRAGMENTS(…)`: the table whose fragments are the rows of the plan's table.
    pub fragments_of: Option<Arc<Table>>,
    /// Whether its rows are computed when they are read: such tables are filtered without being asked to.
    pub computed: bool,
    /// The returned value.
    pub selection: Selection,
    /// How its rows are found.
    pub access: AccessPath,
    /// The filters that rows have to pass once they are read.
    pub filters: Vec<Filter>,
    /// For each partition key column the marker bound to it by `=`.
    pub key_markers: Vec<Option<u32>>,
    /// How many key columns GROUP BY covers, counted from the first of the partition key; none without the clause.
    pub group_width: Option<usize>,
    /// The function of the column after those that groups share, too.
    pub group_function: Option<Expr>,
    /// Rows in descending clustering order.
    pub reversed: bool,
    /// Clustering columns by which rows of several partitions are sorted after they were read.
    pub sort: Vec<SortColumn>,
    /// ORDER BY … ANN OF.
    pub nearest: Option<NearestPlan>,
    /// LIMIT.
    pub limit: Option<Expr>,
    /// PER PARTITION LIMIT.
    pub per_partition_limit: Option<Expr>,
    /// DISTINCT.
    pub distinct: bool,
    /// The columns that reads fetch.
    pub fetch: ColumnSelection,
    /// USING TIMEOUT.
    pub timeout: Option<Expr>,
    /// ALLOW FILTERING.
    pub allows_filtering: bool,
    /// BYPASS CACHE.
    pub bypass_cache: bool,
    /// Whether a partition with nothing but a static row is a row of the result.
    pub static_rows: bool,
    /// The user-defined functions that its terms call before it runs.
    pub calls: Vec<UserCall>,
    /// Whether it returns one row as it is: neither filtered, nor counted, nor put together of several, and without a function that another
    /// language calculates.
    pub is_row_lookup: bool,
    /// The text, of an aggregation of which other shards may run parts; none where they may not.
    pub source: Option<Source>,
    /// The same for roles without permission to see masked values; none of a table without masks.
    pub masked: Option<Box<MaskedSelect>>,
}

/// The text of a statement, from which another shard makes the same plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The text.
    pub text: String,
    /// The keyspace of unqualified names.
    pub keyspace: Option<String>,
}

/// A SELECT of a table with masked columns, for roles without the permission UNMASK.
#[derive(Debug)]
pub struct MaskedSelect {
    /// The statement with masks in the place of columns.
    pub plan: SelectPlan,
    /// The masked columns that WHERE restricts, in the order of the table.
    pub restricted: Vec<String>,
}

impl SelectPlan {
    /// Whether a partition has its static row alone, which is a row of the result then.
    fn is_static_alone(&self, partition: &PartitionResult, now: Seconds) -> bool {
        partition.rows.is_empty()
            && self.static_rows
            && partition.static_row.as_ref().is_some_and(|row| row.has_live_cell(now))
    }

    /// The rows of a partition that are rows of the result: a static row alone is one, without a row of a clustering key.
    fn rows_of<'a>(
        &self,
        partition: &'a PartitionResult,
        now: Seconds,
    ) -> impl Iterator<Item = Option<&'a Row>> + use<'a> {
        let alone = self.is_static_alone(partition, now).then_some(None);
        partition.rows.iter().map(Some).chain(alone)
    }

    /// Resolves a SELECT.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when the table or a column is missing, a selector does not fit
    /// its function, the WHERE clause needs ALLOW FILTERING, or ORDER BY, GROUP BY and limits contradict the key.
    pub fn prepare(
        ast: &Select,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        let mut plan = Self::resolve(ast, lookup, keyspace, markers, false)?;
        plan.is_row_lookup = plan.looks_up_a_row();
        if plan.table.masked_columns().next().is_some() {
            let mut masked = Self::resolve(ast, lookup, keyspace, markers, true)?;
            // The metadata of a result do not depend on the role.
            masked.selection.result = plan.selection.result.clone();
            masked.is_row_lookup = masked.looks_up_a_row();
            let is_restricted = |column: &&Column| {
                ast.filter.iter().any(|relation| relation.target.names(&column.name))
                    || ast
                        .order_by
                        .iter()
                        .any(|order| order.is_by_value() && order.column.name == column.name)
            };
            let restricted = plan.table.masked_columns().filter(is_restricted);
            let restricted = restricted.map(|column| column.name.clone()).collect();
            plan.masked = Some(Box::new(MaskedSelect { plan: masked, restricted }));
        }
        Ok(plan)
    }

    /// Resolves a SELECT, with masks in the place of columns or without.
    fn resolve(
        ast: &Select,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
        masked: bool,
    ) -> Result<Self> {
        let (table, fragments_of, computed) = tables_of(ast, lookup, keyspace)?;
        let mut resolver = Resolver::new(lookup.schema, &table, markers);
        resolver.masked = masked;
        resolver.timed = fragments_of.is_none();
        let selection =
            Selection::resolve(&ast.selection, ast.json, !ast.group_by.is_empty(), &mut resolver)?;
        resolver.masked = false;
        check_distinct_filter(ast, &table)?;
        let nearest = NearestPlan::prepare(ast, &mut resolver)?;
        let filtering = ast.allow_filtering || computed && is_virtual(&table.keyspace);
        let statement = StatementKind::Select { filtering, nearest: nearest.is_some() };
        let mut restrictions = where_clause::resolve(&ast.filter, statement, &mut resolver)?;
        let nearest = NearestPlan::complete(nearest, restrictions.relevance.take(), &selection)?;
        restrictions.filters.extend(view_filter(&table, lookup));
        if selection.only_static && !ast.distinct && restrictions.restricts_clustering && !selection.all {
            return invalid!("Cannot restrict clustering columns when selecting only static columns");
        }
        let (group_width, group_function) = group_by(ast, &table, &restrictions, &mut resolver)?;
        let (reversed, sort) = order_by(ast, &table, &restrictions)?;
        if ast.distinct {
            check_distinct(ast, &table, &selection, &restrictions)?;
        }
        let (limit, per_partition_limit) = limits_of(ast, &mut resolver)?;
        if per_partition_limit.is_some() && selection.is_aggregate() && group_width.is_none() {
            return invalid!("PER PARTITION LIMIT is not allowed with aggregate queries.");
        }
        let timeout = timeout_of(&ast.using, &mut resolver)?;
        let static_rows =
            ast.distinct || (!restrictions.restricts_clustering && !restrictions.restricts_regular);
        let mut also = columns_beside(&restrictions, static_rows, &table);
        also.extend(nearest.as_ref().and_then(NearestPlan::fetched));
        let plan = Self {
            fragments_of,
            computed,
            fetch: selection.fetch(also),
            selection,
            group_width,
            group_function,
            reversed,
            sort,
            limit,
            per_partition_limit,
            distinct: ast.distinct,
            timeout,
            allows_filtering: ast.allow_filtering,
            bypass_cache: ast.bypass_cache || !table.options.is_cached(),
            static_rows,
            access: restrictions.access_path(&table),
            filters: std::mem::take(&mut restrictions.filters),
            key_markers: std::mem::take(&mut restrictions.key_markers),
            table,
            calls: markers.take_calls(),
            nearest,
            is_row_lookup: false,
            source: None,
            masked: None,
        };
        if plan.nearest.is_some() {
            check_nearest(ast, &plan)?;
        }
        Ok(plan)
    }

    fn looks_up_a_row(&self) -> bool {
        let selection = &self.selection;
        let calls = !selection.row_calls.is_empty() || !selection.group_calls.is_empty();
        let reduces = selection.is_aggregate() || self.group_width.is_some() || self.distinct;
        let looks_further = !self.filters.is_empty() || self.nearest.is_some() || !self.sort.is_empty();
        matches!(&self.access, AccessPath::Key(access) if access.token.is_none())
            && !(calls || reduces || looks_further || self.computed || self.fragments_of.is_some())
    }

    /// The table that it is of, as the schema names it.
    pub fn named_table(&self) -> &Arc<Table> {
        self.fragments_of.as_ref().unwrap_or(&self.table)
    }

    /// Whether the first row of a partition that passes the filters stands for the partition, which may not be its first row: a view has rows in
    /// sight behind others.
    fn takes_first_that_passes(&self) -> bool {
        self.distinct && self.filters.iter().any(|filter| filter.is_of_row())
    }

    /// Whether a secondary index finds its rows.
    pub fn uses_index(&self) -> bool {
        matches!(self.access, AccessPath::Index(_))
    }

    /// The warning that an aggregation over many partitions deserves.
    pub fn aggregation_warning(&self) -> Option<&'static str> {
        if !self.selection.is_aggregate() {
            return None;
        }
        match &self.access {
            AccessPath::Keys(_) => Some("Aggregation query used on multiple partition keys (IN restriction)"),
            access if access.names_partitions() || access.names_tokens() => None,
            // Also one that rows are only filtered by names some of it.
            _ if self.filters.iter().any(|filter| filter.column.kind == ColumnKind::PartitionKey) => None,
            _ => Some("Aggregation query used without partition key"),
        }
    }
}

/// The table of a SELECT's rows, the table whose fragments these are, and whether they are computed when they are read.
fn tables_of(
    ast: &Select,
    lookup: &Lookup<'_>,
    keyspace: Option<&str>,
) -> Result<(Arc<Table>, Option<Arc<Table>>, bool)> {
    let (table, computed) = lookup.table(&ast.from, keyspace)?;
    if !ast.mutation_fragments {
        return Ok((table, None, computed));
    }
    fragments::check(ast)?;
    if lookup.keyspace(&table.keyspace).is_some_and(|home| home.computes(&table.name)) {
        return invalid!(
            "{} has no mutation fragments: its rows are computed when they are read",
            table.full_name()
        );
    }
    Ok((fragments::table_of(&table)?, Some(table), false))
}

/// The columns that a read has to fetch beside those that are selected.
fn columns_beside(restrictions: &Restrictions, static_rows: bool, table: &Table) -> Vec<ColumnId> {
    let is_value = |filter: &&Filter| matches!(filter.column.kind, ColumnKind::Static | ColumnKind::Regular);
    let mut also: Vec<ColumnId> =
        restrictions.filters.iter().filter(is_value).map(|filter| filter.column.id).collect();
    if static_rows {
        // Any static value makes a partition without rows a row of the result.
        also.extend(table.static_columns().iter().map(|column| column.id));
    }
    also
}

/// The condition on which a row of a view is there whose key has a regular column of the base: the hidden copy of its cell lives and has
/// the value that is in the key (docs/design/views.md).
fn view_filter(view: &Table, lookup: &Lookup<'_>) -> Option<Filter> {
    let derivation = view.derivation.as_ref().filter(|derivation| derivation.is_view())?;
    let hidden = view.column(HIDDEN).filter(|column| !column.is_complex())?;
    let base = lookup.schema.table_by_id(derivation.base())?;
    let is_regular =
        |column: &&Column| base.column(&column.name).is_some_and(|column| column.kind == ColumnKind::Regular);
    let key = view.partition_key().iter().chain(view.clustering()).find(is_regular)?;
    Some(Filter { column: hidden.into(), name: key.name.clone(), test: Test::SameAs(key.into()) })
}

/// Refuses clauses that cannot be combined with an order by nearness.
///
/// # Errors
/// Without LIMIT; with PER PARTITION LIMIT, DISTINCT or an aggregation.
fn check_nearest(ast: &Select, plan: &SelectPlan) -> Result<()> {
    if plan.per_partition_limit.is_some() {
        return invalid!("Top-K queries do not support per-partition limits");
    }
    if plan.selection.is_aggregate() || plan.group_width.is_some() {
        return invalid!("Top-K queries can not be run with aggregation");
    }
    if ast.distinct {
        return invalid!("Top-K queries do not support SELECT DISTINCT");
    }
    if plan.limit.is_none() {
        return limit_expected();
    }
    Ok(())
}

/// LIMIT and PER PARTITION LIMIT.
fn limits_of(ast: &Select, resolver: &mut Resolver<'_>) -> Result<(Option<Expr>, Option<Expr>)> {
    let limit = limit_of(ast.limit.as_ref(), "[limit]", resolver)?;
    Ok((limit, limit_of(ast.per_partition_limit.as_ref(), "[per_partition_limit]", resolver)?))
}

fn limit_of(term: Option<&Term>, name: &'static str, resolver: &mut Resolver<'_>) -> Result<Option<Expr>> {
    term.map(|term| resolver.term(term, &Receiver::owned(name, CqlType::Int))).transpose()
}

/// How many key columns the groups share, and the function of the column after these that they share, too; checks that all are a
/// prefix of the primary key.
fn group_by(
    ast: &Select,
    table: &Table,
    restrictions: &Restrictions,
    resolver: &mut Resolver<'_>,
) -> Result<(Option<usize>, Option<Expr>)> {
    if ast.group_by.is_empty() {
        return Ok((None, None));
    }
    let key_len = table.partition_key().len();
    let primary = &table.columns()[..key_len + table.clustering().len()];
    // Columns fixed to one value by `=` may be left out.
    let fixed = |at: usize| is_fixed(restrictions, table, at);
    let mut next = 0;
    let mut function = None;
    for selector in &ast.group_by {
        if function.is_some() {
            return invalid!("Functions are only supported on the last element of the GROUP BY clause");
        }
        let name = match &selector.kind {
            SelectorKind::Column(name) => name,
            _ => {
                let (expr, name) = group_function(selector, table, resolver)?;
                function = Some(expr);
                name
            }
        };
        let Some(column) = table.column(&name.name) else {
            return invalid!("Undefined column name {} in table {}", name.name, table.full_name());
        };
        let Some(at) = primary.iter().position(|c| c.id == column.id) else {
            return invalid!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {}",
                column.name
            );
        };
        while next < at && fixed(next) {
            next += 1;
        }
        if at != next {
            return invalid!(
                "Group by currently only support groups of columns following their declared order in the PRIMARY KEY"
            );
        }
        next += 1;
    }
    if next < key_len {
        return invalid!("Group by is not supported on only a part of the partition key");
    }
    if ast.distinct && next > key_len {
        return invalid!("Grouping on clustering columns is not allowed for SELECT DISTINCT queries");
    }
    // The column itself may differ inside of a group.
    let width = if function.is_some() { next - 1 } else { next };
    Ok((Some(width.max(key_len)), function))
}

/// Whether the column of the primary key at a place is restricted to one value, also by a condition that rows are only filtered by.
fn is_fixed(restrictions: &Restrictions, table: &Table, at: usize) -> bool {
    let key_len = table.partition_key().len();
    let name = &table.columns()[at].name;
    let is_equality = |test: &Test| matches!(test, Test::Compare(ComparisonOperator::Equal, _));
    if restrictions.filters.iter().any(|filter| filter.name == *name && is_equality(&filter.test)) {
        return true;
    }
    if at < key_len {
        return restrictions.keys.as_ref().is_some_and(|keys| keys[at].is_one());
    }
    let mut width = key_len;
    for row in &restrictions.rows {
        match row {
            RowRestriction::Single(choice) if width == at => return choice.is_one(),
            RowRestriction::Single(_) => width += 1,
            RowRestriction::Multi(n, choice) if (width..width + n).contains(&at) => {
                return matches!(choice, TupleChoice::One(_));
            }
            RowRestriction::Multi(n, _) => width += n,
            RowRestriction::Slice { .. } => return false,
        }
    }
    false
}

/// A function in GROUP BY, and the only column that it is of.
fn group_function<'a>(
    selector: &'a Selector,
    table: &Table,
    resolver: &mut Resolver<'_>,
) -> Result<(Expr, &'a Ident)> {
    let SelectorKind::Function(call) = &selector.kind else {
        return invalid!(
            "Group by is only supported on columns and functions of them, got {}",
            text(selector)
        );
    };
    let mut columns = call.args.iter().filter_map(|arg| match &arg.kind {
        SelectorKind::Column(name) => Some(name),
        _ => None,
    });
    let name = (columns.next(), columns.next());
    if let (Some(name), None) = name {
        match table.column(&name.name) {
            None => {
                return invalid!("Undefined column name {} in table {}", name.name, table.full_name());
            }
            Some(column) if column.kind != ColumnKind::Clustering => {
                return invalid!(
                    "Group by functions are only supported on clustering columns, got {}",
                    column.name
                );
            }
            Some(_) => {}
        }
    }
    let aggregates = resolver.aggregates.len();
    let outside = std::mem::replace(&mut resolver.columns, true);
    let expr = resolver.selector(selector, None);
    resolver.columns = outside;
    let expr = expr?;
    let mut calls = Vec::new();
    let expr = take_calls(expr, CallScope::Row, &mut calls);
    if !calls.is_empty() {
        return Err(ExecError::unsupported("GROUP BY with a user-defined function"));
    }
    if resolver.aggregates.len() > aggregates {
        let keyspace = call.name.keyspace.as_deref().unwrap_or("system");
        return invalid!(
            "Aggregate functions are not supported within the GROUP BY clause, got: {keyspace}.{}",
            call.name.name
        );
    }
    match name {
        (Some(name), None) => Ok((expr, name)),
        _ => invalid!("GROUP BY functions must have one clustering column name as parameter"),
    }
}

/// The order of rows: reversed or not, and the columns to sort by after reading.
fn order_by(ast: &Select, table: &Table, restrictions: &Restrictions) -> Result<(bool, Vec<SortColumn>)> {
    if ast.order_by.iter().all(cql::ast::Ordering::is_by_value) {
        return Ok((false, Vec::new()));
    }
    if restrictions.uses_index {
        return invalid!("ORDER BY with 2ndary indexes is not supported, except for ANN queries.");
    }
    if restrictions.keys.is_none() {
        return invalid!(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN."
        );
    }
    let mut sort = Vec::new();
    let mut reversed: Option<bool> = None;
    let mut next = 0;
    // A column named twice counts with its last direction.
    let mut wanted: Vec<(&Column, bool)> = Vec::new();
    for ordering in &ast.order_by {
        let name = &ordering.column.name;
        let Some(column) = table.column(name) else {
            return invalid!("Undefined column name {name} in table {}", table.full_name());
        };
        if column.kind != ColumnKind::Clustering {
            return invalid!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {name}"
            );
        }
        let descending = ordering.direction == Direction::Descending;
        match wanted.iter_mut().find(|(c, _)| c.id == column.id) {
            Some(entry) => entry.1 = descending,
            None => wanted.push((column, descending)),
        }
    }
    for (column, descending) in wanted {
        let at = usize::from(column.position);
        // Columns fixed to one value before it may be left out.
        while next < at && is_fixed(restrictions, table, table.partition_key().len() + next) {
            next += 1;
        }
        if at != next {
            return invalid!(
                "Order by currently only supports the ordering of columns following their declared order in the PRIMARY \
                 KEY"
            );
        }
        next += 1;
        let backwards = descending != column.descending;
        if reversed.is_some_and(|reversed| reversed != backwards) {
            return invalid!("Unsupported order by relation");
        }
        reversed = Some(backwards);
        sort.push(SortColumn { column: ColumnRef::from(column), descending, is_backwards: backwards });
    }
    if !restrictions.is_key_in() {
        sort.clear();
    }
    Ok((reversed.unwrap_or(false), sort))
}

/// Whether the computed tables of a keyspace are virtual ones in Cassandra, which are filtered without asking.
fn is_virtual(keyspace: &str) -> bool {
    matches!(keyspace, "system_views" | "system_virtual_schema")
}

/// Refuses conditions of a SELECT DISTINCT on anything but the partition key and static columns.
fn check_distinct_filter(ast: &Select, table: &Table) -> Result<()> {
    let within = |name: &cql::ast::Ident| match table.column(&name.name) {
        Some(column) => matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Static),
        // An unknown column has a message of its own.
        None => true,
    };
    let allowed = !ast.distinct
        || ast.filter.iter().all(|relation| match &relation.target {
            cql::ast::Target::Column(name) | cql::ast::Target::Element(name, _) => within(name),
            cql::ast::Target::Tuple(names) => names.iter().all(within),
            _ => true,
        });
    if !allowed {
        return invalid!(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns."
        );
    }
    Ok(())
}

fn check_distinct(
    ast: &Select,
    table: &Table,
    selection: &Selection,
    restrictions: &Restrictions,
) -> Result<()> {
    if ast.per_partition_limit.is_some() {
        return invalid!("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries");
    }
    let allowed = |column: &Column| matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Static);
    let selected: Vec<&Column> = match &ast.selection {
        SelectionAst::All => table.columns().iter().collect(),
        SelectionAst::Selectors(_) => {
            let mut selected: Vec<&Column> =
                selection.names.iter().filter_map(|name| table.column(name)).collect();
            selected.extend(selection.columns.iter().filter_map(|id| table.column_by_id(*id)));
            selected
        }
    };
    if let Some(column) = selected.iter().find(|column| !allowed(column)) {
        return invalid!(
            "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
            column.name
        );
    }
    // A statement that names the partitions knows their keys.
    if restrictions.keys.is_some() {
        return Ok(());
    }
    for column in table.partition_key() {
        if !selected.iter().any(|c| c.id == column.id) {
            return invalid!(
                "SELECT DISTINCT queries must request all the partition key columns (missing {})",
                column.name
            );
        }
    }
    Ok(())
}
