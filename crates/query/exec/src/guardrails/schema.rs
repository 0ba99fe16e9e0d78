//! Guardrails over changes of the schema, which are looked at as the edits that they come to.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::SchemaEdit;
use cql::ast::{AlterTableOperation, Property, Statement};
use schema::{Derivation, Keyspace, Replication, Schema, Table};
use types::{CqlType, UserType};

use super::{Guard, Words, exceeds};
use crate::error::Result;

impl Guard<'_> {
    /// Looks at a statement before its objects are, as Cassandra does. `session` is the keyspace of the session.
    ///
    /// # Errors
    /// When it is off.
    pub fn schema_statement(
        &mut self,
        statement: &Statement,
        session: Option<&str>,
        schema: &Schema,
    ) -> Result<()> {
        let home = match statement {
            Statement::DropKeyspace(ast) => Some(ast.name.name.as_str()),
            Statement::DropTable(ast) => ast.name.keyspace.as_deref().or(session),
            Statement::CreateIndex(ast) => ast.table.keyspace.as_deref().or(session),
            Statement::AlterTable(ast) => ast.name.keyspace.as_deref().or(session),
            _ => return Ok(()),
        };
        // Nobody may change the keyspaces of the server, of which the planner speaks.
        let Some(home) = home.filter(|home| schema.keyspace(home).is_none_or(|home| !home.system)) else {
            return Ok(());
        };
        let limits = self.limits;
        match statement {
            Statement::DropKeyspace(_) => self.enabled(
                "drop_keyspace_enabled",
                limits.drop_keyspace_enabled,
                "DROP KEYSPACE functionality",
            ),
            Statement::DropTable(_) => self.drop_or_truncate(),
            Statement::CreateIndex(_) => self.enabled(
                "secondary_indexes",
                limits.secondary_indexes_enabled,
                "Creating secondary indexes",
            ),
            Statement::AlterTable(ast) if schema.table(home, &ast.name.name).is_some() => {
                match &ast.operation {
                    AlterTableOperation::Add { .. }
                    | AlterTableOperation::Drop { .. }
                    | AlterTableOperation::Rename { .. } => self.enabled(
                        "alter_table",
                        limits.alter_table_enabled,
                        "ALTER TABLE changing columns",
                    ),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Looks at a change of the schema.
    ///
    /// # Errors
    /// The limit that it breaks.
    pub fn schema_change(
        &mut self,
        statement: &Statement,
        schema: &Schema,
        edits: &[SchemaEdit],
    ) -> Result<()> {
        match statement {
            Statement::AlterTable(ast) => {
                if let AlterTableOperation::With(properties) = &ast.operation {
                    self.properties(properties)?;
                }
            }
            Statement::CreateTable(ast) => self.properties(&ast.properties)?,
            Statement::CopyTable(ast) => self.properties(&ast.properties)?,
            Statement::CreateView(ast) => self.properties(&ast.properties)?,
            Statement::AlterView(ast) => self.properties(&ast.properties)?,
            _ => {}
        }
        // Comments and labels of a keyspace change nothing that has a limit.
        let describes = matches!(statement, Statement::CommentOn(_) | Statement::SecurityLabel(_));
        for edit in edits.iter().filter(|_| !describes) {
            match edit {
                SchemaEdit::PutKeyspace(keyspace) => self.keyspace(keyspace, schema)?,
                SchemaEdit::PutTable(table) if table.derivation.is_none() => self.table(table, schema)?,
                SchemaEdit::PutTable(table) => self.view(table, schema)?,
                SchemaEdit::PutType(ty) => self.user_type(ty)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks at DROP TABLE and TRUNCATE.
    ///
    /// # Errors
    /// When they are off.
    pub fn drop_or_truncate(&mut self) -> Result<()> {
        self.enabled(
            "drop_truncate_table_enabled",
            self.limits.drop_truncate_table_enabled,
            "DROP and TRUNCATE TABLE functionality",
        )
    }

    fn properties(&mut self, properties: &[Property]) -> Result<()> {
        let given: BTreeSet<String> = properties.iter().map(|property| property.name.clone()).collect();
        let limits = self.limits;
        self.values("table_properties", &limits.table_properties, &given, "Table Properties")
    }

    fn keyspace(&mut self, keyspace: &Keyspace, schema: &Schema) -> Result<()> {
        let (limits, name) = (self.limits, &keyspace.name);
        if schema.keyspace(name).is_none() {
            let count = schema.keyspaces().filter(|other| !other.system).count() as u64 + 1;
            let warn = |bound| {
                format!(
                    "Creating keyspace {name}, current number of keyspaces {count} exceeds warning threshold of {bound}."
                )
            };
            let fail = |bound| {
                format!("Cannot have more than {bound} keyspaces, aborting the creation of keyspace {name}")
            };
            self.at_most("keyspaces", limits.keyspaces, count, &Words { warn: &warn, fail: &fail })?;
        }
        let simple = matches!(keyspace.replication, Replication::Simple { .. });
        if simple {
            self.enabled("simplestrategy", limits.simplestrategy_enabled, "SimpleStrategy")?;
        }
        for factor in factors(&keyspace.replication) {
            let words = |kind: &'static str, side: &'static str| {
                move |bound: u64| {
                    format!(
                        "The keyspace {name} has a replication factor of {factor}, {side} the {kind} threshold of {bound}."
                    )
                }
            };
            let below = Words { warn: &words("warning", "below"), fail: &words("failure", "below") };
            let least = limits.minimum_replication_factor;
            self.at_least("minimum_replication_factor", least, factor, &below)?;
            let above = Words { warn: &words("warning", "above"), fail: &words("failure", "above") };
            let most = limits.maximum_replication_factor;
            self.at_most("maximum_replication_factor", most, factor, &above)?;
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, schema: &Schema) -> Result<()> {
        let (limits, name) = (self.limits, &table.name);
        let before = schema.table(&table.keyspace, name);
        if before.is_none() {
            self.new_table(table, schema)?;
        }
        let count = table.columns().len() as u64;
        if before.is_none_or(|before| (before.columns().len() as u64) < count) {
            let warn = |bound| {
                format!(
                    "The table {name} has {count} columns, this exceeds the warning threshold of {bound}."
                )
            };
            let fail = |bound| {
                format!("Tables cannot have more than {bound} columns, but {count} provided for table {name}")
            };
            let words = Words { warn: &warn, fail: &fail };
            self.at_most("columns_per_table", limits.columns_per_table, count, &words)?;
        }
        let compressed =
            |table: &Table| table.options.compression.get("enabled").is_none_or(|text| text != "false");
        if !compressed(table) && before.is_none_or(|before| compressed(before)) {
            let enabled = limits.uncompressed_tables_enabled;
            self.enabled("uncompressed_tables_enabled", enabled, "Uncompressed table")?;
        }
        let expires_by_window = |table: &Table| {
            let class = table.options.compaction.get("class");
            table.options.default_time_to_live == 0
                && class.is_some_and(|class| class.ends_with("TimeWindowCompactionStrategy"))
        };
        if expires_by_window(table) && before.is_none_or(|before| !expires_by_window(before)) {
            self.zero_ttl_on_twcs()?;
        }
        for column in table.columns() {
            let is_new = before.is_none_or(|before| before.column(&column.name).is_none());
            if let (true, Some(dimensions)) = (is_new, vector_dimensions(&column.ty)) {
                let what = format!("Column {}", column.name);
                self.vector(dimensions, &what)?;
            }
        }
        self.indexes(table, before)
    }

    fn zero_ttl_on_twcs(&mut self) -> Result<()> {
        const NAME: &str = "zero_ttl_on_twcs";
        let feature =
            "0 default_time_to_live on a table with TimeWindowCompactionStrategy compaction strategy";
        self.enabled(NAME, self.limits.zero_ttl_on_twcs_enabled, feature)?;
        if self.limits.zero_ttl_on_twcs_warned {
            self.warn(
                NAME,
                "0 default_time_to_live on a table with TimeWindowCompactionStrategy compaction strategy is not recommended. It is \
                 suspicious to use default_time_to_live set to 0 with such compaction strategy. Please keep in mind that data \
                 will not start to automatically expire after they are older than a respective compaction window unit of a \
                 certain size. Please set TTL for your INSERT or UPDATE statements if you expect data to be expired as table \
                 settings will not do it. ",
            );
        }
        Ok(())
    }

    fn new_table(&mut self, table: &Table, schema: &Schema) -> Result<()> {
        let (limits, name) = (self.limits, &table.name);
        let of_users = schema.keyspaces().filter(|keyspace| !keyspace.system);
        let tables = of_users.flat_map(|keyspace| keyspace.tables.values());
        let count = tables.filter(|table| table.derivation.is_none()).count() as u64 + 1;
        let warn = |bound| {
            format!(
                "Creating table {name}, current number of tables {count} exceeds warning threshold of {bound}."
            )
        };
        let fail =
            |bound| format!("Cannot have more than {bound} tables, aborting the creation of table {name}");
        self.at_most("tables", limits.tables, count, &Words { warn: &warn, fail: &fail })?;
        if table.compact_storage {
            let enabled = limits.compact_tables_enabled;
            self.enabled("compact_tables", enabled, "Creation of new COMPACT STORAGE tables")?;
        }
        Ok(())
    }

    fn indexes(&mut self, table: &Table, before: Option<&Arc<Table>>) -> Result<()> {
        let count = table.indexes.len() as u64;
        let new = table
            .indexes
            .keys()
            .find(|name| !before.is_some_and(|before| before.indexes.contains_key(*name)));
        let Some(new) = new else { return Ok(()) };
        let what = format!("{new} on table {}", table.name);
        let warn = |bound| {
            format!(
                "Creating secondary index {what}, current number of indexes {count} exceeds warning threshold of {bound}."
            )
        };
        let fail = |bound| {
            format!(
                "Tables cannot have more than {bound} secondary indexes, aborting the creation of secondary index {what}"
            )
        };
        let bounds = self.limits.secondary_indexes_per_table;
        self.at_most("secondary_indexes_per_table", bounds, count, &Words { warn: &warn, fail: &fail })
    }

    /// Looks at a derived table: a new materialized view counts against those of its base.
    fn view(&mut self, table: &Table, schema: &Schema) -> Result<()> {
        let Some(Derivation::View { base, .. }) = &table.derivation else { return Ok(()) };
        let Some(base) = schema.table_by_id(*base) else { return Ok(()) };
        let Some(keyspace) = schema.keyspace(&base.keyspace) else { return Ok(()) };
        if keyspace.tables.contains_key(&table.name) {
            return Ok(());
        }
        let is_of_base = |other: &Table| matches!(&other.derivation, Some(Derivation::View { base: of, .. }) if *of == base.id);
        let count = keyspace.tables.values().filter(|other| is_of_base(other)).count() as u64 + 1;
        let what = format!("{} on table {}", table.name, base.name);
        let warn = |bound| {
            format!(
                "Creating materialized view {what}, current number of views {count} exceeds warning threshold of {bound}."
            )
        };
        let fail = |bound| {
            format!(
                "Tables cannot have more than {bound} materialized views, aborting the creation of materialized view {what}"
            )
        };
        let bounds = self.limits.materialized_views_per_table;
        self.at_most("materialized_views_per_table", bounds, count, &Words { warn: &warn, fail: &fail })
    }

    fn user_type(&mut self, ty: &UserType) -> Result<()> {
        let (name, count) = (&ty.name, ty.fields.len() as u64);
        let warn = |bound| {
            format!(
                "The user type {name} has {count} columns, this exceeds the warning threshold of {bound}."
            )
        };
        let fail = |bound| {
            format!(
                "User types cannot have more than {bound} columns, but {count} provided for user type {name}."
            )
        };
        let bounds = self.limits.fields_per_udt;
        self.at_most("fields_per_udt", bounds, count, &Words { warn: &warn, fail: &fail })?;
        for (field, ty) in &ty.fields {
            if let Some(dimensions) = vector_dimensions(ty) {
                self.vector(dimensions, &format!("Field {field}"))?;
            }
        }
        Ok(())
    }

    fn vector(&mut self, dimensions: u64, what: &str) -> Result<()> {
        let limits = self.limits;
        self.enabled("vector_type_enabled", limits.vector_type_enabled, "usage of the vector type")?;
        let (warn, fail) = exceeds(format!("{what} has a vector of {dimensions} dimensions"));
        let words = Words { warn: &warn, fail: &fail };
        self.at_most("vector_dimensions", limits.vector_dimensions, dimensions, &words)
    }
}

/// The dimensions of a vector, or of the largest one inside of a type.
fn vector_dimensions(ty: &CqlType) -> Option<u64> {
    match ty {
        CqlType::Vector { element, dimension } => vector_dimensions(element).max(Some(u64::from(*dimension))),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => vector_dimensions(element),
        CqlType::Map { key, value, .. } => vector_dimensions(key).max(vector_dimensions(value)),
        CqlType::Tuple(types) => types.iter().filter_map(vector_dimensions).max(),
        CqlType::Udt { ty, .. } => ty.fields.iter().filter_map(|(_, field)| vector_dimensions(field)).max(),
        _ => None,
    }
}

fn factors(replication: &Replication) -> Vec<u64> {
    match replication {
        Replication::Simple { factor } => vec![u64::from(*factor)],
        Replication::NetworkTopology { factors } => {
            factors.values().map(|factor| u64::from(*factor)).collect()
        }
        _ => Vec::new(),
    }
}
