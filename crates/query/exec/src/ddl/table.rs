//! CREATE, ALTER and DROP TABLE.

use std::sync::Arc;

use crate::sink::{ChangeType, SchemaTarget};
use cluster::SchemaEdit;
use cql::ast::{
    AlterTable, AlterTableOperation, ColumnDefinition, CreateTable, DataType, Direction, DropTable, Ident,
    PrimaryKey,
};
use schema::{COLUMNS_MAX, ColumnKind, ColumnMask, Derivation, DroppedColumn, Table, TableBuilder, TableId};
use stdx::{HashMap, HashSet};
use types::CqlType;

use super::{
    DdlContext, Outcome, cdc, check_column_name, check_name, check_not_system, constraints, index, options,
    rename, row_ttl,
};
use crate::error::{ExecError, Result, config, invalid};
use crate::expr::mask::{self, Masked};
use crate::lookup::keyspace_of;
use crate::type_name::TypeBudget;

fn table_outcome(change: ChangeType, keyspace: &str, name: &str) -> Outcome {
    Outcome::new(change, keyspace, SchemaTarget::Table(name.to_owned()))
}

/// Refuses masks where they are off.
fn check_masking(context: &DdlContext<'_>) -> Result<()> {
    match context.data_masking {
        true => Ok(()),
        false => invalid!(
            "Cannot mask columns because dynamic data masking is not enabled. You can enable it with the \
             dynamic_data_masking_enabled property on cassandra.yaml"
        ),
    }
}

/// The mask that a definition gives its column.
fn mask_of(
    column: &ColumnDefinition,
    ty: &CqlType,
    (keyspace, table): (&str, &str),
    context: &DdlContext<'_>,
) -> Result<Option<ColumnMask>> {
    let Some(mask) = &column.mask else { return Ok(None) };
    let masked = Masked { keyspace, table, column: &column.name.name, ty };
    mask::resolve(mask, &masked, context.lookup.schema).map(Some)
}

/// ALTER TABLE … ALTER column MASKED WITH …, or DROP MASKED: of the table, and of its views that show the column.
fn alter_mask(
    ast: Option<&cql::ast::Mask>,
    column: &str,
    if_exists: bool,
    table: &Table,
    context: &DdlContext<'_>,
) -> Result<Option<(TableBuilder, Vec<Table>)>> {
    if ast.is_some() {
        check_masking(context)?;
    }
    let Some(known) = table.column(column) else {
        return match if_exists {
            true => Ok(None),
            false => invalid!("Column with name '{column}' doesn't exist on table '{}'", table.name),
        };
    };
    let masked = Masked { keyspace: &table.keyspace, table: &table.name, column, ty: &known.ty };
    let mask = ast.map(|ast| mask::resolve(ast, &masked, context.lookup.schema)).transpose()?;
    if mask.as_ref() == known.mask.as_deref() {
        return Ok(None);
    }
    let mut builder = table.to_builder();
    builder.set_mask(column, mask.clone());
    let mut views = Vec::new();
    for view in views_of(table, context).filter(|view| view.column(column).is_some()) {
        let mut builder = view.to_builder();
        builder.set_mask(column, mask.clone());
        views.push(builder.build().map_err(|error| ExecError::Invalid(error.to_string()))?);
    }
    Ok(Some((builder, views)))
}

/// Gives the columns of a new table their constraints.
fn constrain(
    builder: &mut TableBuilder,
    columns: &[(&ColumnDefinition, CqlType)],
    table: (&str, &str),
) -> Result<()> {
    let written = columns.iter().filter(|(column, _)| !column.constraints.is_empty());
    let written: HashMap<&str, &ColumnDefinition> =
        written.map(|(column, _)| (column.name.name.as_str(), *column)).collect();
    if written.is_empty() {
        return Ok(());
    }
    let all = written.values().flat_map(|column| &column.constraints);
    constraints::check_regexps(std::iter::empty(), all)?;
    for column in builder.columns_mut() {
        if let Some(definition) = written.get(column.name.as_str()) {
            column.constraints = constraints::resolve(&definition.constraints, column, table)?;
        }
    }
    Ok(())
}

pub(super) fn create(ast: &CreateTable, context: &DdlContext<'_>) -> Result<Outcome> {
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    let name = &ast.name.name;
    check_not_system(context, keyspace)?;
    let full = format!("{keyspace}.{name}");
    // Some messages name the table as the statement did.
    let written = if ast.name.keyspace.is_some() { full.as_str() } else { name };
    let primary = check_written(ast, written)?;
    options::check_forms(&ast.properties)?;
    let Some(home) = context.lookup.schema.keyspace(keyspace) else {
        return invalid!("Keyspace '{keyspace}' doesn't exist");
    };
    if home.tables.contains_key(name) {
        return match ast.if_not_exists {
            true => Ok(Outcome::nothing()),
            false => Err(ExecError::AlreadyExists { keyspace: keyspace.to_owned(), table: name.clone() }),
        };
    }
    // Properties are checked before the name, as in Cassandra.
    let table_options = options::of_new(&ast.properties)?;
    options::check_table(&table_options)?;
    check_name(name, "Table").map_err(|text| ExecError::Config(format!("{full}: {text}")))?;
    if ast.columns.len() > COLUMNS_MAX {
        return invalid!(
            "Table '{written}' has {} columns: at most {COLUMNS_MAX} are allowed",
            ast.columns.len()
        );
    }
    let columns = typed_columns(ast, (keyspace, written), context)?;
    let given_id = options::given_id(&ast.properties, context.lookup.schema)?;
    let mut builder = TableBuilder::new(keyspace, name, given_id.unwrap_or(TableId(context.table_id)));
    builder = add_columns(builder, &columns, primary, &ast.clustering_order, name)?;
    for (column, ty) in &columns {
        // Setting one looks for the column: a table has few masks, and may have 65,535 columns.
        if let Some(mask) = mask_of(column, ty, (keyspace, name), context)? {
            builder.set_mask(&column.name.name, Some(mask));
        }
    }
    constrain(&mut builder, &columns, (keyspace, name))?;
    row_ttl::define(&mut builder, columns.iter().map(|(column, _)| *column))?;
    builder.options = table_options;
    builder.compact_storage = ast.compact_storage;
    if ast.compact_storage {
        check_compact(&columns, primary)?;
    }
    let table = builder.build().map_err(|error| ExecError::Invalid(error.to_string()))?;
    if table.is_counter() && table.options.default_time_to_live > 0 {
        return invalid!("Cannot set default_time_to_live on a table with counters");
    }
    let mut outcome = table_outcome(ChangeType::Created, keyspace, name);
    outcome.warnings.extend(options::without_effect(&table.options, &ast.properties));
    outcome.given_id = given_id;
    let log = cdc::follow(&table, context)?;
    outcome.edits.push(SchemaEdit::PutTable(table));
    outcome.edits.extend(log);
    Ok(outcome)
}

/// Refuses a definition that no schema makes right; its primary key.
fn check_written<'a>(ast: &'a CreateTable, written: &str) -> Result<&'a PrimaryKey> {
    let mut names = HashSet::default();
    for column in &ast.columns {
        if !names.insert(column.name.name.as_str()) {
            return invalid!("Duplicate column '{}' declaration for table '{written}'", column.name.name);
        }
    }
    let mut ordered = HashSet::default();
    for (column, _) in &ast.clustering_order {
        if !ordered.insert(column.name.as_str()) {
            return invalid!(
                "Duplicate column '{}' in CLUSTERING ORDER BY clause for table '{written}'",
                column.name
            );
        }
    }
    match ast.primary_keys.as_slice() {
        [] => invalid!("No PRIMARY KEY specifed for table '{written}' (exactly one required)"),
        [one] => Ok(one),
        _ => invalid!("Multiple PRIMARY KEY specified for table '{written}' (exactly one required)"),
    }
}

/// The columns of a CREATE TABLE with their types.
fn typed_columns<'a>(
    ast: &'a CreateTable,
    (keyspace, written): (&str, &str),
    context: &DdlContext<'_>,
) -> Result<Vec<(&'a ColumnDefinition, CqlType)>> {
    let mut columns = Vec::with_capacity(ast.columns.len());
    let mut budget = TypeBudget::of_table();
    for column in &ast.columns {
        if column.mask.is_some() {
            check_masking(context)?;
        }
        check_column_name(&column.name.name)?;
        let ty = crate::type_name::resolve(&column.data_type, context.lookup.schema, keyspace)?;
        check_nesting(&ty)?;
        budget.take(&ty, written)?;
        columns.push((column, ty));
    }
    Ok(columns)
}

fn check_compact(columns: &[(&ColumnDefinition, CqlType)], primary: &PrimaryKey) -> Result<()> {
    let values = columns.len() - primary.partition.len() - primary.clustering.len();
    if columns.iter().any(|(_, ty)| ty.is_multi_cell()) {
        return invalid!("Non-frozen collections and UDTs are not supported with COMPACT STORAGE");
    }
    if columns.iter().any(|(column, _)| column.is_static) {
        return invalid!("Static columns are not supported in COMPACT STORAGE tables");
    }
    match (primary.clustering.is_empty(), values) {
        (true, 0) => invalid!("No definition found that is not part of the PRIMARY KEY"),
        (false, 2..) => {
            let key: HashSet<&str> = primary
                .partition
                .iter()
                .chain(&primary.clustering)
                .map(|ident| ident.name.as_str())
                .collect();
            let mut others: Vec<&str> = columns
                .iter()
                .map(|(column, _)| column.name.name.as_str())
                .filter(|name| !key.contains(name))
                .collect();
            others.sort_unstable();
            invalid!(
                "COMPACT STORAGE with composite PRIMARY KEY allows no more than one column not part of the PRIMARY KEY \
                 (got: {})",
                others.join(", ")
            )
        }
        _ => Ok(()),
    }
}

fn add_columns(
    mut builder: TableBuilder,
    columns: &[(&ColumnDefinition, CqlType)],
    primary: &PrimaryKey,
    order: &[(Ident, Direction)],
    name: &str,
) -> Result<TableBuilder> {
    let by_name: HashMap<&str, &(&ColumnDefinition, CqlType)> =
        columns.iter().map(|column| (column.0.name.name.as_str(), column)).collect();
    let key_column = |ident: &Ident| {
        let Some((column, ty)) = by_name.get(ident.name.as_str()) else {
            return invalid!("Unknown column '{}' referenced in PRIMARY KEY for table '{name}'", ident.name);
        };
        check_key_type(&ident.name, ty)?;
        if column.is_static {
            return invalid!("Static column '{}' cannot be part of the PRIMARY KEY", ident.name);
        }
        Ok(ty.clone())
    };
    let key: Vec<&Ident> = primary.partition.iter().chain(&primary.clustering).collect();
    let mut in_key = HashSet::default();
    for ident in &key {
        if !in_key.insert(ident.name.as_str()) {
            return invalid!("Duplicate column '{}' in PRIMARY KEY clause for table '{name}'", ident.name);
        }
    }
    let clustering: HashSet<&str> = primary.clustering.iter().map(|ident| ident.name.as_str()).collect();
    let strangers: Vec<&str> = order
        .iter()
        .map(|(ident, _)| ident.name.as_str())
        .filter(|name| !clustering.contains(name))
        .collect();
    if !strangers.is_empty() {
        return invalid!(
            "Only clustering key columns can be defined in CLUSTERING ORDER directive: [{}] are not clustering columns",
            strangers.join(", ")
        );
    }
    for ((ident, _), clustering) in order.iter().zip(&primary.clustering) {
        if ident.name == clustering.name {
            continue;
        }
        return match order.iter().any(|(other, _)| other.name == clustering.name) {
            true => invalid!(
                "The order of columns in the CLUSTERING ORDER directive must match that of the clustering columns ({})",
                primary.clustering.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ")
            ),
            false => invalid!("Missing CLUSTERING ORDER for column {}", clustering.name),
        };
    }
    for ident in &primary.partition {
        builder = builder.partition_key(&ident.name, key_column(ident)?);
    }
    for (at, ident) in primary.clustering.iter().enumerate() {
        let descending = order.get(at).is_some_and(|(_, direction)| *direction == Direction::Descending)
            || by_name.get(ident.name.as_str()).is_some_and(|(column, _)| is_reversed(&column.data_type));
        if by_name.get(ident.name.as_str()).is_some_and(|(_, ty)| matches!(ty, CqlType::Custom(_))) {
            return invalid!("Custom types have no order and cannot be clustering columns: '{}'", ident.name);
        }
        builder = builder.clustering(&ident.name, key_column(ident)?, descending);
    }
    for (column, ty) in columns.iter().filter(|(c, _)| !in_key.contains(c.name.name.as_str())) {
        let name = &column.name.name;
        builder = match column.is_static {
            true => builder.static_column(name, ty.clone()),
            false => builder.regular(name, ty.clone()),
        };
    }
    Ok(builder)
}

/// Whether a type is written as `'ReversedType(…)'`, which makes a clustering column descend.
fn is_reversed(ty: &DataType) -> bool {
    matches!(ty, DataType::Custom(class) if crate::type_name::of_class(class).is_ok_and(|(_, reversed)| reversed))
}

/// A non-frozen user type has one cell a field, so that its fields cannot have cells of their own.
fn check_nesting(ty: &CqlType) -> Result<()> {
    match ty {
        CqlType::Udt { ty, frozen: false } if ty.fields.iter().any(|(_, field)| field.is_multi_cell()) => {
            invalid!("Non-frozen UDTs with nested non-frozen collections are not supported")
        }
        _ => Ok(()),
    }
}

fn check_key_type(name: &str, ty: &CqlType) -> Result<()> {
    if ty.is_counter() {
        return invalid!("counter type is not supported for PRIMARY KEY column '{name}'");
    }
    if *ty == CqlType::Duration || ty.is_or_contains_duration() {
        return invalid!("duration type is not supported for PRIMARY KEY column '{name}'");
    }
    match ty {
        CqlType::Udt { ty, frozen: false } => invalid!(
            "Invalid non-frozen user-defined type \"{}.{}\" for PRIMARY KEY column '{name}'",
            ty.keyspace,
            ty.name
        ),
        ty if ty.is_multi_cell() => {
            invalid!("Invalid non-frozen collection type {} for PRIMARY KEY column '{name}'", ty.cql_name())
        }
        _ => Ok(()),
    }
}

fn existing<'a>(
    context: &DdlContext<'a>,
    keyspace: &str,
    name: &str,
    if_exists: bool,
) -> Result<Option<&'a Arc<Table>>> {
    match context.lookup.schema.table(keyspace, name) {
        Some(table) => Ok(Some(table)),
        None if if_exists => Ok(None),
        None => invalid!("Table '{keyspace}.{name}' doesn't exist"),
    }
}

pub(super) fn drop(ast: &DropTable, context: &DdlContext<'_>) -> Result<Outcome> {
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    check_not_system(context, keyspace)?;
    let name = &ast.name.name;
    let Some(table) = existing(context, keyspace, name, ast.if_exists)? else {
        return Ok(Outcome::nothing());
    };
    if table.is_view() {
        return invalid!(
            "Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead."
        );
    }
    cdc::check_drop(table, context)?;
    // Cassandra's text names the keyspaces of the views, not the views.
    let mut depend: Vec<&str> = views_of(table, context).map(|view| view.keyspace.as_str()).collect();
    depend.dedup();
    if !depend.is_empty() {
        return invalid!(
            "Cannot drop a table when materialized views still depend on it ({})",
            depend.join(", ")
        );
    }
    let mut outcome = table_outcome(ChangeType::Dropped, keyspace, name);
    outcome.edits.push(drop_edit(table));
    // The storage of indexes and the log of changes mean nothing without their table.
    let home = context.lookup.keyspace(keyspace);
    let derived = home.into_iter().flat_map(|home| home.tables.values());
    let derived = derived.filter(|other| other.is_derived_from(table.id));
    outcome.edits.extend(derived.map(|other| drop_edit(other)));
    Ok(outcome)
}

/// The edit that removes a table.
pub(super) fn drop_edit(table: &Table) -> SchemaEdit {
    SchemaEdit::DropTable { keyspace: table.keyspace.clone(), name: table.name.clone() }
}

/// The materialized views of a table.
fn views_of<'a>(table: &'a Table, context: &DdlContext<'a>) -> impl Iterator<Item = &'a Arc<Table>> {
    let home = context.lookup.keyspace(&table.keyspace);
    home.into_iter().flat_map(|home| home.views_of(table.id))
}

fn check_is_no_view(table: &Table) -> Result<()> {
    match table.is_view() {
        true => {
            invalid!("Cannot use ALTER TABLE on a materialized view; use ALTER MATERIALIZED VIEW instead")
        }
        false => Ok(()),
    }
}

pub(super) fn alter(ast: &AlterTable, context: &DdlContext<'_>) -> Result<Outcome> {
    let keyspace = keyspace_of(&ast.name, context.keyspace)?;
    check_not_system(context, keyspace)?;
    let name = &ast.name.name;
    let Some(table) = existing(context, keyspace, name, ast.if_exists)? else {
        return Ok(Outcome::nothing());
    };
    check_is_no_view(table)?;
    cdc::check_alter(table, &ast.operation, context)?;
    let builder = table.to_builder();
    let has_views = views_of(table, context).next().is_some();
    let mut views = Vec::new();
    let changed = match &ast.operation {
        AlterTableOperation::AlterType { .. } => {
            return invalid!("Altering column types is no longer supported");
        }
        AlterTableOperation::Mask { if_exists, column, mask } => {
            let altered = alter_mask(mask.as_ref(), &column.name, *if_exists, table, context)?;
            let Some((changed, masked)) = altered else { return Ok(Outcome::nothing()) };
            views = masked;
            changed
        }
        AlterTableOperation::Constrain { if_exists, column, constraints: written } => {
            let altered = constraints::alter(written, &column.name, *if_exists, table)?;
            let Some(changed) = altered else { return Ok(Outcome::nothing()) };
            changed
        }
        AlterTableOperation::Add { if_not_exists, columns } => {
            let mut changed = add(builder, table, columns, *if_not_exists, context)?;
            let new = columns.iter().filter(|column| table.column(&column.name.name).is_none());
            row_ttl::define(&mut changed, new)?;
            views = widened_views(table, &changed, context)?;
            changed
        }
        AlterTableOperation::Drop { if_exists, columns, timestamp } => {
            let micros = timestamp.unwrap_or(context.now_micros);
            drop_columns(builder, (table, has_views), columns, *if_exists, micros)?
        }
        AlterTableOperation::Rename { if_exists, columns } => {
            let renamed = rename::names(table, columns, *if_exists)?;
            views = rename::views(views_of(table, context), &renamed)?;
            rename::columns(builder, &renamed)
        }
        AlterTableOperation::Ttl(column) => row_ttl::alter(builder, column.as_ref())?,
        AlterTableOperation::DropCompactStorage => drop_compact_storage(builder)?,
        AlterTableOperation::With(properties) => {
            let mut builder = builder;
            if properties.iter().any(|property| property.name == "id") {
                return Err(ExecError::Config("Invalid table id".to_owned()));
            }
            options::apply(&mut builder.options, properties, table.is_counter())?;
            options::check_table(&builder.options)?;
            check_grace(&builder, has_views)?;
            builder
        }
    };
    let changed = changed.build().map_err(|error| ExecError::Invalid(error.to_string()))?;
    let log = cdc::follow(&changed, context)?;
    let mut outcome = table_outcome(ChangeType::Updated, keyspace, name);
    outcome.warnings.extend(unused_options(&ast.operation, &changed));
    outcome.edits.push(SchemaEdit::PutTable(changed));
    outcome.edits.extend(log);
    outcome.edits.extend(views.into_iter().map(SchemaEdit::PutTable));
    Ok(outcome)
}

/// The warnings of options that have no effect, if these are set.
fn unused_options(operation: &AlterTableOperation, changed: &Table) -> Vec<String> {
    match operation {
        AlterTableOperation::With(properties) => options::without_effect(&changed.options, properties),
        _ => Vec::new(),
    }
}

fn drop_compact_storage(mut builder: TableBuilder) -> Result<TableBuilder> {
    if !builder.compact_storage {
        return invalid!("Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE");
    }
    builder.compact_storage = false;
    Ok(builder)
}

/// Refuses that deletions of a base of views are forgotten at once.
fn check_grace(builder: &TableBuilder, has_views: bool) -> Result<()> {
    if has_views && builder.options.gc_grace_seconds == 0 {
        return invalid!(
            "Cannot alter gc_grace_seconds of the base table of a materialized view to 0, since this value is \
             used to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to \
             expire before being replayed."
        );
    }
    Ok(())
}

/// The views that show all columns of a table, with the regular columns that were added to it.
fn widened_views(table: &Table, changed: &TableBuilder, context: &DdlContext<'_>) -> Result<Vec<Table>> {
    let mut views = Vec::new();
    for view in views_of(table, context) {
        if !matches!(view.derivation, Some(Derivation::View { all_columns: true, .. })) {
            continue;
        }
        let added = changed.columns().iter().filter(|column| column.kind == ColumnKind::Regular);
        let added = added.filter(|column| table.column(&column.name).is_none());
        let builder = added.fold(view.to_builder(), |view, column| {
            let mut view = view.regular(&column.name, column.ty.clone());
            view.set_mask(&column.name, column.mask.as_deref().cloned());
            view
        });
        views.push(builder.build().map_err(|error| ExecError::Invalid(error.to_string()))?);
    }
    Ok(views)
}

fn add(
    mut builder: TableBuilder,
    table: &Table,
    columns: &[ColumnDefinition],
    if_not_exists: bool,
    context: &DdlContext<'_>,
) -> Result<TableBuilder> {
    if columns.len() > COLUMNS_MAX {
        return invalid!(
            "{} columns are added to table '{}': at most {COLUMNS_MAX} are allowed",
            columns.len(),
            table.full_name()
        );
    }
    let written = columns.iter().flat_map(|column| &column.constraints);
    constraints::check_regexps(table.columns().iter(), written)?;
    let mut names: HashSet<String> = table.columns().iter().map(|column| column.name.clone()).collect();
    let mut budget = TypeBudget::of_table();
    table.columns().iter().try_for_each(|column| budget.take(&column.ty, &table.name))?;
    for column in columns {
        if column.mask.is_some() {
            check_masking(context)?;
        }
        let name = &column.name.name;
        check_column_name(name)?;
        let ty = crate::type_name::resolve(&column.data_type, context.lookup.schema, &table.keyspace)?;
        check_nesting(&ty)?;
        budget.take(&ty, &table.name)?;
        if !names.insert(name.clone()) {
            if if_not_exists {
                continue;
            }
            return invalid!("Column with name '{name}' already exists");
        }
        check_addable(column, table)?;
        if ty.is_counter() != table.is_counter() && !table.regular_columns().is_empty() {
            let full = table.full_name();
            return match ty.is_counter() {
                true => config(format!(
                    "{full}: Cannot have a counter column (\"{name}\") in a non counter table"
                )),
                false => config(format!(
                    "{full}: Cannot have a non counter column (\"{name}\") in a counter table"
                )),
            };
        }
        if let Some(dropped) = table.dropped_columns.get(name) {
            check_added_again(column, &ty, dropped)?;
        }
        let mask = mask_of(column, &ty, (&table.keyspace, &table.name), context)?;
        builder = match column.is_static {
            true => builder.static_column(name, ty),
            false => builder.regular(name, ty),
        };
        builder.set_mask(name, mask);
        if let Some(added) = builder.columns_mut().last_mut() {
            let place = (table.keyspace.as_str(), table.name.as_str());
            added.constraints = constraints::resolve(&column.constraints, added, place)?;
        }
    }
    Ok(builder)
}

/// Refuses a new column that the table cannot have with any type.
fn check_addable(column: &ColumnDefinition, table: &Table) -> Result<()> {
    if table.compact_storage {
        return invalid!("Cannot add new column to a COMPACT STORAGE table");
    }
    if column.is_static && table.clustering().is_empty() {
        return invalid!(
            "Static columns are only useful (and thus allowed) if the table has at least one clustering column"
        );
    }
    Ok(())
}

/// Refuses a column that reads the cells of a dropped one of its name otherwise.
fn check_added_again(column: &ColumnDefinition, ty: &CqlType, dropped: &DroppedColumn) -> Result<()> {
    let name = &column.name.name;
    if dropped.is_static != column.is_static {
        let kind = |is_static: bool| if is_static { "STATIC" } else { "REGULAR" };
        return invalid!(
            "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with previous kind {}",
            kind(column.is_static),
            kind(dropped.is_static)
        );
    }
    if dropped.ty.is_counter() {
        return invalid!("Cannot re-add previously dropped counter column {name}");
    }
    // Cells of elements are no cells of a whole value, in files that have the old ones.
    let is_alike = ty.is_multi_cell() == dropped.ty.is_multi_cell();
    let is_readable = ty.accepts_values_of(&dropped.ty) && has_lengths_of(ty, &dropped.ty);
    if !is_alike || ty.freeze() != dropped.ty.freeze() && !is_readable {
        return invalid!(
            "Cannot re-add previously dropped column '{name}' of type {}, incompatible with previous type {}",
            ty.cql_name(),
            dropped.ty.cql_name()
        );
    }
    Ok(())
}

/// Whether values of one type, and their elements, have a fixed length where those of the other do: SSTables hold no length of these.
fn has_lengths_of(ty: &CqlType, other: &CqlType) -> bool {
    let parts = match (ty, other) {
        (CqlType::List { element: a, .. }, CqlType::List { element: b, .. })
        | (CqlType::Set { element: a, .. }, CqlType::Set { element: b, .. }) => has_lengths_of(a, b),
        (CqlType::Map { key, value, .. }, CqlType::Map { key: other_key, value: other_value, .. }) => {
            has_lengths_of(key, other_key) && has_lengths_of(value, other_value)
        }
        (CqlType::Tuple(a), CqlType::Tuple(b)) => a.iter().zip(b.iter()).all(|(a, b)| has_lengths_of(a, b)),
        _ => true,
    };
    parts && ty.fixed_len() == other.fixed_len()
}

fn drop_columns(
    mut builder: TableBuilder,
    (table, has_views): (&Table, bool),
    columns: &[Ident],
    if_exists: bool,
    micros: i64,
) -> Result<TableBuilder> {
    let mut names = HashSet::default();
    for ident in columns {
        let name = &ident.name;
        let Some(column) = table.column(name) else {
            if if_exists {
                continue;
            }
            return invalid!("Column {name} was not found in table '{}'", table.full_name());
        };
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return invalid!("Cannot drop PRIMARY KEY column {name}");
        }
        if let CqlType::Udt { ty, frozen: false } = &column.ty {
            return invalid!("Cannot drop non-frozen column {name} of user type {}", ty.name);
        }
        if table.compact_storage {
            return invalid!("Cannot drop columns from a COMPACT STORAGE table");
        }
        row_ttl::check_drop(table, name)?;
        if let Some(indexes) = index::names_of(table, name) {
            return invalid!(
                "Cannot drop column {name} because it has dependent secondary indexes ({indexes})"
            );
        }
        if has_views {
            return invalid!(
                "Cannot drop column {name} on base table {} with materialized views",
                table.name
            );
        }
        names.insert(name.as_str());
    }
    builder.drop_columns(&names, micros);
    Ok(builder)
}
