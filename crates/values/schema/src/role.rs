//! Roles: login, permissions, and the service levels of their requests.

use std::collections::{BTreeMap, BTreeSet};

/// A role: a user, a group of users, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Its name, case kept.
    pub name: String,
    /// Whether clients may authenticate as it.
    pub can_login: bool,
    /// Whether it may do everything.
    pub is_superuser: bool,
    /// The hash of its password with salt and method (`$2a$10$…`); none for a role without a password.
    pub salted_hash: Option<String>,
    /// Roles whose permissions it has.
    pub member_of: BTreeSet<String>,
    /// Names of permissions that were granted to it itself, by resource (`data/ks/t`).
    pub permissions: BTreeMap<String, BTreeSet<String>>,
    /// The datacenters in which clients may authenticate as it; none for all.
    pub datacenters: Option<BTreeSet<String>>,
    /// The groups of addresses from which clients may authenticate as it; without any from everywhere.
    pub cidr_groups: BTreeSet<String>,
    /// The service level that is attached to it itself.
    pub service_level: Option<String>,
    /// Identities of certificates with which clients authenticate as it; each belongs to one role.
    pub identities: BTreeSet<String>,
}

impl Role {
    /// A role that may do nothing.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}
