//! Schema changes as plain data.

use schema::{
    Cdc, CdcGeneration, CidrGroup, Keyspace, Role, Schema, ServiceLevel, Signature, Table, UserAggregate,
    UserFunction, UserType,
};

/// One step of a schema change. Planning (name checks, defaults, rebuilding the tables of a changed type) is done by
/// the author of the edits; applying them checks only that they fit.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaEdit {
    /// Adds a keyspace, or replaces its settings; the content of an existing one stays.
    PutKeyspace(Keyspace),
    /// Removes a keyspace with everything in it.
    DropKeyspace(String),
    /// Adds or replaces a table, its indexes and triggers included.
    PutTable(Table),
    /// Removes a table; derived tables are the planner's to remove.
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
    /// Adds or replaces a user-defined function.
    PutFunction(UserFunction),
    /// Removes a user-defined function.
    DropFunction {
        /// Its keyspace.
        keyspace: String,
        /// Its name and arguments.
        signature: Signature,
    },
    /// Adds or replaces a user-defined aggregate.
    PutAggregate(UserAggregate),
    /// Removes a user-defined aggregate.
    DropAggregate {
        /// Its keyspace.
        keyspace: String,
        /// Its name and arguments.
        signature: Signature,
    },
    /// Adds or replaces a role.
    PutRole(Role),
    /// Removes a role.
    DropRole(String),
    /// Adds or replaces a service level.
    PutServiceLevel(ServiceLevel),
    /// Removes a service level.
    DropServiceLevel(String),
    /// Adds a generation of streams of changes.
    PutCdcGeneration(CdcGeneration),
    /// Adds or replaces a group of addresses.
    PutCidrGroup(CidrGroup),
    /// Removes a group of addresses.
    DropCidrGroup(String),
}

impl SchemaEdit {
    /// Whether it changes roles or service levels, which older versions of the log's readers do not know.
    pub(crate) fn is_about_roles(&self) -> bool {
        matches!(
            self,
            Self::PutRole(_) | Self::DropRole(_) | Self::PutServiceLevel(_) | Self::DropServiceLevel(_)
        )
    }

    /// Whether it gives roles identities of certificates, which older versions of the log's readers would forget.
    pub(crate) fn is_about_identities(&self) -> bool {
        matches!(self, Self::PutRole(role) if !role.identities.is_empty())
    }

    /// Whether it is about groups of addresses, which older versions of the log's readers do not know.
    pub(crate) fn is_about_cidr_groups(&self) -> bool {
        match self {
            Self::PutCidrGroup(_) | Self::DropCidrGroup(_) => true,
            Self::PutRole(role) => !role.cidr_groups.is_empty(),
            _ => false,
        }
    }

    /// Whether it is about the capture of changes, which older versions of the log's readers do not know.
    pub(crate) fn is_about_cdc(&self) -> bool {
        match self {
            Self::PutCdcGeneration(_) => true,
            Self::PutTable(table) => table.options.cdc != Cdc::default(),
            _ => false,
        }
    }

    /// Whether it gives columns masks, which older versions of the log's readers would forget.
    pub(crate) fn is_about_masks(&self) -> bool {
        matches!(self, Self::PutTable(table) if table.masked_columns().next().is_some())
    }

    /// Whether it gives columns constraints, or describes something, which older versions of the log's readers would forget.
    pub(crate) fn is_about_constraints(&self) -> bool {
        match self {
            Self::PutTable(table) => {
                table.security_label.is_some()
                    || table
                        .columns()
                        .iter()
                        .any(|one| !one.constraints.is_empty() || one.description.is_some())
            }
            Self::PutKeyspace(keyspace) => {
                !keyspace.description.is_empty() || !keyspace.type_descriptions.is_empty()
            }
            _ => false,
        }
    }

    /// Whether the schema has its object already as it is, so that it changes nothing.
    pub fn is_made(&self, schema: &Schema) -> bool {
        match self {
            Self::PutKeyspace(keyspace) => {
                schema.keyspace(&keyspace.name).is_some_and(|known| keyspace.settings() == known.settings())
            }
            Self::PutTable(table) => schema
                .table(&table.keyspace, &table.name)
                .is_some_and(|known| known.id == table.id && table.with_ids_of(known) == **known),
            Self::PutType(ty) => schema
                .keyspace(&ty.keyspace)
                .and_then(|keyspace| keyspace.types.get(&ty.name))
                .is_some_and(|known| **known == *ty),
            _ => false,
        }
    }

    /// Whether it is of an aggregate that merges states, which older versions of the log's readers would forget.
    pub(crate) fn is_about_reduce_functions(&self) -> bool {
        matches!(self, Self::PutAggregate(aggregate) if aggregate.reduce_function.is_some())
    }

    /// Whether it names the column by which rows expire, which older versions of the log's readers would forget.
    pub(crate) fn is_about_row_ttl(&self) -> bool {
        matches!(self, Self::PutTable(table) if table.ttl_column.is_some())
    }

    /// Whether it is of a table with a local index, which older versions of the log's readers would take for one of the whole table.
    pub(crate) fn is_about_local_indexes(&self) -> bool {
        matches!(self, Self::PutTable(table) if table.indexes.values().any(|index| index.local))
    }

    /// Whether it has an index with an analyzer that makes words of texts, or with one of SASI that is not of its first ones.
    pub(crate) fn is_about_analyzers(&self) -> bool {
        let is_new = |index: &schema::Index| {
            let option = |name: &str| index.options.get(name);
            let class = option("analyzer_class");
            index.class.as_deref().is_some_and(|class| class.eq_ignore_ascii_case("fulltext_index"))
                || option("index_analyzer").is_some()
                || option("mode").is_some_and(|mode| !mode.eq_ignore_ascii_case("PREFIX"))
                || class.is_some_and(|class| !class.ends_with("DelimiterAnalyzer"))
                || class.is_none()
                    && option("analyzed").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        };
        matches!(self, Self::PutTable(table) if table.indexes.values().any(is_new))
    }

    /// Whether nodes before [`STATE_VERSION_OF_ATTRIBUTE_VECTORS`](crate::state::STATE_VERSION_OF_ATTRIBUTE_VECTORS) would take an index on
    /// the vectors of an attribute for one on its values, and forget it with the next change of the table through them.
    pub(crate) fn is_about_attribute_vectors(&self) -> bool {
        let is_new = |index: &schema::Index| index.options.contains_key("vector_dimensions");
        matches!(self, Self::PutTable(table) if table.indexes.values().any(is_new))
    }

    /// Whether nodes before [`STATE_VERSION_OF_ORDERED_INDEXES`](crate::state::STATE_VERSION_OF_ORDERED_INDEXES) would take an ordered index
    /// for one on all values of a map.
    pub(crate) fn is_about_ordered_indexes(&self) -> bool {
        let is_new = |index: &schema::Index| index.options.contains_key("order");
        matches!(self, Self::PutTable(table) if table.indexes.values().any(is_new))
    }

    /// The keyspace that has to be there.
    fn needs_keyspace(&self) -> Option<&str> {
        match self {
            Self::PutTable(table) => Some(&table.keyspace),
            Self::PutType(ty) => Some(&ty.keyspace),
            Self::PutFunction(function) => Some(&function.keyspace),
            Self::PutAggregate(aggregate) => Some(&aggregate.keyspace),
            Self::DropTable { keyspace, .. }
            | Self::DropType { keyspace, .. }
            | Self::DropFunction { keyspace, .. }
            | Self::DropAggregate { keyspace, .. } => Some(keyspace),
            Self::PutKeyspace(_)
            | Self::DropKeyspace(_)
            | Self::PutRole(_)
            | Self::DropRole(_)
            | Self::PutServiceLevel(_)
            | Self::DropServiceLevel(_)
            | Self::PutCdcGeneration(_)
            | Self::PutCidrGroup(_)
            | Self::DropCidrGroup(_) => None,
        }
    }
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

/// The schema after these edits. Its version is the one of before.
///
/// # Errors
/// When an edit names a keyspace that is not there.
pub fn apply(mut schema: Schema, edits: Vec<SchemaEdit>) -> Result<Schema, EditError> {
    let version = schema.version();
    for edit in edits {
        if let Some(keyspace) = edit.needs_keyspace()
            && schema.keyspace(keyspace).is_none()
        {
            return Err(EditError::NoKeyspace(keyspace.to_owned()));
        }
        schema = match edit {
            SchemaEdit::PutKeyspace(mut keyspace) => {
                if let Some(old) = schema.keyspace(&keyspace.name) {
                    keyspace = keyspace.with_content_of(old);
                }
                let name = keyspace.name.clone();
                let before = schema.keyspace(&name).map_or(0, |known| known.tables.len());
                let schema = schema.with_keyspace(keyspace);
                let after = schema.keyspace(&name).map(|keyspace| keyspace.tables.len());
                assert!(after >= Some(before), "other settings of a keyspace drop no table");
                schema
            }
            SchemaEdit::DropKeyspace(name) => schema.without_keyspace(&name),
            SchemaEdit::PutTable(table) => {
                let known = schema.table_by_id(table.id).map(|old| table.with_ids_of(old));
                let (id, schema) = (table.id, schema.with_table(known.unwrap_or(table)));
                assert!(schema.table_by_id(id).is_some(), "a table that was put is found by its id");
                schema
            }
            SchemaEdit::DropTable { keyspace, name } => schema.without_table(&keyspace, &name),
            SchemaEdit::PutType(ty) => schema.with_type(ty),
            SchemaEdit::DropType { keyspace, name } => schema.without_type(&keyspace, &name),
            SchemaEdit::PutFunction(function) => schema.with_function(function),
            SchemaEdit::DropFunction { keyspace, signature } => {
                schema.without_function(&keyspace, &signature)
            }
            SchemaEdit::PutAggregate(aggregate) => schema.with_aggregate(aggregate),
            SchemaEdit::DropAggregate { keyspace, signature } => {
                schema.without_aggregate(&keyspace, &signature)
            }
            SchemaEdit::PutRole(role) => schema.with_role(role),
            SchemaEdit::DropRole(name) => schema.without_role(&name),
            SchemaEdit::PutServiceLevel(level) => schema.with_service_level(level),
            SchemaEdit::DropServiceLevel(name) => schema.without_service_level(&name),
            SchemaEdit::PutCdcGeneration(generation) => schema.with_cdc_generation(generation),
            SchemaEdit::PutCidrGroup(group) => schema.with_cidr_group(group),
            SchemaEdit::DropCidrGroup(name) => schema.without_cidr_group(&name),
        };
    }
    assert_eq!(schema.version(), version, "who stores a schema gives it its version");
    Ok(schema)
}
