//! CREATE and ALTER MATERIALIZED VIEW: the definition of a view, with Cassandra's rules and texts (docs/design/views.md).

use std::sync::Arc;

use cluster::SchemaEdit;
use cql::ast::{
    AlterView, ComparisonOperator, CreateView, Direction, Ident, InValues, Pos, Predicate, Relation,
    Selection, SelectorKind, Target, Term, TermKind,
};
use schema::{
    Column, ColumnKind, Derivation, HIDDEN, Table, TableBuilder, TableId, TableOptions, ViewCondition,
    ViewOperator,
};
use stdx::HashSet;
use views::View;

use super::{DdlContext, Outcome, cdc, check_name, check_not_system, options};
use crate::error::{ExecError, Result, config, invalid};
use crate::expr::Kind;
use crate::expr::resolve::{Markers, Receiver, Resolver};
use crate::lookup::keyspace_of;
use crate::sink::{ChangeType, SchemaTarget};
use crate::where_clause::{self, StatementKind};

/// The refusal of markers.
pub const NO_MARKERS: &str = "Bind variables are not allowed in CREATE MATERIALIZED VIEW statements";

/// Replicas of a base write its views, without a client that an error could reach.
fn check_rate_limit(options: &TableOptions) -> Result<()> {
    match options.per_partition_rate_limit.max_writes_per_second {
        Some(_) => config(
            "max_writes_per_second of per_partition_rate_limit is not supported for a materialized view: limit the writes \
             of its base table",
        ),
        None => Ok(()),
    }
}

pub(super) fn create(ast: &CreateView, context: &DdlContext<'_>) -> Result<Outcome> {
    if !context.materialized_views {
        return invalid!("Materialized views are disabled. Enable in cassandra.yaml to use.");
    }
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    if ast.base.keyspace.as_deref().is_some_and(|other| other != keyspace) {
        return invalid!("Cannot create a materialized view on a table in a different keyspace");
    }
    check_not_system(context, keyspace)?;
    let (name, base_name) = (&ast.name.name, &ast.base.name);
    let Some(home) = context.lookup.schema.keyspace(keyspace) else {
        return invalid!("Keyspace '{keyspace}' doesn't exist");
    };
    // A view is no base table.
    let Some(base) = home.tables.get(base_name).filter(|base| !base.is_view()) else {
        return invalid!("Base table '{base_name}' doesn't exist");
    };
    match home.tables.get(name) {
        None => {}
        Some(other) if !other.is_view() => {
            return invalid!(
                "Cannot create materialized view '{name}' - a table with the same name already exists"
            );
        }
        Some(_) if ast.if_not_exists => return Ok(Outcome::nothing()),
        Some(_) => {
            return Err(ExecError::AlreadyExists { keyspace: keyspace.to_owned(), table: name.clone() });
        }
    }
    let view_options = options::of_new(&ast.properties)?;
    cdc::check_view(&view_options)?;
    check_rate_limit(&view_options)?;
    check_grace(&view_options, "set")?;
    check_name(name, "Table").map_err(|text| ExecError::Config(format!("{keyspace}.{name}: {text}")))?;
    check_base(name, base)?;
    let selected = selected(ast, base)?;
    let regular = check_key(ast, base, &selected)?;
    let conditions = conditions(ast, base, context)?;
    if ast.properties.iter().any(|property| property.name == "default_time_to_live") {
        return invalid!(
            "Cannot set default_time_to_live for a materialized view. Data in a materialized view always expire at the \
             same time than the corresponding data in the parent table."
        );
    }
    let given_id = options::given_id(&ast.properties, context.lookup.schema)?;
    let id = given_id.unwrap_or(TableId(context.table_id));
    let mut builder = with_columns(TableBuilder::new(keyspace, name, id), ast, base, &selected);
    let all_columns = matches!(ast.selection, Selection::All);
    if let Some(hidden) = View::hidden_type(regular.map(|column| &column.ty), all_columns) {
        builder = builder.regular(HIDDEN, hidden);
    }
    // A view shows no more than its base.
    for column in base.masked_columns() {
        builder.set_mask(&column.name, column.mask.as_deref().cloned());
    }
    let unused_options = options::without_effect(&view_options, &ast.properties);
    builder.options = view_options;
    let where_clause = ast.filter.iter().map(Relation::to_string).collect::<Vec<_>>().join(" AND ");
    builder.derivation = Some(Derivation::View { base: base.id, all_columns, where_clause, conditions });
    let table = builder.build().map_err(|error| ExecError::Invalid(error.to_string()))?;
    let mut outcome = Outcome::new(ChangeType::Created, keyspace, SchemaTarget::Table(name.clone()));
    outcome.edits.push(SchemaEdit::PutTable(table));
    outcome.given_id = given_id;
    outcome.warnings.extend(without_effect(ast));
    outcome.warnings.extend(unused_options);
    Ok(outcome)
}

/// ScyllaDB's warning of `IS NOT NULL` on columns outside of the view's key, which Cassandra accepts without a word.
fn without_effect(ast: &CreateView) -> Option<String> {
    let in_key = |name: &str| {
        ast.primary_key.partition.iter().chain(&ast.primary_key.clustering).any(|ident| ident.name == name)
    };
    let others = ast.filter.iter().filter_map(|relation| match (&relation.target, &relation.predicate) {
        (Target::Column(ident), Predicate::IsNotNull) if !in_key(&ident.name) => Some(ident.name.as_str()),
        _ => None,
    });
    let others: Vec<&str> = others.collect();
    (!others.is_empty()).then(|| {
        format!(
            "The IS NOT NULL restriction is allowed only columns which are part of the view's primary key, found columns: {}. \
             Restrictions on these columns will be silently ignored.",
            joined(others)
        )
    })
}

/// Refuses a view whose deletions are forgotten at once: updates that could not be delivered at first would be dropped.
fn check_grace(options: &TableOptions, verb: &str) -> Result<()> {
    match options.gc_grace_seconds {
        0 => invalid!(
            "Cannot {verb} gc_grace_seconds of a materialized view to 0, since this value is used to TTL undelivered \
             updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being replayed."
        ),
        _ => Ok(()),
    }
}

/// Whether a table can have a view of this name.
fn check_base(name: &str, base: &Table) -> Result<()> {
    if base.is_counter() {
        return invalid!("Materialized views are not supported on counter tables");
    }
    if base.is_cdc_log() {
        return invalid!("Materialized views cannot be created on CDC Log tables");
    }
    if base.derivation.is_some() || base.compact_storage {
        return invalid!("Materialized views are not supported on table {}", base.full_name());
    }
    if base.options.gc_grace_seconds == 0 {
        return invalid!(
            "Cannot create materialized view '{name}' for base table '{}' with gc_grace_seconds of 0, since this value is \
             used to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire \
             before being replayed.",
            base.name
        );
    }
    Ok(())
}

/// The columns of the base that the view has, in the base's order.
fn selected<'a>(ast: &CreateView, base: &'a Table) -> Result<Vec<&'a Column>> {
    let names: Option<HashSet<&str>> = match &ast.selection {
        Selection::All => None,
        Selection::Selectors(selectors) => {
            let mut names = HashSet::default();
            for selector in selectors {
                if selector.alias.is_some() {
                    return invalid!(
                        "Cannot use aliases when defining a materialized view (got {})",
                        selector.selector
                    );
                }
                let SelectorKind::Column(Ident { name, .. }) = &selector.selector.kind else {
                    return invalid!(
                        "Can only select columns by name when defining a materialized view (got {})",
                        selector.selector
                    );
                };
                if base.column(name).is_none() {
                    return invalid!("Undefined column name {name} in table {}", base.full_name());
                }
                names.insert(name.as_str());
            }
            Some(names)
        }
    };
    let is_selected = |column: &&Column| names.as_ref().is_none_or(|names| names.contains(&*column.name));
    let columns: Vec<&Column> = base.columns().iter().filter(is_selected).collect();
    match columns.iter().find(|column| column.kind == ColumnKind::Static) {
        Some(column) => invalid!(
            "Cannot include static column '{}' in materialized view '{}'",
            column.name,
            ast.name.name
        ),
        None => Ok(columns),
    }
}

/// Names joined as in messages.
fn joined<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Checks the view's key; the regular column of the base in it, if there is one.
fn check_key<'a>(ast: &CreateView, base: &'a Table, selected: &[&'a Column]) -> Result<Option<&'a Column>> {
    let view = &ast.name.name;
    let mut key: Vec<&Column> = Vec::new();
    for ident in ast.primary_key.partition.iter().chain(&ast.primary_key.clustering) {
        let name = &ident.name;
        let Some(column) = selected.iter().find(|column| column.name == *name) else {
            return invalid!(
                "Unknown column '{name}' referenced in PRIMARY KEY for materialized view '{view}'"
            );
        };
        if key.iter().any(|other| other.id == column.id && other.name == column.name) {
            return invalid!(
                "Duplicate column '{name}' in PRIMARY KEY clause for materialized view '{view}'"
            );
        }
        let ty = &column.ty;
        if ty.is_multi_cell() {
            let what = if ty.is_collection() { "collection" } else { "user-defined" };
            let ty = ty.class_name(false);
            return invalid!("Invalid non-frozen {what} type '{ty}' for PRIMARY KEY column '{name}'");
        }
        if ty.is_or_contains_duration() {
            return invalid!("duration type is not supported for PRIMARY KEY column '{name}'");
        }
        key.push(column);
    }
    let mut ordered = HashSet::default();
    if let Some((twice, _)) = ast.clustering_order.iter().find(|(ident, _)| !ordered.insert(&ident.name)) {
        return invalid!("Duplicate column '{}' in CLUSTERING ORDER BY clause for view '{view}'", twice.name);
    }
    let order = ast.clustering_order.iter().map(|(ident, _)| &ident.name);
    if !ast.clustering_order.is_empty() && !order.eq(ast.primary_key.clustering.iter().map(|c| &c.name)) {
        return invalid!(
            "Clustering key columns must exactly match columns in CLUSTERING ORDER BY directive"
        );
    }
    let in_key = |name: &str| key.iter().any(|column| column.name == name);
    let base_key = || base.partition_key().iter().chain(base.clustering());
    let missing: Vec<&str> =
        base_key().map(|column| column.name.as_str()).filter(|name| !in_key(name)).collect();
    if !missing.is_empty() {
        return invalid!(
            "Cannot create materialized view '{view}' without primary key columns {} from base table '{}'",
            joined(missing),
            base.name
        );
    }
    let regular: Vec<&Column> =
        key.iter().copied().filter(|column| column.kind == ColumnKind::Regular).collect();
    match regular.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => invalid!(
            "Cannot include more than one non-primary key column in materialized view primary key (got {})",
            joined(several.iter().map(|column| column.name.as_str()))
        ),
    }
}

/// The conditions of the view's WHERE, and whether it names each column of the key.
fn conditions(ast: &CreateView, base: &Table, context: &DdlContext<'_>) -> Result<Vec<ViewCondition>> {
    let mut markers = Markers::new(0);
    let mut resolver = Resolver::new(context.lookup.schema, base, &mut markers);
    let (mut named, mut found) = (HashSet::default(), Vec::new());
    let mut compared: Vec<Relation> = Vec::new();
    for relation in relations(ast, &mut resolver)?.iter() {
        let column = match &relation.target {
            Target::Column(ident) => resolver.column(&ident.name)?,
            Target::Token(_) => {
                return invalid!("Cannot use token relation when defining a materialized view");
            }
            Target::Index(_) => {
                return invalid!(
                    "WHERE clause for materialized view '{}' cannot contain custom index expressions",
                    ast.name.name
                );
            }
            _ => return Err(unsupported(relation)),
        };
        named.insert(column.name.as_str());
        let in_key = ast.primary_key.partition.iter().chain(&ast.primary_key.clustering);
        let in_key = in_key.into_iter().any(|ident| ident.name == column.name);
        if matches!(relation.predicate, Predicate::IsNotNull) {
            // Of another column it has no effect, in either peer: see `without_effect`.
            continue;
        }
        if !in_key {
            return invalid!(
                "Non-primary key columns can only be restricted with 'IS NOT NULL' (got: {} restricted illegally)",
                column.name
            );
        }
        compared.push(relation.clone());
        add_conditions(relation, column, &mut resolver, &mut found)?;
    }
    // The rules about relations that do not go together.
    where_clause::resolve(
        &compared,
        StatementKind::Select { filtering: true, nearest: false },
        &mut resolver,
    )?;
    let key = ast.primary_key.partition.iter().chain(&ast.primary_key.clustering);
    // A partition key of one column is never null, and ScyllaDB asks for no condition on it.
    let is_sole = |name: &str| matches!(base.partition_key(), [sole] if sole.name == name);
    let unnamed: Vec<&str> =
        key.map(|ident| ident.name.as_str()).filter(|name| !named.contains(name) && !is_sole(name)).collect();
    if !unnamed.is_empty() {
        return invalid!(
            "Primary key columns {} must be restricted with 'IS NOT NULL' or otherwise",
            joined(unnamed)
        );
    }
    Ok(found)
}

/// The relations of the WHERE, those on several columns as relations on each.
fn relations(ast: &CreateView, resolver: &mut Resolver<'_>) -> Result<Vec<Relation>> {
    let mut found = Vec::with_capacity(ast.filter.len());
    for relation in &ast.filter {
        let Target::Tuple(names) = &relation.target else {
            found.push(relation.clone());
            continue;
        };
        where_clause::resolve(
            std::slice::from_ref(relation),
            StatementKind::Select { filtering: true, nearest: false },
            resolver,
        )?;
        found.extend(on_each(names, &relation.predicate, relation.pos).ok_or_else(|| unsupported(relation))?);
    }
    Ok(found)
}

/// A relation on several columns as relations on each; none where only all of them together decide.
fn on_each(names: &[Ident], predicate: &Predicate, pos: Pos) -> Option<Vec<Relation>> {
    let parts = |term: &Term| match &term.kind {
        TermKind::Tuple(parts) if parts.len() == names.len() => Some(parts.clone()),
        _ => None,
    };
    let on = |name: &Ident, predicate| Relation { target: Target::Column(name.clone()), predicate, pos };
    let compared = |operator, term: &Term| -> Option<Vec<Relation>> {
        let parts = parts(term)?;
        let each = names.iter().zip(parts);
        Some(each.map(|(name, part)| on(name, Predicate::Compare(operator, part))).collect())
    };
    match (predicate, names) {
        (Predicate::Compare(ComparisonOperator::Equal, term), _) => compared(ComparisonOperator::Equal, term),
        (Predicate::Compare(operator, term), [_]) => compared(*operator, term),
        (Predicate::In { negated: false, values: InValues::List(terms) }, _) if terms.len() == 1 => {
            compared(ComparisonOperator::Equal, &terms[0])
        }
        (Predicate::In { negated: false, values: InValues::List(terms) }, [name]) => {
            let values = terms.iter().map(|term| parts(term)?.pop()).collect::<Option<_>>()?;
            Some(vec![on(name, Predicate::In { negated: false, values: InValues::List(values) })])
        }
        _ => None,
    }
}

fn unsupported(relation: &Relation) -> ExecError {
    ExecError::unsupported(format_args!("{relation} in the WHERE of a materialized view"))
}

/// Adds the conditions of one relation on a column of the key.
fn add_conditions(
    relation: &Relation,
    column: &Column,
    resolver: &mut Resolver<'_>,
    found: &mut Vec<ViewCondition>,
) -> Result<()> {
    let mut value = |term: &Term| -> Result<Vec<u8>> {
        match resolver.term(term, &Receiver::column(column))?.kind {
            Kind::Constant(Some(value)) => Ok(value.to_vec()),
            Kind::Constant(None) => {
                invalid!("Unsupported null value for column {}", column.name)
            }
            Kind::Bind(_) => invalid!("{NO_MARKERS}"),
            _ => Err(unsupported(relation)),
        }
    };
    let mut add = |operator, values| {
        found.push(ViewCondition { column: column.name.clone(), operator, values });
    };
    match &relation.predicate {
        Predicate::Compare(operator, term) => {
            let operator = match operator {
                ComparisonOperator::Equal => ViewOperator::Equal,
                ComparisonOperator::Less => ViewOperator::Less,
                ComparisonOperator::LessOrEqual => ViewOperator::LessOrEqual,
                ComparisonOperator::Greater => ViewOperator::Greater,
                ComparisonOperator::GreaterOrEqual => ViewOperator::GreaterOrEqual,
                ComparisonOperator::NotEqual => return Err(unsupported(relation)),
            };
            add(operator, vec![value(term)?]);
        }
        Predicate::In { negated: false, values: InValues::List(terms) } => {
            add(ViewOperator::In, terms.iter().map(value).collect::<Result<_>>()?);
        }
        Predicate::In { values: InValues::Marker(_), .. } => return invalid!("{NO_MARKERS}"),
        Predicate::Between(low, high) => {
            add(ViewOperator::GreaterOrEqual, vec![value(low)?]);
            add(ViewOperator::LessOrEqual, vec![value(high)?]);
        }
        _ => return Err(unsupported(relation)),
    }
    Ok(())
}

/// The view's columns, those of its key in the order of its key.
fn with_columns(
    mut builder: TableBuilder,
    ast: &CreateView,
    base: &Table,
    selected: &[&Column],
) -> TableBuilder {
    let of = |ident: &Ident| base.column(&ident.name).expect("the key was checked");
    for ident in &ast.primary_key.partition {
        builder = builder.partition_key(&ident.name, of(ident).ty.clone());
    }
    for (at, ident) in ast.primary_key.clustering.iter().enumerate() {
        let column = of(ident);
        let order = ast.clustering_order.get(at);
        let descending = order.map_or(column.descending, |(_, order)| *order == Direction::Descending);
        builder = builder.clustering(&ident.name, column.ty.clone(), descending);
    }
    let in_key = |column: &&&Column| builder_has(&builder, &column.name);
    let shown: Vec<&&Column> = selected.iter().filter(|column| !in_key(column)).collect();
    shown.into_iter().fold(builder, |builder, column| builder.regular(&column.name, column.ty.clone()))
}

fn builder_has(builder: &TableBuilder, name: &str) -> bool {
    builder.columns().iter().any(|column| column.name == name)
}

pub(super) fn alter(ast: &AlterView, context: &DdlContext<'_>) -> Result<Outcome> {
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    check_not_system(context, keyspace)?;
    let name = &ast.name.name;
    let view: Option<&Arc<Table>> =
        context.lookup.schema.table(keyspace, name).filter(|table| table.is_view());
    let Some(view) = view else {
        if ast.if_exists {
            return Ok(Outcome::nothing());
        }
        return invalid!("Materialized view '{keyspace}.{name}' doesn't exist");
    };
    if ast.properties.iter().any(|property| property.name == "id") {
        return Err(ExecError::Config("Invalid table id".to_owned()));
    }
    let mut builder = view.to_builder();
    options::apply(&mut builder.options, &ast.properties, false)?;
    cdc::check_view(&builder.options)?;
    check_rate_limit(&builder.options)?;
    check_grace(&builder.options, "alter")?;
    if builder.options.default_time_to_live > 0 {
        return invalid!(
            "Forbidden default_time_to_live detected for a materialized view. Data in a materialized view always expire \
             at the same time than the corresponding data in the parent table. default_time_to_live must be set to zero, \
             see CASSANDRA-12868 for more information"
        );
    }
    let mut outcome = Outcome::new(ChangeType::Updated, keyspace, SchemaTarget::Table(name.clone()));
    outcome.warnings.extend(options::without_effect(&builder.options, &ast.properties));
    outcome.edits.push(SchemaEdit::PutTable(builder.build().expect("columns are as they were")));
    Ok(outcome)
}
