//! Roles, permissions and passwords, as far as they can be decided without a statement or a connection.
//!
//! Pure over the schema, which holds roles and their grants (docs/design/auth.md): the roles of a role ([`roles`]), the
//! resources and their parents ([`Resource`]), the permissions of a role there ([`AccessCache`]). Passwords are hashed in slices
//! between which other tasks run ([`password`]), and addresses that guess are locked out ([`Lockout`]).

mod access;
mod certificate;
mod lockout;
pub mod password;
mod permission;
mod resource;
pub mod roles;

pub use access::{AccessCache, RoleAccess};
pub use certificate::RoleQueries;
pub use lockout::{Lockout, LockoutLimits};
pub use permission::{Permission, PermissionSet};
pub use resource::{Resource, is_system_keyspace};
