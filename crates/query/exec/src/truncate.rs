//! TRUNCATE: its table and its timeout, resolved.

use std::sync::Arc;

use cql::ast;
use schema::Table;

use crate::error::{Result, invalid};
use crate::expr::Expr;
use crate::expr::resolve::{Markers, Resolver};
use crate::lookup::{Lookup, keyspace_of};
use crate::request::timeout_of;

/// A prepared TRUNCATE.
#[derive(Debug)]
pub struct TruncatePlan {
    /// The table.
    pub table: Arc<Table>,
    /// USING TIMEOUT.
    pub timeout: Option<Expr>,
}

impl TruncatePlan {
    /// Resolves a TRUNCATE.
    ///
    /// # Errors
    /// When there is no such table, it is computed, or the timeout is no duration.
    pub fn prepare(
        ast: &ast::Truncate,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        keyspace_of(&ast.table, keyspace)?;
        let (table, computed) = lookup.table(&ast.table, keyspace)?;
        if computed {
            return invalid!("Truncation is not supported by table {}", table.full_name());
        }
        if table.is_view() {
            return invalid!("Cannot TRUNCATE materialized view directly; must truncate base table instead");
        }
        let timeout = timeout_of(&ast.using, &mut Resolver::new(lookup.schema, &table, markers))?;
        Ok(Self { table, timeout })
    }
}
