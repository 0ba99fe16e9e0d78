//! Schema changes as plain data.

use schema::{Keyspace, Schema, Table, UserType};

/// One step of a schema change. Planning (name checks, defaults, rebuilding the tables of a changed type) is done by
/// whoever makes the edits; applying them checks only that they fit.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaEdit {
    /// Adds a keyspace, or replaces its settings; tables and types of an existing one stay.
    PutKeyspace(Keyspace),
    /// Removes a keyspace with everything in it.
    DropKeyspace(String),
    /// Adds or replaces a table.
    PutTable(Table),
    /// Removes a table.
    DropTable {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        name: String,
    },
    /// Adds or replaces a user type.
    PutType(UserType),
    /// Removes a user type.
    DropType {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        name: String,
    },
}

/// An edit that does not fit the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The schema is not the one that the change was planned against; plan again.
    #[error("the schema changed meanwhile")]
    Moved,
    /// The edit names a keyspace that is not there.
    #[error("Keyspace '{0}' doesn't exist")]
    NoKeyspace(String),
}

/// The schema after these edits.
pub(crate) fn apply(mut schema: Schema, edits: Vec<SchemaEdit>) -> Result<Schema, EditError> {
    for edit in edits {
        let needs = match &edit {
            SchemaEdit::PutTable(table) => Some(&table.keyspace),
            SchemaEdit::PutType(ty) => Some(&ty.keyspace),
            SchemaEdit::DropTable { keyspace, .. } | SchemaEdit::DropType { keyspace, .. } => Some(keyspace),
            SchemaEdit::PutKeyspace(_) | SchemaEdit::DropKeyspace(_) => None,
        };
        if let Some(keyspace) = needs
            && schema.keyspace(keyspace).is_none()
        {
            return Err(EditError::NoKeyspace(keyspace.clone()));
        }
        schema = match edit {
            SchemaEdit::PutKeyspace(mut keyspace) => {
                if let Some(old) = schema.keyspace(&keyspace.name) {
                    keyspace.tables = old.tables.clone();
                    keyspace.types = old.types.clone();
                }
                schema.with_keyspace(keyspace)
            }
            SchemaEdit::DropKeyspace(name) => schema.without_keyspace(&name),
            SchemaEdit::PutTable(table) => {
                let known = schema.table_by_id(table.id).map(|old| table.with_ids_of(old));
                schema.with_table(known.unwrap_or(table))
            }
            SchemaEdit::DropTable { keyspace, name } => schema.without_table(&keyspace, &name),
            SchemaEdit::PutType(ty) => schema.with_type(ty),
            SchemaEdit::DropType { keyspace, name } => schema.without_type(&keyspace, &name),
        };
    }
    Ok(schema)
}
