//! `SELECT … FROM MUTATION_FRAGMENTS(t)` of ScyllaDB (docs/design/mutation-fragments.md): a table whose rows are the fragments that the
//! sources of this node have of the partitions of another one.

mod json;
pub(super) mod pages;
mod row;

use std::sync::Arc;

use cql::ast::Select;
use schema::{Table, TableBuilder, TableId};
use topology::HostId;
use types::CqlType;

use crate::error::{Result, invalid};

/// Columns beside those of the base's key.
const SOURCE: &str = "mutation_source";
const REGION: &str = "partition_region";
const WEIGHT: &str = "position_weight";
const KIND: &str = "mutation_fragment_kind";
const METADATA: &str = "metadata";
const VALUE: &str = "value";

/// Changes a table's id to that of the table of its fragments.
const ID_MASK: [u8; 16] = *b"MutationFragment";

fn masked(id: TableId, mask: [u8; 16]) -> TableId {
    TableId(std::array::from_fn(|at| id.0[at] ^ mask[at]))
}

/// The table of the fragments of `base`.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when a column of the base's key has the name of a column of that table.
pub(super) fn table_of(base: &Table) -> Result<Arc<Table>> {
    let key = base.partition_key().iter().chain(base.clustering());
    let names = [SOURCE, REGION, WEIGHT, KIND, METADATA, VALUE];
    if let Some(column) = key.clone().find(|column| names.contains(&column.name.as_str())) {
        return invalid!(
            "MUTATION_FRAGMENTS() has a column {} of its own: those of {} cannot be shown, whose primary key has one, too",
            column.name,
            base.full_name()
        );
    }
    let name = format!("{}_$mutation_fragments", base.name);
    let mut builder = TableBuilder::new(&base.keyspace, name, masked(base.id, ID_MASK));
    for column in base.partition_key() {
        builder = builder.partition_key(&column.name, column.ty.clone());
    }
    builder = builder.clustering(SOURCE, CqlType::Text, false).clustering(REGION, CqlType::Tinyint, false);
    for column in base.clustering() {
        builder = builder.clustering(&column.name, column.ty.clone(), column.descending);
    }
    builder = builder.clustering(WEIGHT, CqlType::Tinyint, false);
    for name in [METADATA, KIND, VALUE] {
        builder = builder.regular(name, CqlType::Text);
    }
    match builder.build() {
        Ok(table) => Ok(Arc::new(table)),
        Err(error) => invalid!("The fragments of {} cannot be shown: {error}", base.full_name()),
    }
}

/// The table that a paging state names: another one on each node, as each has its own sources.
pub(super) fn paged_table(table: &Table, node: HostId) -> TableId {
    masked(table.id, node.0)
}

/// Refuses clauses that have no meaning for fragments.
///
/// # Errors
/// For ORDER BY: fragments have one order.
pub(super) fn check(ast: &Select) -> Result<()> {
    if !ast.order_by.is_empty() {
        return invalid!("ORDER BY is not supported by SELECT FROM MUTATION_FRAGMENTS()");
    }
    Ok(())
}
