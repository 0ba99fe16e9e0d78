//! CREATE INDEX: the target and its class are checked as Cassandra checks them, and an option without an effect here is refused.

use std::collections::BTreeMap;

use cluster::SchemaEdit;
use cql::ast::{CreateIndex, Ident, IndexTarget as TargetAst};
use schema::{Column, ColumnKind, Index, IndexTarget, IndexedPart, Keyspace, Table};
use text::{ANALYZER_OPTIONS, AnalyzerError, FOLDING_OPTIONS, FullText, IndexText, Sasi};
use types::CqlType;

use super::option_value::map;
use super::{DdlContext, Outcome, check_not_system, vectors};
use crate::error::{ExecError, Result, config, invalid, shown};
use crate::lookup::keyspace_of;
use crate::sink::{ChangeType, SchemaTarget};
use crate::where_clause::index::{Family, LOCAL, is_vector, of_texts};

/// The indexes of a table that find values of a column, as messages name them; none without any.
pub(super) fn names_of(table: &Table, column: &str) -> Option<String> {
    let indexes = table.indexes.values().filter(|index| index.depends_on(column));
    let names: Vec<&str> = indexes.map(|index| index.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The longest name of an index, which is a directory.
const NAME_LEN_MAX: usize = 255;
/// The longest value of an option that is an analyzer, bytes.
const ANALYZER_LEN_MAX: usize = 16 << 10;

/// The class of an index and its options, from the end of the statement.
struct Implementation {
    /// None for the built-in one.
    class: Option<String>,
    family: Family,
    options: BTreeMap<String, String>,
}

impl Implementation {
    fn of(ast: &CreateIndex) -> Result<Self> {
        let mut options = BTreeMap::new();
        for property in &ast.properties {
            if property.name != "options" {
                return Err(ExecError::Syntax(format!("Unknown property '{}'", shown(&property.name))));
            }
            options = map(property)?;
        }
        let using = ast.using.as_deref().unwrap_or(LOCAL);
        if !ast.custom && using.eq_ignore_ascii_case(LOCAL) {
            if !options.is_empty() {
                return invalid!("Cannot specify options for a non-CUSTOM index");
            }
            return Ok(Self { class: None, family: Family::Local, options });
        }
        for name in ["class_name", "target"] {
            if options.contains_key(name) {
                return invalid!("Cannot specify {name} as a CUSTOM option");
            }
        }
        match Family::of_class(Some(using)) {
            Some(family) => Ok(Self { class: Some(using.to_owned()), family, options }),
            None => config(format!("Unable to find custom indexer class '{}'", shown(using))),
        }
    }
}

pub(super) fn create(ast: &CreateIndex, context: &DdlContext<'_>) -> Result<Outcome> {
    // An unknown class is reported after a missing table.
    let implementation = match Implementation::of(ast) {
        Err(ExecError::Config(text)) => Err(ExecError::Config(text)),
        other => Ok(other?),
    };
    let keyspace = keyspace_of(&ast.table, context.keyspace)?;
    check_not_system(context, keyspace)?;
    let Some(home) = context.lookup.schema.keyspace(keyspace) else {
        return invalid!("Keyspace '{keyspace}' doesn't exist");
    };
    let Some(table) = home.tables.get(&ast.table.name) else {
        return invalid!("Table '{}' doesn't exist", ast.table.name);
    };
    if let Some(name) = &ast.name
        && home.index(&name.name).is_some()
    {
        return exists(ast, format!("Index '{}' already exists", name.name));
    }
    let implementation = implementation?;
    if table.is_counter() {
        return invalid!("Secondary indexes on counter tables aren't supported");
    }
    if table.is_view() {
        return invalid!("Secondary indexes on materialized views aren't supported");
    }
    if table.is_cdc_log() {
        return invalid!("Secondary indexes on logs of changes aren't supported");
    }
    let (local, targets) = targets(ast, &implementation, table)?;
    let name = match &ast.name {
        Some(name) => name.name.clone(),
        None => free_name(home, table, &targets),
    };
    let (class, options) = (implementation.class.clone(), implementation.options.clone());
    let index = Index { name, targets, class, options, local };
    let same = |other: &&Index| **other == Index { name: other.name.clone(), ..index.clone() };
    if let Some(other) = table.indexes.values().find(same) {
        let text = format!("Index {} is a duplicate of existing index {}", index.name, other.name);
        return exists(ast, text);
    }
    check_name(&index.name)?;
    let mut warnings = Vec::new();
    match implementation.family {
        Family::Local => {}
        Family::StorageAttached => check_storage_attached(&index, table)?,
        Family::Sasi => warnings = check_sasi(&index, table)?,
        Family::Vector => vectors::check_class(&index, table)?,
        Family::FullText => check_fulltext(&index, table)?,
    }
    for target in &index.targets {
        vectors::check(table, target, &index, implementation.family)?;
    }
    let mut outcome = Outcome::new(ChangeType::Updated, keyspace, SchemaTarget::Table(table.name.clone()));
    outcome.warnings = warnings;
    let mut builder = table.to_builder();
    builder.indexes.insert(index.name.clone(), index);
    outcome.edits.push(SchemaEdit::PutTable(builder.build().expect("columns are as they were")));
    Ok(outcome)
}

fn exists(ast: &CreateIndex, text: String) -> Result<Outcome> {
    if ast.if_not_exists { Ok(Outcome::nothing()) } else { invalid!("{text}") }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || !name.chars().all(is_word) {
        return config(format!("Illegal index name {}", shown(name)));
    }
    if name.len() > NAME_LEN_MAX {
        return config(format!(
            "The name of an index has {} characters: at most {NAME_LEN_MAX} are allowed",
            name.len()
        ));
    }
    Ok(())
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// `t_c_idx`, or the first of `t_c_idx_1` and so on that no index of the keyspace has.
fn free_name(home: &Keyspace, table: &Table, targets: &[IndexTarget]) -> String {
    free_name_among(home, &table.name, targets, &BTreeMap::new())
}

/// The name of an index without one, which neither another index of the keyspace has nor one of `taken`.
pub(super) fn free_name_among(
    home: &Keyspace,
    table: &str,
    targets: &[IndexTarget],
    taken: &BTreeMap<String, Index>,
) -> String {
    let base = match targets {
        [target] => format!("{table}_{}_idx", target.column),
        _ => format!("{table}_idx"),
    };
    let base: String = base.chars().filter(|character| is_word(*character)).collect();
    let mut name = base.clone();
    let mut number = 0;
    while home.index(&name).is_some() || taken.contains_key(&name) {
        number += 1;
        name = format!("{base}_{number}");
    }
    name
}

/// Whether the index is local, and its targets, which fit their columns.
fn targets(
    ast: &CreateIndex,
    implementation: &Implementation,
    table: &Table,
) -> Result<(bool, Vec<IndexTarget>)> {
    let custom = implementation.class.is_some();
    if ast.targets.is_empty() && !custom {
        return invalid!("Only CUSTOM indexes can be created without specifying a target column");
    }
    let (local, asts) = match ast.targets.as_slice() {
        [TargetAst::PartitionKey(names), targets @ ..] => {
            if custom {
                return Err(ExecError::unsupported("A local index with a class"));
            }
            check_local(names, targets, table)?;
            (true, targets)
        }
        targets => (false, targets),
    };
    if asts.len() > 1 && !custom {
        return invalid!("Only CUSTOM indexes support multiple columns");
    }
    let mut out: Vec<IndexTarget> = Vec::with_capacity(asts.len());
    for target in asts {
        let (column, part) = match target {
            TargetAst::Column(column) => (column, None),
            TargetAst::Values(column) => (column, Some(IndexedPart::Values)),
            TargetAst::Keys(column) => (column, Some(IndexedPart::Keys)),
            TargetAst::Entries(column) => (column, Some(IndexedPart::Entries)),
            TargetAst::Full(column) => (column, Some(IndexedPart::Full)),
            TargetAst::PartitionKey(_) => {
                return invalid!("Multi-column index targets are currently only supported for partition key");
            }
        };
        if out.iter().any(|other| other.column == column.name) {
            return invalid!("Duplicate column '{}' in index target list", column.name);
        }
        let Some(found) = table.column(&column.name) else {
            return invalid!("Undefined column name {} in table {}", column.name, table.full_name());
        };
        if local {
            check_local_target(found)?;
        }
        check_compact_target(found, table)?;
        out.push(IndexTarget { column: column.name.clone(), part: part_of(found, part, table)? });
    }
    Ok((local, out))
}

/// The rules of ScyllaDB for the partition key of a local index.
fn check_local(names: &[Ident], targets: &[TargetAst], table: &Table) -> Result<()> {
    let mut expected = table.partition_key().iter();
    for Ident { name, .. } in names {
        let column = table.column(name).filter(|column| column.kind == ColumnKind::PartitionKey);
        let Some(column) = column else {
            return invalid!(
                "Local index definition must contain full partition key only. Redundant column: {name}"
            );
        };
        match expected.clone().next() {
            None => return invalid!("Duplicate column definition in local index: {name}"),
            Some(next) if next.id != column.id => break,
            Some(_) => _ = expected.next(),
        }
    }
    if let Some(missing) = expected.next() {
        return invalid!(
            "Local index definition must contain full partition key only. Missing column: {}",
            missing.name
        );
    }
    if targets.is_empty() {
        return invalid!("Local index definition must provide an indexed column, not just partition key");
    }
    Ok(())
}

fn check_local_target(column: &Column) -> Result<()> {
    match column.kind {
        ColumnKind::Static => invalid!("Local indexes containing static columns are not supported."),
        ColumnKind::PartitionKey => invalid!(
            "Local indexing based on partition key column is not allowed, since whole base partition key must be used \
             in queries anyway. Use global indexing instead."
        ),
        ColumnKind::Clustering | ColumnKind::Regular => Ok(()),
    }
}

/// The rules of tables that are made `WITH COMPACT STORAGE`.
fn check_compact_target(column: &Column, table: &Table) -> Result<()> {
    match column.kind {
        _ if !table.compact_storage => Ok(()),
        ColumnKind::PartitionKey | ColumnKind::Clustering => {
            invalid!("Secondary indexes are not supported on PRIMARY KEY columns in COMPACT STORAGE tables")
        }
        ColumnKind::Regular if !table.clustering().is_empty() => {
            invalid!("Secondary indexes are not supported on compact value column of COMPACT STORAGE tables")
        }
        ColumnKind::Regular | ColumnKind::Static => Ok(()),
    }
}

/// The part of a column's value that a target means.
fn part_of(column: &Column, part: Option<IndexedPart>, table: &Table) -> Result<IndexedPart> {
    let (name, ty) = (&column.name, &column.ty);
    if ty.is_or_contains_duration() {
        return match ty {
            CqlType::Duration => invalid!("Secondary indexes are not supported on duration columns"),
            ty if ty.is_collection() => {
                invalid!("Secondary indexes are not supported on collections containing durations")
            }
            ty if ty.is_tuple() => {
                invalid!("Secondary indexes are not supported on tuples containing durations")
            }
            _ => invalid!("Secondary indexes are not supported on UDTs containing durations"),
        };
    }
    if column.kind == ColumnKind::PartitionKey && table.partition_key().len() == 1 {
        return invalid!("Cannot create secondary index on the only partition key column {name}");
    }
    // A column without a word around it stands for the values of a collection.
    let part = part.unwrap_or(if ty.is_collection() { IndexedPart::Values } else { IndexedPart::Whole });
    let word = part.word().unwrap_or_default();
    if ty.is_frozen_collection() && part != IndexedPart::Full {
        return invalid!(
            "Cannot create {word}() index on frozen column {name}. Frozen collections are immutable and must be fully \
             indexed by using the 'full({name})' modifier"
        );
    }
    if !ty.is_frozen_collection() && part == IndexedPart::Full {
        return invalid!("full() indexes can only be created on frozen collections");
    }
    if !ty.is_collection() && part != IndexedPart::Whole {
        return invalid!(
            "Cannot create {word}() index on {name}. Non-collection columns only support simple indexes"
        );
    }
    let needs_map = matches!(part, IndexedPart::Keys | IndexedPart::Entries);
    if needs_map && !matches!(ty, CqlType::Map { .. }) {
        return invalid!("Cannot create index on {word} of column {name} with non-map type");
    }
    if ty.is_udt() && column.is_complex() {
        return invalid!("Cannot create index on non-frozen UDT column {name}");
    }
    Ok(part)
}

/// The rules of SAI, in Cassandra's order.
fn check_storage_attached(index: &Index, table: &Table) -> Result<()> {
    let target = match index.targets.as_slice() {
        [target] => target,
        [] => return invalid!("Failed to retrieve target column for: "),
        targets => {
            let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
            return invalid!(
                "A storage-attached index cannot be created over multiple columns: {}",
                names.join(", ")
            );
        }
    };
    let name = &target.column;
    let taken = |other: &Index| other.is_storage_attached() && other.targets == index.targets;
    if table.indexes.values().any(taken) {
        return invalid!("Cannot create more than one storage-attached index on the same column: {name}");
    }
    if !name.chars().all(is_word) {
        return invalid!("Column '{name}' contains non-alphanumeric-underscore characters");
    }
    let known = |name: &str| {
        FOLDING_OPTIONS.iter().any(|(known, _)| *known == name)
            || ANALYZER_OPTIONS.contains(&name)
            || vectors::SAI_OPTIONS.contains(&name)
    };
    let unknown: Vec<&str> = index.options.keys().map(String::as_str).filter(|name| !known(name)).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        return config(format!(
            "Properties specified [{}] are not understood by StorageAttachedIndex",
            shown(&unknown)
        ));
    }
    let column = table.column(name).expect("targets are columns");
    check_options(&index.options, column, target.part)?;
    for ty in target.part.term_types(&column.ty) {
        let nested = ty.is_collection() || ty.is_tuple() || ty.is_udt();
        if matches!(ty, CqlType::Blob) || nested && ty.is_multi_cell() {
            return invalid!("Unsupported type: {}", ty.cql_name());
        }
    }
    Ok(())
}

/// The refusal of an analyzer.
fn refused(error: AnalyzerError, invalid: fn(String) -> ExecError) -> ExecError {
    match error {
        AnalyzerError::Invalid(text) => invalid(shown(&text).to_string()),
        AnalyzerError::Unsupported(text) => ExecError::unsupported(shown(&text)),
    }
}

/// Options of SAI.
fn check_options(options: &BTreeMap<String, String>, column: &Column, part: IndexedPart) -> Result<()> {
    let vector = vectors::SAI_OPTIONS.iter().any(|name| options.contains_key(*name));
    if vector && !is_vector(&column.ty) {
        return invalid!("CQL type {} cannot have vector options", column.ty.cql_name());
    }
    let analysis: Vec<(&str, &str)> = FOLDING_OPTIONS
        .iter()
        .map(|(name, _)| *name)
        .chain(ANALYZER_OPTIONS)
        .filter_map(|name| Some((name, options.get(name)?.as_str())))
        .collect();
    if analysis.is_empty() {
        return Ok(());
    }
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        // In the order of names.
        let listed = options.iter().filter(|(name, _)| analysis.iter().any(|(known, _)| known == name));
        let listed: Vec<String> = listed.map(|(name, value)| format!("'{name}': '{value}'")).collect();
        let listed = listed.join(", ");
        return invalid!(
            "Analysis options are not supported on primary key columns, but found {{{}}}",
            shown(&listed)
        );
    }
    if !matches!(part.term_types(&column.ty).as_slice(), [CqlType::Text | CqlType::Ascii]) {
        let name = match (&column.ty, part) {
            (CqlType::Map { key, value, .. }, IndexedPart::Entries) => {
                format!("'{}'", types::composite_class_name([&**key, &**value]))
            }
            (ty, part) => part.term_types(ty).first().map_or_else(String::new, |ty| ty.cql_name()),
        };
        return invalid!("CQL type {name} cannot be analyzed.");
    }
    for (name, value) in analysis {
        if ANALYZER_OPTIONS.contains(&name) {
            if value.len() > ANALYZER_LEN_MAX {
                return invalid!(
                    "Option {name} of an index has {} bytes: at most {ANALYZER_LEN_MAX} are allowed",
                    value.len()
                );
            }
            continue;
        }
        let lower = value.to_ascii_lowercase();
        if lower.is_empty() {
            return invalid!("Empty value for boolean option '{name}'");
        }
        if lower != "true" && lower != "false" {
            return invalid!("Illegal value for boolean option '{name}': {}", shown(value));
        }
    }
    match IndexText::of_sai(options) {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(error, ExecError::Invalid)),
    }
}

/// The rules of SASI; warnings of options that have no effect beside the others.
fn check_sasi(index: &Index, table: &Table) -> Result<Vec<String>> {
    let [target] = index.targets.as_slice() else {
        return config(format!("failed to retrieve target column for: {}", index.target()));
    };
    let column = table.column(&target.column).expect("targets are columns");
    if column.is_complex() {
        return config("complex columns are not yet supported by SASI");
    }
    if column.kind == ColumnKind::PartitionKey {
        return config("partition key columns are not yet supported by SASI");
    }
    let is_text = matches!(column.ty, CqlType::Text | CqlType::Ascii);
    match Sasi::of(&index.options, is_text, &column.ty.cql_name()) {
        Ok(Sasi { idle, .. }) => Ok(idle
            .iter()
            .map(|name| {
                format!("The option '{name}' of index {} has no effect with its other options", index.name)
            })
            .collect()),
        Err(error) => Err(refused(error, ExecError::Config)),
    }
}

/// The rules of ScyllaDB for indexes of full text.
fn check_fulltext(index: &Index, table: &Table) -> Result<()> {
    let [target] = index.targets.as_slice() else {
        return invalid!("Fulltext index must have exactly one target column");
    };
    let column = table.column(&target.column).expect("targets are columns");
    if !matches!(column.ty, CqlType::Text | CqlType::Ascii) {
        return invalid!(
            "Fulltext index is only supported on text, varchar, or ascii columns, but column {} has an incompatible type",
            column.name
        );
    }
    if column.kind != ColumnKind::Regular {
        return invalid!(
            "Fulltext index is only supported on regular columns, but column {} is static or of the primary key",
            column.name
        );
    }
    if let Some(other) = of_texts(table, column) {
        return invalid!("The texts of column {} have index {} already", column.name, other.name);
    }
    match FullText::of(&index.options) {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(error, ExecError::Invalid)),
    }
}
