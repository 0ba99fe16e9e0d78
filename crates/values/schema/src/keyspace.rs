//! The schema as a whole and its keyspaces; roles and service levels, which belong to no keyspace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stdx::HashMap;
use types::UserType;

use crate::{
    CDC_LOG_SUFFIX, CdcGeneration, CidrGroup, Description, Index, Role, ServiceLevel, Signature, Table,
    TableId, TypeDescription, UserAggregate, UserFunction,
};

/// Generations of streams that are remembered at least, regardless of their size.
const CDC_GENERATIONS_MIN: usize = 3;
/// Generations of streams that are remembered at most.
const CDC_GENERATIONS_MAX: usize = 64;
/// Ranges of all generations of streams that are remembered.
const CDC_RANGES_MAX: usize = 32_768;

/// How many copies of a keyspace's data exist, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replication {
    /// Every node keeps its own data (`system`).
    Local,
    /// Every node keeps everything.
    Everywhere,
    /// The next `factor` nodes on the ring.
    Simple {
        /// Number of copies.
        factor: u32,
    },
    /// So many copies in each datacenter, spread over racks.
    NetworkTopology {
        /// Datacenter name to number of copies.
        factors: BTreeMap<String, u32>,
    },
}

impl Replication {
    /// The name of its class, as clients know it.
    pub fn class_name(&self) -> String {
        self.to_map().remove("class").unwrap_or_default()
    }

    /// The map that `system_schema.keyspaces.replication` shows.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let class = |name: &str| ("class".to_owned(), format!("org.apache.cassandra.locator.{name}"));
        match self {
            Self::Local => BTreeMap::from([class("LocalStrategy")]),
            Self::Everywhere => BTreeMap::from([class("EverywhereStrategy")]),
            Self::Simple { factor } => BTreeMap::from([
                class("SimpleStrategy"),
                ("replication_factor".to_owned(), factor.to_string()),
            ]),
            Self::NetworkTopology { factors } => std::iter::once(class("NetworkTopologyStrategy"))
                .chain(factors.iter().map(|(dc, n)| (dc.clone(), n.to_string())))
                .collect(),
        }
    }
}

/// A namespace of tables and types with one replication setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Keyspace {
    /// Its name, case kept.
    pub name: String,
    /// Where copies live.
    pub replication: Replication,
    /// Whether writes go to the commit log.
    pub durable_writes: bool,
    /// Its comment and its security label.
    pub description: Description,
    /// Comments and security labels of its user types by name; a type without them is absent.
    pub type_descriptions: BTreeMap<String, TypeDescription>,
    /// Whether it is one of the server's own and closed to users' changes.
    pub system: bool,
    /// Whether its tables are computed when they are read, and never stored, but for those of `kept`.
    pub computed: bool,
    /// Tables of a computed keyspace that are stored all the same.
    pub kept: BTreeSet<String>,
    /// Tables by name.
    pub tables: BTreeMap<String, Arc<Table>>,
    /// User-defined types by name.
    pub types: BTreeMap<String, Arc<UserType>>,
    /// User-defined functions.
    pub functions: BTreeMap<Signature, Arc<UserFunction>>,
    /// User-defined aggregates.
    pub aggregates: BTreeMap<Signature, Arc<UserAggregate>>,
}

impl Keyspace {
    /// An empty keyspace.
    pub fn new(name: impl Into<String>, replication: Replication) -> Self {
        Self {
            name: name.into(),
            replication,
            durable_writes: true,
            description: Description::default(),
            type_descriptions: BTreeMap::new(),
            system: false,
            computed: false,
            kept: BTreeSet::new(),
            tables: BTreeMap::new(),
            types: BTreeMap::new(),
            functions: BTreeMap::new(),
            aggregates: BTreeMap::new(),
        }
    }

    /// The same settings with the tables, types, functions and aggregates of `other`.
    #[must_use]
    pub fn with_content_of(self, other: &Keyspace) -> Self {
        Self {
            tables: other.tables.clone(),
            types: other.types.clone(),
            functions: other.functions.clone(),
            aggregates: other.aggregates.clone(),
            ..self
        }
    }

    /// The same settings without tables, types, functions and aggregates, as an edit of the settings needs them.
    #[must_use]
    pub fn settings(&self) -> Self {
        Self {
            durable_writes: self.durable_writes,
            description: self.description.clone(),
            type_descriptions: self.type_descriptions.clone(),
            system: self.system,
            computed: self.computed,
            kept: self.kept.clone(),
            ..Self::new(&self.name, self.replication.clone())
        }
    }

    /// The materialized views of a table, in name order.
    pub fn views_of(&self, base: TableId) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values().filter(move |table| table.is_view() && table.is_derived_from(base))
    }

    /// The index of this name, with its table.
    pub fn index(&self, name: &str) -> Option<(&Arc<Table>, &Index)> {
        self.tables.values().find_map(|table| Some((table, table.indexes.get(name)?)))
    }

    /// Whether a table of it is computed when it is read.
    pub fn computes(&self, table: &str) -> bool {
        self.computed && !self.kept.contains(table)
    }
}

/// A snapshot of all keyspaces. Cheap to clone; changes go through the `with_*` methods, which return a new one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    pub(crate) keyspaces: BTreeMap<String, Arc<Keyspace>>,
    tables: HashMap<TableId, Arc<Table>>,
    roles: BTreeMap<String, Arc<Role>>,
    service_levels: BTreeMap<String, Arc<ServiceLevel>>,
    cidr_groups: BTreeMap<String, Arc<CidrGroup>>,
    cdc_generations: Vec<Arc<CdcGeneration>>,
    version: [u8; 16],
}

impl Schema {
    /// All keyspaces in name order.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Arc<Keyspace>> {
        self.keyspaces.values()
    }

    /// A keyspace by name.
    pub fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }

    /// A table by keyspace and name.
    pub fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<Table>> {
        self.keyspaces.get(keyspace)?.tables.get(name)
    }

    /// A table by id.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(&id)
    }

    /// All tables of all keyspaces, by keyspace and name.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.keyspaces.values().flat_map(|keyspace| keyspace.tables.values())
    }

    /// The part whose tables are stored: without computed tables.
    pub fn stored(&self) -> Self {
        let computed = self.keyspaces.values().filter(|keyspace| keyspace.computed);
        computed.fold(self.clone(), |schema, keyspace| {
            let schema = schema.without_keyspace(&keyspace.name);
            if keyspace.kept.is_empty() {
                return schema;
            }
            let mut kept = Keyspace { computed: false, ..Keyspace::clone(keyspace) };
            kept.tables.retain(|name, _| keyspace.kept.contains(name));
            schema.with_keyspace(kept)
        })
    }

    /// The version that drivers compare: equal content has equal versions.
    pub fn version(&self) -> [u8; 16] {
        self.version
    }

    /// The schema with `version` as its version (computed by the component that stores the schema).
    pub fn with_version(mut self, version: [u8; 16]) -> Self {
        self.version = version;
        self
    }

    /// The schema with this keyspace added or replaced, tables included.
    pub fn with_keyspace(mut self, keyspace: Keyspace) -> Self {
        self.unlink_tables(&keyspace.name);
        for table in keyspace.tables.values() {
            assert_eq!(table.keyspace, keyspace.name, "a table lives in its own keyspace");
            self.tables.insert(table.id, table.clone());
        }
        self.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        self
    }

    /// The schema without this keyspace.
    pub fn without_keyspace(mut self, name: &str) -> Self {
        self.unlink_tables(name);
        self.keyspaces.remove(name);
        self
    }

    /// The schema with this table added or replaced in its keyspace, which must exist.
    pub fn with_table(mut self, table: Table) -> Self {
        let keyspace = self.keyspaces.get_mut(&table.keyspace).expect("the keyspace exists");
        let table = Arc::new(table);
        let old = Arc::make_mut(keyspace).tables.insert(table.name.clone(), table.clone());
        if let Some(old) = old {
            self.tables.remove(&old.id);
        }
        self.tables.insert(table.id, table);
        self
    }

    /// The schema without this table.
    pub fn without_table(mut self, keyspace: &str, name: &str) -> Self {
        if let Some(keyspace) = self.keyspaces.get_mut(keyspace)
            && let Some(old) = Arc::make_mut(keyspace).tables.remove(name)
        {
            self.tables.remove(&old.id);
        }
        self
    }

    /// The schema with this user type added or replaced. Tables that use it are the caller's to rebuild.
    pub fn with_type(mut self, ty: UserType) -> Self {
        let keyspace = self.keyspaces.get_mut(&ty.keyspace).expect("the keyspace exists");
        Arc::make_mut(keyspace).types.insert(ty.name.clone(), Arc::new(ty));
        self
    }

    /// The schema without this user type, and without its comments and labels.
    pub fn without_type(mut self, keyspace: &str, name: &str) -> Self {
        if let Some(keyspace) = self.keyspaces.get_mut(keyspace) {
            let keyspace = Arc::make_mut(keyspace);
            keyspace.types.remove(name);
            keyspace.type_descriptions.remove(name);
        }
        self
    }

    /// The schema with this function added or replaced in its keyspace, which must exist.
    pub fn with_function(mut self, function: UserFunction) -> Self {
        let keyspace = self.keyspaces.get_mut(&function.keyspace).expect("the keyspace exists");
        Arc::make_mut(keyspace).functions.insert(function.signature(), Arc::new(function));
        self
    }

    /// The schema without this function.
    pub fn without_function(mut self, keyspace: &str, signature: &Signature) -> Self {
        if let Some(keyspace) = self.keyspaces.get_mut(keyspace) {
            Arc::make_mut(keyspace).functions.remove(signature);
        }
        self
    }

    /// The schema with this aggregate added or replaced in its keyspace, which must exist.
    pub fn with_aggregate(mut self, aggregate: UserAggregate) -> Self {
        let keyspace = self.keyspaces.get_mut(&aggregate.keyspace).expect("the keyspace exists");
        Arc::make_mut(keyspace).aggregates.insert(aggregate.signature(), Arc::new(aggregate));
        self
    }

    /// The schema without this aggregate.
    pub fn without_aggregate(mut self, keyspace: &str, signature: &Signature) -> Self {
        if let Some(keyspace) = self.keyspaces.get_mut(keyspace) {
            Arc::make_mut(keyspace).aggregates.remove(signature);
        }
        self
    }

    /// All roles in name order.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.roles.values()
    }

    /// A role by name.
    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.get(name)
    }

    /// The role as which a client with a certificate of this identity authenticates.
    pub fn role_of_identity(&self, identity: &str) -> Option<&Arc<Role>> {
        self.roles.values().find(|role| role.identities.contains(identity))
    }

    /// The schema with this role added or replaced.
    pub fn with_role(mut self, role: Role) -> Self {
        self.roles.insert(role.name.clone(), Arc::new(role));
        self
    }

    /// The schema without this role.
    pub fn without_role(mut self, name: &str) -> Self {
        self.roles.remove(name);
        self
    }

    /// All groups of addresses, in name order.
    pub fn cidr_groups(&self) -> impl Iterator<Item = &Arc<CidrGroup>> {
        self.cidr_groups.values()
    }

    /// The names of the groups with the smallest range that has an address.
    pub fn cidr_groups_of(&self, address: std::net::IpAddr) -> std::collections::BTreeSet<String> {
        let having = || {
            let bits = self.cidr_groups.values().map(|group| (group, group.bits_of(address)));
            bits.filter_map(|(group, bits)| Some((group, bits?)))
        };
        let most = having().map(|(_, bits)| bits).max();
        having().filter(|(_, bits)| Some(*bits) == most).map(|(group, _)| group.name.clone()).collect()
    }

    /// The schema with this group of addresses added or replaced.
    pub fn with_cidr_group(mut self, group: CidrGroup) -> Self {
        self.cidr_groups.insert(group.name.clone(), Arc::new(group));
        self
    }

    /// The schema without this group of addresses.
    pub fn without_cidr_group(mut self, name: &str) -> Self {
        self.cidr_groups.remove(name);
        self
    }

    /// All service levels but the default one, in name order.
    pub fn service_levels(&self) -> impl Iterator<Item = &Arc<ServiceLevel>> {
        self.service_levels.values()
    }

    /// A service level by name.
    pub fn service_level(&self, name: &str) -> Option<&Arc<ServiceLevel>> {
        self.service_levels.get(name)
    }

    /// The schema with this service level added or replaced.
    pub fn with_service_level(mut self, level: ServiceLevel) -> Self {
        self.service_levels.insert(level.name.clone(), Arc::new(level));
        self
    }

    /// The schema without this service level.
    pub fn without_service_level(mut self, name: &str) -> Self {
        self.service_levels.remove(name);
        self
    }

    /// The generations of streams of changes, the oldest first. There are some if a table has ever captured its changes.
    pub fn cdc_generations(&self) -> &[Arc<CdcGeneration>] {
        &self.cdc_generations
    }

    /// The schema with a further generation of streams. The oldest ones are forgotten when there are too many: one cannot be written
    /// to any more when the second next begins.
    ///
    /// # Panics
    /// When it has no ranges.
    pub fn with_cdc_generation(mut self, generation: CdcGeneration) -> Self {
        assert!(!generation.vnodes.is_empty(), "a ring has tokens");
        self.cdc_generations.push(Arc::new(generation));
        self.cdc_generations.sort_by_key(|generation| generation.start_millis);
        let mut ranges = 0;
        let kept = self.cdc_generations.iter().rev().enumerate().take_while(|(at, generation)| {
            ranges += generation.vnodes.len();
            *at < CDC_GENERATIONS_MIN || (*at < CDC_GENERATIONS_MAX && ranges <= CDC_RANGES_MAX)
        });
        let kept = kept.count();
        self.cdc_generations.drain(..self.cdc_generations.len() - kept);
        self
    }

    /// The log of a table's changes.
    pub fn cdc_log_of(&self, base: &Table) -> Option<&Arc<Table>> {
        let log = self.table(&base.keyspace, &format!("{}{CDC_LOG_SUFFIX}", base.name))?;
        (log.is_cdc_log() && log.is_derived_from(base.id)).then_some(log)
    }

    fn unlink_tables(&mut self, keyspace: &str) {
        if let Some(old) = self.keyspaces.get(keyspace) {
            for table in old.tables.values() {
                self.tables.remove(&table.id);
            }
        }
    }
}
