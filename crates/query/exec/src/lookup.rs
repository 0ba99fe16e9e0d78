//! Names of keyspaces and tables, found in the schema.

use std::sync::Arc;

use cql::ast::QualifiedName;
use schema::{Keyspace, Schema, Table};

use crate::error::{Result, invalid};

/// The schema that statements are resolved against.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    /// The schema, computed keyspaces included.
    pub schema: &'a Arc<Schema>,
}

const NO_KEYSPACE: &str =
    "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename";

/// The keyspace that a name means: its own, or the session's.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when neither names one.
pub fn keyspace_of<'n>(name: &'n QualifiedName, session: Option<&'n str>) -> Result<&'n str> {
    match name.keyspace.as_deref().or(session) {
        Some(keyspace) => Ok(keyspace),
        None => invalid!("{NO_KEYSPACE}"),
    }
}

impl<'a> Lookup<'a> {
    /// A keyspace.
    pub fn keyspace(&self, name: &str) -> Option<&'a Arc<Keyspace>> {
        self.schema.keyspace(name)
    }

    /// The table that a name means, and whether it is computed.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when no keyspace is named, or the keyspace or table does not
    /// exist.
    pub fn table(&self, name: &QualifiedName, session: Option<&str>) -> Result<(Arc<Table>, bool)> {
        let keyspace = keyspace_of(name, session)?;
        let Some(home) = self.schema.keyspace(keyspace) else {
            return invalid!("keyspace {keyspace} does not exist");
        };
        match home.tables.get(&name.name) {
            Some(table) => Ok((table.clone(), home.computed)),
            None => invalid!("table {} does not exist", name.name),
        }
    }
}
