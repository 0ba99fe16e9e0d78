//! Statements about roles, users, permissions and identities.

use super::{Constant, DataType, Ident, Pos, QualifiedName};

/// The name of a role: in lower case unless it was quoted either way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleName {
    /// The name.
    pub name: String,
    /// Where it stands.
    pub pos: Pos,
}

impl RoleName {
    /// A name without a position.
    pub fn new(name: impl Into<String>) -> RoleName {
        RoleName { name: name.into(), pos: Pos::default() }
    }
}

/// `CREATE ROLE`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateRole {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The role.
    pub name: RoleName,
    /// `WITH`. No kind of option appears twice, and at most one kind of password.
    pub options: Vec<RoleOption>,
}

/// `ALTER ROLE`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterRole {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The role.
    pub name: RoleName,
    /// `WITH`. No kind of option appears twice, and at most one kind of password.
    pub options: Vec<RoleOption>,
}

/// One option of a role.
#[derive(Clone, Debug, PartialEq)]
pub enum RoleOption {
    /// `PASSWORD = '…'`, `HASHED PASSWORD = '…'` or `GENERATED PASSWORD`.
    Password(Password),
    /// `SUPERUSER = …`.
    Superuser(bool),
    /// `LOGIN = …`.
    Login(bool),
    /// `OPTIONS = {…}`.
    Options(Vec<(Constant, Constant)>),
    /// `ACCESS TO DATACENTERS {…}`; none for `ACCESS TO ALL DATACENTERS`.
    Datacenters(Option<Vec<String>>),
    /// `ACCESS FROM CIDRS {…}` (names of CIDR groups); none for `ACCESS FROM ALL CIDRS`.
    Cidrs(Option<Vec<String>>),
}

/// How a password is given.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// In plain text.
    Plain(String),
    /// As a hash of the server's own kind.
    Hashed(String),
    /// The server makes one (Cassandra 5.1).
    Generated,
}

impl std::fmt::Debug for Password {
    /// Never shows the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Password::Plain(_) => "Plain(***)",
            Password::Hashed(_) => "Hashed(***)",
            Password::Generated => "Generated",
        })
    }
}

/// `DROP ROLE`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropRole {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The role.
    pub name: RoleName,
}

/// `CREATE USER`: a role that may log in.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateUser {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The role. Its case is kept even without quotes, as Cassandra does for users.
    pub name: RoleName,
    /// `WITH [HASHED|GENERATED] PASSWORD`.
    pub password: Option<Password>,
    /// `SUPERUSER`; false for `NOSUPERUSER` and without either.
    pub superuser: bool,
}

/// `ALTER USER`.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterUser {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The role; see [`CreateUser::name`].
    pub name: RoleName,
    /// `WITH [HASHED|GENERATED] PASSWORD`.
    pub password: Option<Password>,
    /// `SUPERUSER` or `NOSUPERUSER`.
    pub superuser: Option<bool>,
}

/// `DROP USER`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropUser {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The role; see [`CreateUser::name`].
    pub name: RoleName,
}

/// `GRANT role TO grantee`.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantRole {
    /// The role that is given.
    pub role: RoleName,
    /// The receiver.
    pub grantee: RoleName,
}

/// `REVOKE role FROM grantee`.
#[derive(Clone, Debug, PartialEq)]
pub struct RevokeRole {
    /// The role that is taken.
    pub role: RoleName,
    /// The leaving replica.
    pub grantee: RoleName,
}

/// `GRANT permissions ON resource TO grantee`.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantPermissions {
    /// The permissions.
    pub permissions: Permissions,
    /// The resource.
    pub resource: Resource,
    /// The receivers.
    pub grantee: RoleName,
}

/// `REVOKE permissions ON resource FROM grantee`.
#[derive(Clone, Debug, PartialEq)]
pub struct RevokePermissions {
    /// The permissions.
    pub permissions: Permissions,
    /// The resource.
    pub resource: Resource,
    /// The leaving replica.
    pub grantee: RoleName,
}

/// `LIST permissions [ON resource] [OF role] [NORECURSIVE]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPermissions {
    /// The permissions.
    pub permissions: Permissions,
    /// The resource; everything when absent.
    pub resource: Option<Resource>,
    /// The owner; everybody's when absent.
    pub of: Option<RoleName>,
    /// False for `NORECURSIVE`: inherited ones are left out.
    pub recursive: bool,
}

/// The permissions that a statement names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permissions {
    /// `ALL [PERMISSIONS]`.
    All,
    /// One or more, as written.
    List(Vec<Permission>),
}

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are CQL's own")]
pub enum Permission {
    Create,
    Alter,
    Drop,
    Select,
    Modify,
    Authorize,
    Describe,
    Execute,
    Unmask,
    SelectMasked,
}

impl Permission {
    /// Every permission.
    pub const ALL: [Permission; 10] = [
        Permission::Create,
        Permission::Alter,
        Permission::Drop,
        Permission::Select,
        Permission::Modify,
        Permission::Authorize,
        Permission::Describe,
        Permission::Execute,
        Permission::Unmask,
        Permission::SelectMasked,
    ];

    /// The name in CQL.
    pub fn name(self) -> &'static str {
        match self {
            Permission::Create => "CREATE",
            Permission::Alter => "ALTER",
            Permission::Drop => "DROP",
            Permission::Select => "SELECT",
            Permission::Modify => "MODIFY",
            Permission::Authorize => "AUTHORIZE",
            Permission::Describe => "DESCRIBE",
            Permission::Execute => "EXECUTE",
            Permission::Unmask => "UNMASK",
            Permission::SelectMasked => "SELECT_MASKED",
        }
    }
}

/// The resource of a permission.
#[derive(Clone, Debug, PartialEq)]
pub enum Resource {
    /// `ALL KEYSPACES`.
    AllKeyspaces,
    /// `KEYSPACE ks`.
    Keyspace(Ident),
    /// `ALL TABLES IN KEYSPACE ks`.
    AllTables(Ident),
    /// `[TABLE] t`.
    Table(QualifiedName),
    /// `ALL ROLES`.
    AllRoles,
    /// `ROLE r`.
    Role(RoleName),
    /// `ALL FUNCTIONS`.
    AllFunctions,
    /// `ALL FUNCTIONS IN KEYSPACE ks`.
    AllFunctionsIn(Ident),
    /// `FUNCTION f(types…)`.
    Function(QualifiedName, Vec<DataType>),
    /// `ALL MBEANS`.
    AllMbeans,
    /// `MBEAN 'name'`.
    Mbean(String),
    /// `MBEANS 'pattern'`.
    Mbeans(String),
}

/// `LIST ROLES [OF role] [NORECURSIVE]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ListRoles {
    /// The owner; all when absent.
    pub of: Option<RoleName>,
    /// False for `NORECURSIVE`.
    pub recursive: bool,
}

/// `ADD IDENTITY identity TO ROLE role`.
#[derive(Clone, Debug, PartialEq)]
pub struct AddIdentity {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The identity, such as a SPIFFE name of a certificate.
    pub identity: String,
    /// The role, case kept.
    pub role: String,
}

/// `DROP IDENTITY identity`.
#[derive(Clone, Debug, PartialEq)]
pub struct DropIdentity {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The identity.
    pub identity: String,
}
