//! Service levels: ScyllaDB's named shares and timeouts of roles.

use super::{Ident, Property, RoleName};

/// `CREATE SERVICE LEVEL`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateServiceLevel {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The level.
    pub name: Ident,
    /// `WITH shares = … AND timeout = … AND workload_type = …`; may be empty.
    pub properties: Vec<Property>,
}

/// `ALTER SERVICE LEVEL`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterServiceLevel {
    /// The level.
    pub name: Ident,
    /// `WITH`, not empty.
    pub properties: Vec<Property>,
}

/// `DROP SERVICE LEVEL`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropServiceLevel {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The level.
    pub name: Ident,
}

/// `ATTACH SERVICE LEVEL level TO role`.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachServiceLevel {
    /// The level.
    pub name: Ident,
    /// The role.
    pub role: RoleName,
}

/// `DETACH SERVICE LEVEL FROM role`.
#[derive(Clone, Debug, PartialEq)]
pub struct DetachServiceLevel {
    /// The role.
    pub role: RoleName,
}

/// `LIST …` about service levels.
#[derive(Clone, Debug, PartialEq)]
pub enum ListServiceLevels {
    /// `LIST SERVICE LEVEL level`.
    One(Ident),
    /// `LIST ALL SERVICE LEVELS`.
    All,
    /// `LIST ATTACHED SERVICE LEVEL OF role`.
    AttachedTo(RoleName),
    /// `LIST ALL ATTACHED SERVICE LEVELS`.
    AllAttached,
    /// `LIST EFFECTIVE SERVICE LEVEL OF role`.
    EffectiveOf(RoleName),
}
