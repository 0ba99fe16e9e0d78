//! Keyspaces, tables, columns, user types, functions, indexes, views, roles and service levels as immutable values.
//!
//! A [`Schema`] is a snapshot: a change makes a new one that shares the unchanged parts, and a holder of
//! the old one keeps a consistent view. This crate knows nothing of CQL text, of files, or of how a change
//! travels; it defines schemas and their validity.

mod cdc;
mod cidr;
mod constraint;
mod derived;
mod description;
mod difference;
mod function;
mod keyspace;
mod mask;
mod options;
mod role;
mod service_level;
mod table;
mod table_id;
pub mod units;

pub use cdc::{CDC_LOG_SUFFIX, CDC_TTL_DEFAULT, Cdc, CdcGeneration, CdcPreimage, CdcVnode};
pub use cidr::{BadCidr, Cidr, CidrGroup};
pub use constraint::{Comparison, Constraint};
pub use derived::{
    Derivation, HIDDEN, Index, IndexTarget, IndexedPart, Trigger, ViewCondition, ViewOperator,
    is_storage_attached,
};
pub use description::{Description, TypeDescription};
pub use difference::{Difference, differences};
pub use function::{Signature, UserAggregate, UserFunction};
pub use keyspace::{Keyspace, Replication, Schema};
pub use mask::{ColumnMask, MaskArgument};
pub use options::{RateLimit, SpeculativeRetry, TTL_MAX, TableOptions, TombstoneGc};
pub use role::Role;
pub use service_level::{DEFAULT_SERVICE_LEVEL, SHARES_DEFAULT, ServiceLevel, WorkloadType};
pub use table::{COLUMNS_MAX, Column, ColumnId, ColumnKind, DroppedColumn, Table, TableBuilder};
pub use table_id::TableId;
pub use types::UserType;

/// A schema that would break a rule, with the rule in words a user understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSchema(pub String);

impl std::fmt::Display for InvalidSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidSchema {}
