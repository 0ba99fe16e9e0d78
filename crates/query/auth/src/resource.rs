//! Resources: the objects of permissions, with Cassandra's names, texts and hierarchy.

use std::fmt;

use schema::{Schema, Table, UserAggregate, UserFunction};
use types::CqlType;

use crate::{Permission, PermissionSet};

/// The object of a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// All keyspaces.
    Data,
    /// A keyspace.
    Keyspace(String),
    /// All tables of a keyspace.
    AllTables(String),
    /// A table or view.
    Table {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        name: String,
    },
    /// All roles.
    Roles,
    /// A role.
    Role(String),
    /// All functions.
    Functions,
    /// All functions of a keyspace.
    FunctionsIn(String),
    /// A function or aggregate.
    Function {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        name: String,
        /// Types of its arguments.
        arguments: Vec<CqlType>,
    },
}

/// Keyspaces of the server, to whose tables a permission on all keyspaces does not extend: some hold the hashes of all roles.
const SYSTEM_KEYSPACES: [&str; 7] = [
    "system",
    "system_auth",
    "system_distributed",
    "system_schema",
    "system_traces",
    "system_views",
    "system_virtual_schema",
];

/// Whether a keyspace is one of the server's.
pub fn is_system_keyspace(keyspace: &str) -> bool {
    SYSTEM_KEYSPACES.contains(&keyspace)
}

use Permission::{Alter, Authorize, Create, Describe, Drop, Execute, Modify, Select, SelectMasked, Unmask};

impl Resource {
    /// The resource of a table.
    pub fn table(table: &Table) -> Self {
        Self::Table { keyspace: table.keyspace.clone(), name: table.name.clone() }
    }

    /// The name under which grants hold it (`data/ks/t`).
    pub fn name(&self) -> String {
        match self {
            Self::Data => "data".to_owned(),
            Self::Keyspace(keyspace) => format!("data/{keyspace}"),
            Self::AllTables(keyspace) => format!("data/{keyspace}/*"),
            Self::Table { keyspace, name } => format!("data/{keyspace}/{name}"),
            Self::Roles => "roles".to_owned(),
            Self::Role(role) => format!("roles/{role}"),
            Self::Functions => "functions".to_owned(),
            Self::FunctionsIn(keyspace) => format!("functions/{keyspace}"),
            Self::Function { keyspace, name, arguments } => {
                let classes: Vec<String> = arguments.iter().map(|ty| ty.class_name(false)).collect();
                format!("functions/{keyspace}/{name}[{}]", classes.join("^"))
            }
        }
    }

    /// That of a user-defined function.
    pub fn of_function(function: &UserFunction) -> Self {
        Self::Function {
            keyspace: function.keyspace.clone(),
            name: function.name.clone(),
            arguments: function.argument_types().cloned().collect(),
        }
    }

    /// That of a user-defined aggregate.
    pub fn of_aggregate(aggregate: &UserAggregate) -> Self {
        Self::Function {
            keyspace: aggregate.keyspace.clone(),
            name: aggregate.name.clone(),
            arguments: aggregate.arguments.clone(),
        }
    }

    /// The resource of this name; none for a name of a kind that this version does not know.
    pub fn from_name(text: &str) -> Option<Self> {
        let (kind, rest) = match text.split_once('/') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        Some(match (kind, rest) {
            ("data", None) => Self::Data,
            ("data", Some(rest)) => match rest.split_once('/') {
                None => Self::Keyspace(rest.to_owned()),
                Some((keyspace, "*")) => Self::AllTables(keyspace.to_owned()),
                Some((keyspace, name)) => {
                    Self::Table { keyspace: keyspace.to_owned(), name: name.to_owned() }
                }
            },
            ("roles", None) => Self::Roles,
            ("roles", Some(role)) => Self::Role(role.to_owned()),
            ("functions", None) => Self::Functions,
            ("functions", Some(rest)) => match rest.split_once('/') {
                None => Self::FunctionsIn(rest.to_owned()),
                Some((keyspace, function)) => {
                    let (name, classes) = function.strip_suffix(']')?.split_once('[')?;
                    let classes = classes.split('^').filter(|class| !class.is_empty());
                    let types = classes.map(|class| CqlType::parse_class_name(class).map(|(ty, _)| ty));
                    let arguments = types.collect::<Result<_, _>>().ok()?;
                    Self::Function { keyspace: keyspace.to_owned(), name: name.to_owned(), arguments }
                }
            },
            _ => return None,
        })
    }

    /// The resource whose permissions hold here, too; none for a keyspace of the server.
    pub fn parent(&self) -> Option<Self> {
        match self {
            Self::Data | Self::Roles | Self::Functions => None,
            Self::Keyspace(keyspace) => (!is_system_keyspace(keyspace)).then_some(Self::Data),
            Self::AllTables(keyspace) => Some(Self::Keyspace(keyspace.clone())),
            Self::Table { keyspace, .. } => Some(Self::AllTables(keyspace.clone())),
            Self::Role(_) => Some(Self::Roles),
            Self::FunctionsIn(_) => Some(Self::Functions),
            Self::Function { keyspace, .. } => Some(Self::FunctionsIn(keyspace.clone())),
        }
    }

    /// The server's keyspace that it lies in, itself included; functions lie in none.
    pub fn system_keyspace(&self) -> Option<&str> {
        match self {
            Self::Keyspace(keyspace) | Self::AllTables(keyspace) | Self::Table { keyspace, .. } => {
                Some(keyspace.as_str()).filter(|keyspace| is_system_keyspace(keyspace))
            }
            _ => None,
        }
    }

    /// It and its parents, itself first.
    pub fn chain(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }

    /// The permissions that have a meaning here.
    pub fn applicable(&self) -> PermissionSet {
        const TABLE: PermissionSet =
            PermissionSet::of(&[Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked]);
        const ROLE: PermissionSet = PermissionSet::of(&[Alter, Drop, Authorize, Describe]);
        const FUNCTION: PermissionSet = PermissionSet::of(&[Alter, Drop, Authorize, Execute]);
        const CREATION: PermissionSet = PermissionSet::of(&[Create]);
        match self {
            Self::Data | Self::Keyspace(_) | Self::AllTables(_) => TABLE.with(CREATION),
            Self::Table { .. } => TABLE,
            Self::Roles => ROLE.with(CREATION),
            Self::Role(_) => ROLE,
            Self::Functions | Self::FunctionsIn(_) => FUNCTION.with(CREATION),
            Self::Function { .. } => FUNCTION,
        }
    }

    /// The name of its kind in errors: Cassandra's class.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Data | Self::Keyspace(_) | Self::AllTables(_) | Self::Table { .. } => "DataResource",
            Self::Roles | Self::Role(_) => "RoleResource",
            Self::Functions | Self::FunctionsIn(_) | Self::Function { .. } => "FunctionResource",
        }
    }

    /// Whether it is in the schema.
    pub fn exists(&self, schema: &Schema) -> bool {
        match self {
            Self::Data | Self::Roles | Self::Functions => true,
            Self::Keyspace(keyspace) | Self::AllTables(keyspace) | Self::FunctionsIn(keyspace) => {
                schema.keyspace(keyspace).is_some()
            }
            Self::Table { keyspace, name } => schema.table(keyspace, name).is_some(),
            Self::Role(role) => schema.role(role).is_some(),
            Self::Function { keyspace, name, arguments } => {
                let signature = schema::Signature::new(name.as_str(), arguments);
                schema.keyspace(keyspace).is_some_and(|keyspace| {
                    keyspace.functions.contains_key(&signature)
                        || keyspace.aggregates.contains_key(&signature)
                })
            }
        }
    }

    /// The resource as GRANT names it, with quotation marks where names need them.
    pub fn in_cql(&self) -> String {
        let quote = types::quote_identifier;
        match self {
            Self::Data => "ALL KEYSPACES".to_owned(),
            Self::Keyspace(keyspace) => format!("KEYSPACE {}", quote(keyspace)),
            Self::AllTables(keyspace) => format!("ALL TABLES IN KEYSPACE {}", quote(keyspace)),
            Self::Table { keyspace, name } => format!("TABLE {}.{}", quote(keyspace), quote(name)),
            Self::Roles => "ALL ROLES".to_owned(),
            Self::Role(role) => format!("ROLE {}", quote(role)),
            Self::Functions => "ALL FUNCTIONS".to_owned(),
            Self::FunctionsIn(keyspace) => format!("ALL FUNCTIONS IN KEYSPACE {}", quote(keyspace)),
            Self::Function { keyspace, name, arguments } => {
                let types: Vec<String> = arguments.iter().map(CqlType::cql_name_unfrozen).collect();
                format!("FUNCTION {}.{}({})", quote(keyspace), quote(name), types.join(", "))
            }
        }
    }
}

/// The text of Cassandra's errors and of LIST PERMISSIONS.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data => f.write_str("<all keyspaces>"),
            Self::Keyspace(keyspace) => write!(f, "<keyspace {keyspace}>"),
            Self::AllTables(keyspace) => write!(f, "<all tables in {keyspace}>"),
            Self::Table { keyspace, name } => write!(f, "<table {keyspace}.{name}>"),
            Self::Roles => f.write_str("<all roles>"),
            Self::Role(role) => write!(f, "<role {role}>"),
            Self::Functions => f.write_str("<all functions>"),
            Self::FunctionsIn(keyspace) => write!(f, "<all functions in {keyspace}>"),
            Self::Function { keyspace, name, arguments } => {
                let types: Vec<String> = arguments.iter().map(CqlType::cql_name_unfrozen).collect();
                write!(f, "<function {keyspace}.{name}({})>", types.join(", "))
            }
        }
    }
}
