//! The tree of a CQL type, its CQL name, and the questions that schema and storage ask about it.

use std::fmt;
use std::sync::Arc;

/// Whether a class is Cassandra's type of no value, which compact tables of old use.
fn is_empty_type(class: &str) -> bool {
    class == "EmptyType" || class.ends_with(".EmptyType")
}

/// A CQL data type. Collections and user-defined types carry whether they are frozen, because a frozen one is a
/// single cell and a non-frozen one is a cell per element.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CqlType {
    /// US-ASCII string.
    Ascii,
    /// 64-bit signed integer.
    Bigint,
    /// Arbitrary bytes.
    Blob,
    /// True or false.
    Boolean,
    /// 64-bit counter; only as a whole column.
    Counter,
    /// Days since the epoch, stored plus 2^31.
    Date,
    /// Decimal of any precision: 4-byte scale and a two's complement unscaled value.
    Decimal,
    /// IEEE-754 64-bit float.
    Double,
    /// Months, days and nanoseconds, each a signed vint.
    Duration,
    /// IEEE-754 32-bit float.
    Float,
    /// IPv4 or IPv6 address.
    Inet,
    /// 32-bit signed integer.
    Int,
    /// 16-bit signed integer.
    Smallint,
    /// UTF-8 string; `varchar` is the same type.
    Text,
    /// Nanoseconds since midnight.
    Time,
    /// Milliseconds since the epoch.
    Timestamp,
    /// Version 1 UUID, ordered by time.
    Timeuuid,
    /// 8-bit signed integer.
    Tinyint,
    /// Any UUID.
    Uuid,
    /// Integer of any size.
    Varint,
    /// Ordered sequence.
    List {
        /// The type of the elements.
        element: Arc<CqlType>,
        /// Whether the list is one cell.
        frozen: bool,
    },
    /// Sorted elements without duplicates.
    Set {
        /// The type of the elements.
        element: Arc<CqlType>,
        /// Whether the set is one cell.
        frozen: bool,
    },
    /// Sorted keys with a value each.
    Map {
        /// The type of the keys.
        key: Arc<CqlType>,
        /// The type of the values.
        value: Arc<CqlType>,
        /// Whether the map is one cell.
        frozen: bool,
    },
    /// A fixed number of fields by position; always frozen.
    Tuple(Arc<[CqlType]>),
    /// User-defined type.
    Udt {
        /// Its definition.
        ty: Arc<UserType>,
        /// Whether a value is one cell.
        frozen: bool,
    },
    /// A fixed number of elements of one type.
    Vector {
        /// The type of the elements.
        element: Arc<CqlType>,
        /// The number of elements, 1 or more.
        dimension: u32,
    },
    /// A class that only a file or an old schema names: ordered as bytes, shown as a blob.
    Custom(Arc<str>),
}

/// The definition of a user-defined type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct UserType {
    /// The keyspace that owns it.
    pub keyspace: String,
    /// Its name, as stored (not quoted).
    pub name: String,
    /// Field names (not quoted) and types, in order.
    pub fields: Vec<(String, CqlType)>,
}

impl UserType {
    /// The position of a field, by its exact name.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(field, _)| field == name)
    }
}

impl CqlType {
    /// A list.
    pub fn list(element: CqlType, frozen: bool) -> CqlType {
        CqlType::List { element: Arc::new(element), frozen }
    }

    /// A set.
    pub fn set(element: CqlType, frozen: bool) -> CqlType {
        CqlType::Set { element: Arc::new(element), frozen }
    }

    /// A map.
    pub fn map(key: CqlType, value: CqlType, frozen: bool) -> CqlType {
        CqlType::Map { key: Arc::new(key), value: Arc::new(value), frozen }
    }

    /// A tuple.
    pub fn tuple(fields: impl IntoIterator<Item = CqlType>) -> CqlType {
        CqlType::Tuple(fields.into_iter().collect())
    }

    /// A vector.
    pub fn vector(element: CqlType, dimension: u32) -> CqlType {
        CqlType::Vector { element: Arc::new(element), dimension }
    }

    /// A native type by its CQL name in any case (`varchar` is `text`).
    pub fn from_native_name(name: &str) -> Option<CqlType> {
        let lower = name.to_ascii_lowercase();
        Some(match lower.as_str() {
            "ascii" => CqlType::Ascii,
            "bigint" => CqlType::Bigint,
            "blob" => CqlType::Blob,
            "boolean" => CqlType::Boolean,
            "counter" => CqlType::Counter,
            "date" => CqlType::Date,
            "decimal" => CqlType::Decimal,
            "double" => CqlType::Double,
            "duration" => CqlType::Duration,
            "float" => CqlType::Float,
            "inet" => CqlType::Inet,
            "int" => CqlType::Int,
            "smallint" => CqlType::Smallint,
            "text" | "varchar" => CqlType::Text,
            "time" => CqlType::Time,
            "timestamp" => CqlType::Timestamp,
            "timeuuid" => CqlType::Timeuuid,
            "tinyint" => CqlType::Tinyint,
            "uuid" => CqlType::Uuid,
            "varint" => CqlType::Varint,
            _ => return None,
        })
    }

    /// Whether a column of the type is stored as a cell per element: a non-frozen collection or user type.
    pub fn is_multi_cell(&self) -> bool {
        match self {
            CqlType::List { frozen, .. }
            | CqlType::Set { frozen, .. }
            | CqlType::Map { frozen, .. }
            | CqlType::Udt { frozen, .. } => !frozen,
            _ => false,
        }
    }

    /// Whether it is a list, set or map, frozen or not.
    pub fn is_collection(&self) -> bool {
        matches!(self, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. })
    }

    /// Whether it is a frozen list, set or map.
    pub fn is_frozen_collection(&self) -> bool {
        self.is_collection() && !self.is_multi_cell()
    }

    /// Whether it is the counter type.
    pub fn is_counter(&self) -> bool {
        matches!(self, CqlType::Counter)
    }

    /// Whether it is a user-defined type, frozen or not.
    pub fn is_udt(&self) -> bool {
        matches!(self, CqlType::Udt { .. })
    }

    /// Whether it is a tuple.
    pub fn is_tuple(&self) -> bool {
        matches!(self, CqlType::Tuple(_))
    }

    /// Whether it is a number that arithmetic accepts.
    pub fn is_numeric(&self) -> bool {
        use CqlType::*;
        matches!(self, Tinyint | Smallint | Int | Bigint | Counter | Varint | Float | Double | Decimal)
    }

    /// Whether values of the type can have no order that clustering keys could use.
    pub fn is_or_contains_duration(&self) -> bool {
        self.any(&mut |ty| matches!(ty, CqlType::Duration))
    }

    /// Whether it or a part of it is a counter.
    pub fn is_or_contains_counter(&self) -> bool {
        self.any(&mut |ty| matches!(ty, CqlType::Counter))
    }

    /// Whether it or a part of it is the user type of that keyspace and name.
    pub fn references_udt(&self, keyspace: &str, name: &str) -> bool {
        self.any(&mut |ty| match ty {
            CqlType::Udt { ty, .. } => ty.keyspace == keyspace && ty.name == name,
            _ => false,
        })
    }

    /// Whether the type or any type inside it satisfies `test`.
    pub fn any(&self, test: &mut dyn FnMut(&CqlType) -> bool) -> bool {
        if test(self) {
            return true;
        }
        match self {
            CqlType::List { element, .. }
            | CqlType::Set { element, .. }
            | CqlType::Vector { element, .. } => element.any(test),
            CqlType::Map { key, value, .. } => key.any(test) || value.any(test),
            CqlType::Tuple(fields) => fields.iter().any(|field| field.any(test)),
            CqlType::Udt { ty, .. } => ty.fields.iter().any(|(_, field)| field.any(test)),
            _ => false,
        }
    }

    /// The frozen form, frozen through and through (as `frozen<…>` in CQL means it).
    pub fn freeze(&self) -> CqlType {
        match self {
            CqlType::List { element, .. } => CqlType::list(element.freeze(), true),
            CqlType::Set { element, .. } => CqlType::set(element.freeze(), true),
            CqlType::Map { key, value, .. } => CqlType::map(key.freeze(), value.freeze(), true),
            CqlType::Tuple(fields) => CqlType::tuple(fields.iter().map(CqlType::freeze)),
            CqlType::Udt { ty, .. } => CqlType::Udt { ty: Arc::new(freeze_fields(ty)), frozen: true },
            CqlType::Vector { element, dimension } => CqlType::vector(element.freeze(), *dimension),
            simple => simple.clone(),
        }
    }

    /// The type with every use of the user type of `new`'s keyspace and name replaced by `new`; `None` when the
    /// type does not use it.
    pub fn with_updated_udt(&self, new: &Arc<UserType>) -> Option<CqlType> {
        if !self.references_udt(&new.keyspace, &new.name) {
            return None;
        }
        let update = |ty: &CqlType| ty.with_updated_udt(new).unwrap_or_else(|| ty.clone());
        Some(match self {
            CqlType::List { element, frozen } => CqlType::list(update(element), *frozen),
            CqlType::Set { element, frozen } => CqlType::set(update(element), *frozen),
            CqlType::Map { key, value, frozen } => CqlType::map(update(key), update(value), *frozen),
            CqlType::Tuple(fields) => CqlType::tuple(fields.iter().map(update)),
            CqlType::Vector { element, dimension } => CqlType::vector(update(element), *dimension),
            CqlType::Udt { ty, frozen } if ty.keyspace == new.keyspace && ty.name == new.name => {
                let ty = if *frozen { Arc::new(freeze_fields(new)) } else { new.clone() };
                CqlType::Udt { ty, frozen: *frozen }
            }
            CqlType::Udt { ty, frozen } => {
                let fields = ty.fields.iter().map(|(name, field)| (name.clone(), update(field))).collect();
                let ty = UserType { keyspace: ty.keyspace.clone(), name: ty.name.clone(), fields };
                CqlType::Udt { ty: Arc::new(ty), frozen: *frozen }
            }
            simple => simple.clone(),
        })
    }

    /// The serialised length when all non-empty values have the same one: SSTables then leave out the length
    /// of a value. `None` for types whose values are stored with a length, `tinyint`, `smallint`, `date` and `time`
    /// included, as in Cassandra.
    pub fn fixed_len(&self) -> Option<usize> {
        match self {
            CqlType::Boolean => Some(1),
            CqlType::Float | CqlType::Int => Some(4),
            CqlType::Bigint | CqlType::Double | CqlType::Timestamp => Some(8),
            CqlType::Timeuuid | CqlType::Uuid => Some(16),
            CqlType::Custom(class) if is_empty_type(class) => Some(0),
            CqlType::Vector { element, dimension } => {
                element.fixed_len().and_then(|len| len.checked_mul(*dimension as usize))
            }
            _ => None,
        }
    }

    /// The name in CQL as the schema tables hold it: `frozen<list<int>>`, `vector<float, 3>`,
    /// `frozen<tuple<int, text>>`; user types by their quoted name without the keyspace.
    pub fn cql_name(&self) -> String {
        let mut out = String::new();
        self.write_cql_name(&mut out, true);
        out
    }

    /// The name in CQL without the outer `frozen<…>` of a tuple or frozen type.
    pub fn cql_name_unfrozen(&self) -> String {
        let mut out = String::new();
        self.write_cql_name(&mut out, false);
        out
    }

    fn write_cql_name(&self, out: &mut String, with_frozen: bool) {
        let frozen = match self {
            CqlType::Tuple(_) => true,
            CqlType::List { frozen, .. }
            | CqlType::Set { frozen, .. }
            | CqlType::Map { frozen, .. }
            | CqlType::Udt { frozen, .. } => *frozen,
            _ => false,
        };
        if frozen && with_frozen {
            out.push_str("frozen<");
        }
        match self {
            CqlType::List { element, .. } => write_parameters(out, "list", [&**element]),
            CqlType::Set { element, .. } => write_parameters(out, "set", [&**element]),
            CqlType::Map { key, value, .. } => write_parameters(out, "map", [&**key, &**value]),
            CqlType::Tuple(fields) => write_parameters(out, "tuple", fields.iter()),
            CqlType::Udt { ty, .. } => out.push_str(&quote_type_name(&ty.name)),
            CqlType::Vector { element, dimension } => {
                out.push_str("vector<");
                element.write_cql_name(out, true);
                out.push_str(&format!(", {dimension}>"));
            }
            CqlType::Custom(class) if is_empty_type(class) => out.push_str("empty"),
            CqlType::Custom(class) => {
                out.push('\'');
                out.push_str(class);
                out.push('\'');
            }
            native => out.push_str(native.native_name().unwrap_or_default()),
        }
        if frozen && with_frozen {
            out.push('>');
        }
    }

    /// The CQL name of a native type, `None` for others.
    pub fn native_name(&self) -> Option<&'static str> {
        Some(match self {
            CqlType::Ascii => "ascii",
            CqlType::Bigint => "bigint",
            CqlType::Blob => "blob",
            CqlType::Boolean => "boolean",
            CqlType::Counter => "counter",
            CqlType::Date => "date",
            CqlType::Decimal => "decimal",
            CqlType::Double => "double",
            CqlType::Duration => "duration",
            CqlType::Float => "float",
            CqlType::Inet => "inet",
            CqlType::Int => "int",
            CqlType::Smallint => "smallint",
            CqlType::Text => "text",
            CqlType::Time => "time",
            CqlType::Timestamp => "timestamp",
            CqlType::Timeuuid => "timeuuid",
            CqlType::Tinyint => "tinyint",
            CqlType::Uuid => "uuid",
            CqlType::Varint => "varint",
            _ => return None,
        })
    }
}

impl fmt::Display for CqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cql_name())
    }
}

fn write_parameters<'a>(out: &mut String, name: &str, parameters: impl IntoIterator<Item = &'a CqlType>) {
    out.push_str(name);
    for (i, parameter) in parameters.into_iter().enumerate() {
        out.push_str(if i == 0 { "<" } else { ", " });
        parameter.write_cql_name(out, true);
    }
    out.push('>');
}

fn freeze_fields(ty: &UserType) -> UserType {
    let fields = ty.fields.iter().map(|(name, field)| (name.clone(), field.freeze())).collect();
    UserType { keyspace: ty.keyspace.clone(), name: ty.name.clone(), fields }
}

/// An identifier as CQL text: bare when it is lower case and no reserved word, else in double quotes.
pub fn quote_identifier(name: &str) -> String {
    let bare = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !is_reserved_word(name);
    if bare { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The name of a user-defined type as CQL text: in double quotes also where it is a word that no type may have for its bare name.
pub fn quote_type_name(name: &str) -> String {
    // Native types, and words with call syntax of their own.
    const SPECIAL: [&str; 7] = ["cast", "count", "distinct", "json", "maxwritetime", "ttl", "writetime"];
    match CqlType::from_native_name(name).is_some() || SPECIAL.contains(&name) {
        true => format!("\"{name}\""),
        false => quote_identifier(name),
    }
}

/// Whether a lower-case word is reserved by CQL, or a constant, and so must be quoted to be a name.
pub fn is_reserved_word(word: &str) -> bool {
    const RESERVED: &[&str] = &[
        "add",
        "allow",
        "alter",
        "and",
        "apply",
        "asc",
        "authorize",
        "batch",
        "begin",
        "by",
        "columnfamily",
        "create",
        "delete",
        "desc",
        "describe",
        "drop",
        "entries",
        "execute",
        "false",
        "from",
        "full",
        "grant",
        "if",
        "in",
        "index",
        "infinity",
        "insert",
        "into",
        "is",
        "keyspace",
        "limit",
        "materialized",
        "modify",
        "nan",
        "norecursive",
        "not",
        "null",
        "of",
        "on",
        "or",
        "order",
        "primary",
        "rename",
        "revoke",
        "schema",
        "select",
        "set",
        "table",
        "to",
        "token",
        "true",
        "truncate",
        "unlogged",
        "update",
        "use",
        "using",
        "view",
        "where",
        "with",
    ];
    RESERVED.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_are_found_and_quoted() {
        for word in ["add", "nan", "schema", "with", "set", "true", "false"] {
            assert_eq!(quote_identifier(word), format!("\"{word}\""));
        }
        for word in ["a", "key", "type", "default", "x_1"] {
            assert_eq!(quote_identifier(word), word);
        }
        assert_eq!(quote_identifier("A\"b"), "\"A\"\"b\"");
        assert_eq!(quote_identifier("1a"), "\"1a\"");
    }

    #[test]
    fn user_types_are_replaced_where_they_are_used() {
        let old =
            UserType { keyspace: "k".into(), name: "t".into(), fields: vec![("a".into(), CqlType::Int)] };
        let list =
            |ty: &UserType| CqlType::list(CqlType::Udt { ty: Arc::new(ty.clone()), frozen: true }, false);
        let mut new = old.clone();
        new.fields.push(("b".into(), CqlType::Text));
        assert_eq!(list(&old).with_updated_udt(&Arc::new(new.clone())), Some(list(&new)));
        assert_eq!(CqlType::Int.with_updated_udt(&Arc::new(new)), None);
        assert!(list(&old).references_udt("k", "t") && !list(&old).references_udt("k", "u"));
    }
}
