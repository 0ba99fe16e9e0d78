//! Sets of permissions, in Cassandra's order.

pub use cql::ast::Permission;

/// A set of permissions. Iterates in Cassandra's order, in which LIST PERMISSIONS and warnings name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermissionSet(u16);

impl PermissionSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// These.
    pub const fn of(permissions: &[Permission]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < permissions.len() {
            bits |= 1 << permissions[at] as u16;
            at += 1;
        }
        Self(bits)
    }

    /// Whether it has this one.
    pub const fn has(self, permission: Permission) -> bool {
        self.0 & (1 << permission as u16) != 0
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that both have.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that `other` has not.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// All of them in order.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.has(*permission))
    }

    /// The set of these names; names that this version does not know are left out.
    pub fn from_names<'n>(names: impl IntoIterator<Item = &'n String>) -> Self {
        let named = |name: &String| Permission::ALL.into_iter().find(|one| one.name() == name);
        names.into_iter().filter_map(named).collect()
    }

    /// Names separated by commas.
    pub fn listed(self) -> String {
        self.iter().map(Permission::name).collect::<Vec<_>>().join(", ")
    }
}

impl FromIterator<Permission> for PermissionSet {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        permissions.into_iter().fold(Self::NONE, |set, one| set.with(Self::of(&[one])))
    }
}
