//! A table's definition: columns with their kinds and in-memory ids, options, dropped columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use stdx::{HashMap, HashSet};
use types::CqlType;

use crate::{
    ColumnMask, Constraint, Derivation, Description, HIDDEN, Index, InvalidSchema, TableId, TableOptions,
    TombstoneGc, Trigger,
};

/// A column's name inside this process: small, never reused in a table while the process lives, so that rows
/// written before an ALTER keep their meaning. It is never stored: files and logs carry column names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u32);

/// The most columns of a table, those that were dropped included, whose names it remembers. A file numbers the columns of a row
/// in 16 bits.
pub const COLUMNS_MAX: usize = 65_535;

/// Which part of a row a column belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnKind {
    /// Part of the partition key.
    PartitionKey,
    /// Part of the clustering key.
    Clustering,
    /// One value a partition.
    Static,
    /// One value a row.
    Regular,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// See [`ColumnId`].
    pub id: ColumnId,
    /// Its name, case kept.
    pub name: String,
    /// Key, clustering, static or regular.
    pub kind: ColumnKind,
    /// Place within the partition or clustering key, from 0; 0 for other kinds.
    pub position: u16,
    /// Type of its values.
    pub ty: CqlType,
    /// Clustering columns only: whether order is descending.
    pub descending: bool,
    /// The function that stands for its values where a reader lacks the permission UNMASK.
    pub mask: Option<Box<ColumnMask>>,
    /// The conditions of a value that is written: it has to fulfil all of them.
    pub constraints: Vec<Constraint>,
    /// Its comment and its security label.
    pub description: Option<Box<Description>>,
}

impl Column {
    /// Whether clients do not see it.
    pub fn is_hidden(&self) -> bool {
        self.name == HIDDEN
    }

    /// Whether it is kept as one cell an element (unfrozen collection or user type).
    pub fn is_complex(&self) -> bool {
        self.ty.is_multi_cell()
    }
}

/// The record of a column after ALTER TABLE … DROP: cells written up to `dropped_micros` are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedColumn {
    /// Its former name.
    pub name: String,
    /// Its former type, frozen where it was multi-cell.
    pub ty: CqlType,
    /// Whether it was static.
    pub is_static: bool,
    /// Microseconds since the epoch.
    pub dropped_micros: i64,
}

/// A table's definition. Immutable and shared; build one with [`TableBuilder`].
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its identity.
    pub id: TableId,
    /// Name of its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Everything after WITH.
    pub options: TableOptions,
    /// Its security label; its comment is an option.
    pub security_label: Option<String>,
    /// The name of the column whose values are the times at which rows expire; none for rows that live for ever.
    pub ttl_column: Option<String>,
    /// `WITH COMPACT STORAGE` was said when it was made.
    pub compact_storage: bool,
    /// Former columns by name.
    pub dropped_columns: BTreeMap<String, DroppedColumn>,
    /// Secondary indexes by name.
    pub indexes: BTreeMap<String, Index>,
    /// Triggers by name.
    pub triggers: BTreeMap<String, Trigger>,
    /// The source of its rows; none for a table that clients write.
    pub derivation: Option<Derivation>,
    /// Partition key, clustering, then static, then regular; the last two in name order.
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<ColumnId, usize>,
    partition_key_len: usize,
    clustering_len: usize,
    static_len: usize,
    clustering_types: Vec<(CqlType, bool)>,
    next_id: u64,
    is_counter: bool,
    is_constrained: bool,
}

impl Table {
    /// All columns: partition key, clustering, static by name, regular by name.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The columns that clients see, in the order of [`Table::columns`].
    pub fn shown_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.is_hidden())
    }

    /// The partition key's columns in key order; never empty.
    pub fn partition_key(&self) -> &[Column] {
        &self.columns[..self.partition_key_len]
    }

    /// The clustering columns in key order.
    pub fn clustering(&self) -> &[Column] {
        &self.columns[self.partition_key_len..][..self.clustering_len]
    }

    /// Static columns in name order.
    pub fn static_columns(&self) -> &[Column] {
        &self.columns[self.partition_key_len + self.clustering_len..][..self.static_len]
    }

    /// Regular columns in name order.
    pub fn regular_columns(&self) -> &[Column] {
        &self.columns[self.partition_key_len + self.clustering_len + self.static_len..]
    }

    /// Clustering types with "is descending", as the ordered encoding takes them.
    pub fn clustering_types(&self) -> &[(CqlType, bool)] {
        &self.clustering_types
    }

    /// A column by name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.by_name.get(name).map(|at| &self.columns[*at])
    }

    /// A static or regular column by id; ids of dropped columns give none.
    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        self.by_id.get(&id).map(|at| &self.columns[*at])
    }

    /// The column of [`Table::ttl_column`].
    pub fn row_ttl(&self) -> Option<&Column> {
        self.column(self.ttl_column.as_deref()?)
    }

    /// Whether its non-key columns are counters.
    pub fn is_counter(&self) -> bool {
        self.is_counter
    }

    /// Whether a column has constraints.
    pub fn is_constrained(&self) -> bool {
        self.is_constrained
    }

    /// Whether reads or writes of its partitions have a limit a second.
    pub fn is_rate_limited(&self) -> bool {
        self.options.per_partition_rate_limit != crate::RateLimit::default()
    }

    /// Whether it has static columns.
    pub fn has_static(&self) -> bool {
        self.static_len > 0
    }

    /// Whether it is a materialized view.
    pub fn is_view(&self) -> bool {
        self.derivation.as_ref().is_some_and(Derivation::is_view)
    }

    /// The shortest time in seconds for which deletions of a view are remembered with `tombstone_gc` by repair: updates that could not be
    /// delivered at once are delivered in it.
    pub const VIEW_DELAY_SECONDS_MIN: u32 = 300;

    /// With `tombstone_gc` by repair, how long a write may be under way, in seconds.
    pub fn propagation_delay_seconds(&self) -> Option<u32> {
        match self.options.tombstone_gc {
            TombstoneGc::Repair { propagation_delay_seconds } if self.is_view() => {
                Some(propagation_delay_seconds.max(Self::VIEW_DELAY_SECONDS_MIN))
            }
            TombstoneGc::Repair { propagation_delay_seconds } => Some(propagation_delay_seconds),
            TombstoneGc::Timeout | TombstoneGc::Disabled | TombstoneGc::Immediate => None,
        }
    }

    /// Whether it is the log of another table's changes.
    pub fn is_cdc_log(&self) -> bool {
        self.derivation.as_ref().is_some_and(Derivation::is_cdc_log)
    }

    /// Whether its rows follow from those of another table.
    pub fn is_derived_from(&self, base: TableId) -> bool {
        self.derivation.as_ref().is_some_and(|derivation| derivation.base() == base)
    }

    /// `keyspace.name`, for messages.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.name)
    }

    /// This definition for a process that has used an older one of the same table: columns of both keep the id under which the
    /// process knows it, and everything else gets one that was never used. A column that was dropped and added again is
    /// another one.
    ///
    /// # Panics
    /// When `old` is another table.
    pub fn with_ids_of(&self, old: &Table) -> Table {
        assert_eq!(self.id, old.id, "ids have a meaning within one table");
        let mut builder = self.to_builder();
        builder.next_id = old.next_id;
        let dropped =
            |table: &Table, name: &str| table.dropped_columns.get(name).map(|column| column.dropped_micros);
        let columns = std::mem::take(&mut builder.columns);
        let ids: Vec<Option<ColumnId>> = columns
            .iter()
            .map(|column| match column.kind {
                ColumnKind::PartitionKey => old.partition_key().get(usize::from(column.position)),
                ColumnKind::Clustering => old.clustering().get(usize::from(column.position)),
                ColumnKind::Static | ColumnKind::Regular => old.column(&column.name).filter(|known| {
                    known.kind == column.kind && dropped(self, &column.name) == dropped(old, &column.name)
                }),
            })
            .map(|known| known.map(|known| known.id))
            .collect();
        let taken: Vec<ColumnId> = ids.iter().copied().flatten().collect();
        for (mut column, known) in columns.into_iter().zip(ids) {
            column.id = known.unwrap_or_else(|| builder.fresh_id(&taken));
            builder.columns.push(column);
        }
        builder.build().expect("only ids have changed")
    }

    /// This definition together with those of the columns that it has dropped and not added again for which `is_wanted` is true, for
    /// code that writes cells from file to file: cells that are newer than the drop are visible again when a column of that name is
    /// added. Counters are left out: they are not added again. The ids of those columns are valid in the returned definition only.
    pub fn with_dropped_columns(self: &Arc<Table>, is_wanted: impl Fn(&DroppedColumn) -> bool) -> Arc<Table> {
        let is_kept = |dropped: &&DroppedColumn| {
            !self.is_counter
                && !dropped.ty.is_counter()
                && self.column(&dropped.name).is_none()
                && (self.clustering_len > 0 || !dropped.is_static)
                && is_wanted(dropped)
        };
        let mut kept = self.dropped_columns.values().filter(is_kept).peekable();
        if kept.peek().is_none() {
            return self.clone();
        }
        let with = kept.fold(self.to_builder(), |builder, dropped| {
            let (name, ty) = (dropped.name.clone(), dropped.ty.clone());
            if dropped.is_static { builder.static_column(name, ty) } else { builder.regular(name, ty) }
        });
        let with = with.build().expect("the columns of a table and those it remembers have each their name");
        assert_eq!(with.dropped_columns, self.dropped_columns, "it remembers when they were dropped");
        Arc::new(with)
    }

    /// The columns that have masks.
    pub fn masked_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.mask.is_some())
    }

    /// The columns that have constraints.
    pub fn constrained_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.constraints.is_empty())
    }

    /// A builder that starts from this definition; ids of existing columns stay.
    pub fn to_builder(&self) -> TableBuilder {
        TableBuilder {
            id: self.id,
            keyspace: self.keyspace.clone(),
            name: self.name.clone(),
            options: self.options.clone(),
            security_label: self.security_label.clone(),
            ttl_column: self.ttl_column.clone(),
            compact_storage: self.compact_storage,
            dropped_columns: self.dropped_columns.clone(),
            indexes: self.indexes.clone(),
            triggers: self.triggers.clone(),
            derivation: self.derivation.clone(),
            columns: self.columns.clone(),
            next_id: self.next_id,
        }
    }
}

/// Collects columns and checks the rules that every table obeys.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    /// See [`Table::id`].
    pub id: TableId,
    /// See [`Table::keyspace`].
    pub keyspace: String,
    /// See [`Table::name`].
    pub name: String,
    /// See [`Table::options`].
    pub options: TableOptions,
    /// See [`Table::security_label`].
    pub security_label: Option<String>,
    /// See [`Table::ttl_column`].
    pub ttl_column: Option<String>,
    /// See [`Table::compact_storage`].
    pub compact_storage: bool,
    /// See [`Table::dropped_columns`].
    pub dropped_columns: BTreeMap<String, DroppedColumn>,
    /// See [`Table::indexes`].
    pub indexes: BTreeMap<String, Index>,
    /// See [`Table::triggers`].
    pub triggers: BTreeMap<String, Trigger>,
    /// See [`Table::derivation`].
    pub derivation: Option<Derivation>,
    columns: Vec<Column>,
    /// Above `u32::MAX` the ids begin again at 0.
    next_id: u64,
}

impl TableBuilder {
    /// An empty definition.
    pub fn new(keyspace: impl Into<String>, name: impl Into<String>, id: TableId) -> Self {
        Self {
            id,
            keyspace: keyspace.into(),
            name: name.into(),
            options: TableOptions::default(),
            security_label: None,
            ttl_column: None,
            compact_storage: false,
            dropped_columns: BTreeMap::new(),
            indexes: BTreeMap::new(),
            triggers: BTreeMap::new(),
            derivation: None,
            columns: Vec::new(),
            next_id: 0,
        }
    }

    /// Adds the next partition key column.
    pub fn partition_key(self, name: impl Into<String>, ty: CqlType) -> Self {
        self.push(name.into(), ColumnKind::PartitionKey, ty.freeze(), false)
    }

    /// Adds the next clustering column.
    pub fn clustering(self, name: impl Into<String>, ty: CqlType, descending: bool) -> Self {
        self.push(name.into(), ColumnKind::Clustering, ty.freeze(), descending)
    }

    /// Adds a static column.
    pub fn static_column(self, name: impl Into<String>, ty: CqlType) -> Self {
        self.push(name.into(), ColumnKind::Static, ty, false)
    }

    /// Adds a regular column.
    pub fn regular(self, name: impl Into<String>, ty: CqlType) -> Self {
        self.push(name.into(), ColumnKind::Regular, ty, false)
    }

    /// Removes static and regular columns and remembers when, so that their old cells stay hidden.
    pub fn drop_columns(&mut self, names: &HashSet<&str>, dropped_micros: i64) {
        let dropped = self.columns.extract_if(.., |column| names.contains(column.name.as_str()));
        for column in dropped {
            let dropped = DroppedColumn {
                name: column.name.clone(),
                ty: column.ty,
                is_static: column.kind == ColumnKind::Static,
                dropped_micros,
            };
            self.dropped_columns.insert(column.name, dropped);
        }
    }

    /// Removes one column: see [`TableBuilder::drop_columns`].
    pub fn drop_column(&mut self, name: &str, dropped_micros: i64) {
        self.drop_columns(&HashSet::from_iter([name]), dropped_micros);
    }

    /// The columns so far.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Gives a column a mask, or takes it away; of a column that is not there nothing changes.
    pub fn set_mask(&mut self, column: &str, mask: Option<ColumnMask>) {
        if let Some(column) = self.columns.iter_mut().find(|known| known.name == column) {
            column.mask = mask.map(Box::new);
        }
    }

    /// Gives a column constraints in place of those that it had; of a column that is not there nothing changes.
    pub fn set_constraints(&mut self, column: &str, constraints: Vec<Constraint>) {
        if let Some(column) = self.columns.iter_mut().find(|known| known.name == column) {
            column.constraints = constraints;
        }
    }

    /// Describes a column; of a column that is not there nothing changes.
    pub fn set_description(&mut self, column: &str, description: Description) {
        if let Some(column) = self.columns.iter_mut().find(|known| known.name == column) {
            column.description = (!description.is_empty()).then(|| description.into());
        }
    }

    /// The columns so far, to change types or names in place.
    pub fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    fn push(mut self, name: String, kind: ColumnKind, ty: CqlType, descending: bool) -> Self {
        let position = match kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering => {
                let before = self.columns.iter().rev().find(|column| column.kind == kind);
                before.map_or(0, |before| before.position.saturating_add(1))
            }
            ColumnKind::Static | ColumnKind::Regular => 0,
        };
        let id = self.fresh_id(&[]);
        let (mask, constraints, description) = (None, Vec::new(), None);
        self.columns.push(Column {
            id,
            name,
            kind,
            position,
            ty,
            descending,
            mask,
            constraints,
            description,
        });
        self
    }

    /// An id that no column has had: the next one. After four billion they begin again, without those in use.
    fn fresh_id(&mut self, taken: &[ColumnId]) -> ColumnId {
        loop {
            let id = ColumnId(self.next_id as u32);
            let again = self.next_id > u64::from(u32::MAX);
            self.next_id += 1;
            if !again || !(taken.contains(&id) || self.columns.iter().any(|column| column.id == id)) {
                return id;
            }
        }
    }

    /// How many columns it has and remembers.
    fn known_columns(&self) -> usize {
        if self.dropped_columns.is_empty() {
            return self.columns.len();
        }
        let back =
            self.columns.iter().filter(|column| self.dropped_columns.contains_key(&column.name)).count();
        self.columns.len() + self.dropped_columns.len() - back
    }

    fn check_count(&self) -> Result<(), InvalidSchema> {
        let known = self.known_columns();
        if known <= COLUMNS_MAX {
            return Ok(());
        }
        Err(InvalidSchema(format!(
            "Table {}.{} would have {} columns and remember {} that were dropped: at most {COLUMNS_MAX} in all are \
             allowed",
            self.keyspace,
            self.name,
            self.columns.len(),
            known - self.columns.len()
        )))
    }

    /// The finished table, or the rule that it breaks.
    ///
    /// # Errors
    /// The rule; also more than [`COLUMNS_MAX`] columns.
    pub fn build(self) -> Result<Table, InvalidSchema> {
        self.check_count()?;
        let mut columns = self.columns;
        columns.sort_by(|a, b| {
            (a.kind, a.position).cmp(&(b.kind, b.position)).then_with(|| match a.kind {
                ColumnKind::PartitionKey | ColumnKind::Clustering => std::cmp::Ordering::Equal,
                ColumnKind::Static | ColumnKind::Regular => a.name.as_bytes().cmp(b.name.as_bytes()),
            })
        });
        let count = |kind| columns.iter().filter(|column| column.kind == kind).count();
        let (partition_key_len, clustering_len) =
            (count(ColumnKind::PartitionKey), count(ColumnKind::Clustering));
        let static_len = count(ColumnKind::Static);
        let mut by_name = HashMap::default();
        let mut by_id = HashMap::default();
        for (at, column) in columns.iter().enumerate() {
            if by_name.insert(column.name.clone(), at).is_some() {
                return Err(InvalidSchema(format!("Multiple definition of identifier {}", column.name)));
            }
            by_id.insert(column.id, at);
        }
        if partition_key_len == 0 {
            return Err(InvalidSchema(format!(
                "No PRIMARY KEY specified for table '{}.{}' (exactly one required)",
                self.keyspace, self.name
            )));
        }
        if static_len > 0 && clustering_len == 0 {
            return Err(InvalidSchema(
                "Static columns are only useful (and thus allowed) if the table has at least one clustering \
                 column"
                    .to_owned(),
            ));
        }
        let is_counter = Self::counters_only(&columns)?;
        let is_constrained = columns.iter().any(|column| !column.constraints.is_empty());
        let clustering_types = columns[partition_key_len..][..clustering_len]
            .iter()
            .map(|column| (column.ty.clone(), column.descending))
            .collect();
        Ok(Table {
            id: self.id,
            keyspace: self.keyspace,
            name: self.name,
            options: self.options,
            security_label: self.security_label,
            ttl_column: self.ttl_column,
            compact_storage: self.compact_storage,
            dropped_columns: self.dropped_columns,
            indexes: self.indexes,
            triggers: self.triggers,
            derivation: self.derivation,
            columns,
            by_name,
            by_id,
            partition_key_len,
            clustering_len,
            static_len,
            clustering_types,
            next_id: self.next_id,
            is_counter,
            is_constrained,
        })
    }

    fn counters_only(columns: &[Column]) -> Result<bool, InvalidSchema> {
        let counter = |column: &&Column| column.ty == CqlType::Counter;
        let key = |column: &&Column| matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
        if let Some(column) = columns.iter().filter(key).find(counter) {
            return Err(InvalidSchema(format!(
                "counter type is not supported for PRIMARY KEY column '{}'",
                column.name
            )));
        }
        let counters = columns.iter().filter(counter).count();
        let values = columns.iter().filter(|column| !key(column)).count();
        match counters {
            0 => Ok(false),
            n if n == values => Ok(true),
            _ => {
                Err(InvalidSchema("Cannot mix counter and non counter columns in the same table".to_owned()))
            }
        }
    }

    /// The finished table behind an `Arc`; for tables whose definition is written in the code.
    ///
    /// # Panics
    /// When the definition is invalid.
    pub fn build_known(self) -> Arc<Table> {
        Arc::new(self.build().expect("a built-in table is valid"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> TableBuilder {
        let builder = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("pk", CqlType::Int);
        names.iter().fold(builder, |builder, name| builder.regular(*name, CqlType::Int))
    }

    #[test]
    fn a_definition_from_elsewhere_keeps_the_ids_of_this_process() {
        let old = table(&["a", "b", "c"]).build().unwrap();
        let mut changed = old.to_builder();
        changed.drop_column("a", 7);
        let here = changed.regular("d", CqlType::Int).build().unwrap();
        // The same content, made anew as a node does that read it.
        let mut anew = table(&["b", "c", "d"]);
        anew.dropped_columns = here.dropped_columns.clone();
        let there = anew.build().unwrap();
        assert_ne!(there.column("b").unwrap().id, old.column("b").unwrap().id);
        assert_eq!(there.with_ids_of(&old), here);
    }

    #[test]
    fn a_column_that_came_back_is_another_one() {
        let old = table(&["a"]).build().unwrap();
        let mut builder = old.to_builder();
        builder.drop_column("a", 7);
        let here = builder.regular("a", CqlType::Int).build().unwrap();
        let mut anew = table(&["a"]);
        anew.dropped_columns = here.dropped_columns.clone();
        let seen = anew.build().unwrap().with_ids_of(&old);
        assert_eq!(seen, here);
        assert_ne!(seen.column("a").unwrap().id, old.column("a").unwrap().id);
    }

    #[test]
    fn a_table_has_a_limit_of_columns_that_counts_the_dropped_ones() {
        let names: Vec<String> = (0..COLUMNS_MAX).map(|at| format!("c{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let most = table(&names[1..]).build().unwrap();
        assert_eq!(most.with_ids_of(&most), most);
        let error = table(&names).build().unwrap_err();
        assert!(error.to_string().contains("65536 columns and remember 0"), "{error}");
        let mut builder = most.to_builder();
        builder.drop_column("c7", 1);
        assert!(builder.clone().regular("c7", CqlType::Int).build().is_ok(), "the same name again");
        let error = builder.regular("other", CqlType::Int).build().unwrap_err();
        assert!(error.to_string().contains("65535 columns and remember 1"), "{error}");
    }

    #[test]
    fn columns_that_come_and_go_get_new_ids_for_ever() {
        let mut table = table(&["v"]).build().unwrap();
        for at in 0..70_000 {
            let mut builder = table.to_builder();
            builder.drop_column("w", at);
            let next = builder.regular("w", CqlType::Int).build().unwrap();
            assert!(table.column("w").is_none_or(|old| old.id < next.column("w").unwrap().id));
            table = next.with_ids_of(&table);
        }
        assert!(table.column("w").unwrap().id.0 > 65_536);
    }

    #[test]
    fn ids_that_begin_again_spare_those_in_use() {
        let mut builder = table(&["a", "b"]);
        builder.next_id = u64::from(u32::MAX);
        let table = builder.regular("c", CqlType::Int).regular("d", CqlType::Int).build().unwrap();
        assert_eq!(table.column("c").unwrap().id, ColumnId(u32::MAX));
        assert_eq!(table.column("d").unwrap().id, ColumnId(3), "0 to 2 are in use");
        let mut builder = table.to_builder();
        builder.drop_column("b", 1);
        let seen = builder.regular("b", CqlType::Int).build().unwrap().with_ids_of(&table);
        let ids: std::collections::BTreeSet<ColumnId> =
            seen.columns().iter().map(|column| column.id).collect();
        assert_eq!(ids.len(), seen.columns().len());
    }
}
