//! The access of roles, computed once for a schema. A schema is an immutable value, so that an entry is right for as long as the
//! schema is the same one: a change of roles or grants is a new schema, and empties the cache of every shard that uses it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use schema::{Schema, ServiceLevel, Table, TableId};
use stdx::HashMap;

use crate::{Permission, PermissionSet, Resource, roles};

/// Roles whose access is cached; more of them empty the cache.
const ROLES_MAX: usize = 4096;

/// The access of the roles of a shard's clients.
#[derive(Default)]
pub struct AccessCache {
    roles: RefCell<HashMap<Box<str>, Rc<RoleAccess>>>,
    /// The schema that the entries were computed from.
    schema: RefCell<Option<Arc<Schema>>>,
    computed: Cell<u64>,
    /// The roles of users by their groups, where a directory knows these and the schema does not.
    directory: RefCell<Option<HashMap<Box<str>, BTreeSet<String>>>>,
}

/// The access of one role.
#[derive(Debug, Default)]
pub struct RoleAccess {
    /// It and the roles that were granted to it.
    pub roles: BTreeSet<String>,
    /// Whether it may do everything.
    pub is_superuser: bool,
    /// How its requests are served.
    pub service_level: Rc<ServiceLevel>,
    /// The place of the service level that gives its shares among all of the schema, in the order of their names; none for the default.
    pub level_place: Option<usize>,
    /// Grants of all of these roles, by the resource's name.
    granted: BTreeMap<String, PermissionSet>,
    /// Its permissions on tables, those on parents included.
    tables: RefCell<HashMap<TableId, PermissionSet>>,
}

impl AccessCache {
    /// How often the access of a role was computed.
    pub fn computed(&self) -> u64 {
        self.computed.get()
    }

    /// A directory decides on the roles of a role from now on, and not the schema.
    pub fn follow_directory(&self) {
        *self.directory.borrow_mut() = Some(HashMap::default());
        self.roles.borrow_mut().clear();
    }

    /// The roles of a role by its groups in the directory; none when they are not known (any more).
    pub fn set_directory_roles(&self, role: &str, roles: Option<BTreeSet<String>>) {
        let mut directory = self.directory.borrow_mut();
        let known = directory.get_or_insert_default();
        let same = known.get(role) == roles.as_ref();
        match roles {
            Some(roles) => drop(known.insert(role.into(), roles)),
            None => drop(known.remove(role)),
        }
        if !same {
            self.roles.borrow_mut().remove(role);
        }
    }

    /// A role and its roles, as the schema or the directory has them.
    fn effective(&self, schema: &Schema, role: &str) -> BTreeSet<String> {
        let directory = self.directory.borrow();
        let Some(known) = directory.as_ref() else { return roles::effective(schema, role) };
        let of_groups = known.get(role).into_iter().flatten().map(String::as_str);
        let names = std::iter::once(role).chain(of_groups);
        names.filter(|name| schema.role(name).is_some()).map(str::to_owned).collect()
    }

    /// The access of a role under this schema: nothing, when it is not there.
    pub fn role(&self, schema: &Arc<Schema>, role: &str) -> Rc<RoleAccess> {
        self.adapt(schema);
        if let Some(known) = self.roles.borrow().get(role) {
            return known.clone();
        }
        self.computed.set(self.computed.get() + 1);
        let access = Rc::new(RoleAccess::of(schema, role, self.effective(schema, role)));
        let mut all = self.roles.borrow_mut();
        if all.len() >= ROLES_MAX {
            all.clear();
        }
        all.insert(role.into(), access.clone());
        access
    }

    /// How the requests of a role are served. Allocates nothing once it is known.
    pub fn service_level(&self, schema: &Arc<Schema>, role: &str) -> Rc<ServiceLevel> {
        self.adapt(schema);
        if let Some(known) = self.roles.borrow().get(role) {
            return known.service_level.clone();
        }
        self.role(schema, role).service_level.clone()
    }

    /// The place of the service level that gives a role's shares ([`RoleAccess::level_place`]). Allocates nothing once it is known.
    pub fn level_place(&self, schema: &Arc<Schema>, role: &str) -> Option<usize> {
        self.adapt(schema);
        if let Some(known) = self.roles.borrow().get(role) {
            return known.level_place;
        }
        self.role(schema, role).level_place
    }

    /// The permissions of a role on a table. Allocates nothing once it is known.
    pub fn on_table(&self, schema: &Arc<Schema>, role: &str, table: &Table) -> PermissionSet {
        self.adapt(schema);
        if let Some(known) = self.roles.borrow().get(role) {
            return known.on_table(table);
        }
        self.role(schema, role).on_table(table)
    }

    fn adapt(&self, schema: &Arc<Schema>) {
        let known = self.schema.borrow().as_ref().is_some_and(|known| Arc::ptr_eq(known, schema));
        if !known {
            self.roles.borrow_mut().clear();
            *self.schema.borrow_mut() = Some(schema.clone());
        }
    }
}

impl RoleAccess {
    /// The access of a role under a schema.
    pub fn new(schema: &Schema, role: &str) -> Self {
        Self::of(schema, role, roles::effective(schema, role))
    }

    fn of(schema: &Schema, role: &str, names: BTreeSet<String>) -> Self {
        let mut granted: BTreeMap<String, PermissionSet> = BTreeMap::new();
        for role in names.iter().filter_map(|name| schema.role(name)) {
            for (resource, permissions) in &role.permissions {
                let set = granted.entry(resource.clone()).or_default();
                *set = set.with(PermissionSet::from_names(permissions));
            }
        }
        let is_superuser = names.iter().filter_map(|name| schema.role(name)).any(|role| role.is_superuser);
        let effective = roles::service_level_of(schema, role, &names);
        let level_place = schema.service_levels().position(|level| level.name == effective.shares_of);
        let service_level = Rc::new(effective.level);
        let tables = RefCell::default();
        Self { roles: names, is_superuser, service_level, level_place, granted, tables }
    }

    /// Its permissions on a resource, by grants there and on its parents.
    pub fn on(&self, resource: &Resource) -> PermissionSet {
        if self.is_superuser {
            return resource.applicable();
        }
        let granted = |resource: Resource| self.granted.get(&resource.name()).copied().unwrap_or_default();
        resource.chain().map(granted).fold(PermissionSet::NONE, PermissionSet::with)
    }

    /// Whether it has a permission on a resource.
    pub fn allows(&self, permission: Permission, resource: &Resource) -> bool {
        // A superuser may do everything, whether or not it has a meaning there.
        self.is_superuser || self.on(resource).has(permission)
    }

    fn on_table(&self, table: &Table) -> PermissionSet {
        if let Some(known) = self.tables.borrow().get(&table.id) {
            return *known;
        }
        let set = self.on(&Resource::table(table));
        self.tables.borrow_mut().insert(table.id, set);
        set
    }
}
