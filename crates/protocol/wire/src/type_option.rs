//! The types of columns as the protocol describes them: `[option]` of §4.2.5.2.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use crate::notation::{BodyReader, put_string};
use crate::{ProtocolError, Version};

/// Types nest no deeper than this in messages that a client reads.
const DEPTH_MAX: usize = 64;

/// A CQL type as a driver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeOption {
    /// A type without a code of its own, by the name of Cassandra's class: a vector is
    /// `org.apache.cassandra.db.marshal.VectorType(…)`.
    Custom(Arc<str>),
    /// `ascii`
    Ascii,
    /// `bigint`
    Bigint,
    /// `blob`
    Blob,
    /// `boolean`
    Boolean,
    /// `counter`
    Counter,
    /// `decimal`
    Decimal,
    /// `double`
    Double,
    /// `float`
    Float,
    /// `int`
    Int,
    /// `timestamp`
    Timestamp,
    /// `uuid`
    Uuid,
    /// `text`, `varchar`
    Varchar,
    /// `varint`
    Varint,
    /// `timeuuid`
    Timeuuid,
    /// `inet`
    Inet,
    /// `date`
    Date,
    /// `time`
    Time,
    /// `smallint`
    Smallint,
    /// `tinyint`
    Tinyint,
    /// `duration`
    Duration,
    /// `list<…>`
    List(Arc<TypeOption>),
    /// `map<…, …>`
    Map(Arc<(TypeOption, TypeOption)>),
    /// `set<…>`
    Set(Arc<TypeOption>),
    /// A user-defined type.
    Udt(Arc<UdtOption>),
    /// `tuple<…>`
    Tuple(Arc<[TypeOption]>),
}

/// A user-defined type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdtOption {
    /// Keyspace.
    pub keyspace: String,
    /// Name.
    pub name: String,
    /// Names and types of the fields.
    pub fields: Vec<(String, TypeOption)>,
}

/// A type that an older version has no code for travels as a class name.
const CUSTOM: u16 = 0x0000;

impl TypeOption {
    /// `list<element>`
    pub fn list(element: TypeOption) -> Self {
        Self::List(Arc::new(element))
    }

    /// `set<element>`
    pub fn set(element: TypeOption) -> Self {
        Self::Set(Arc::new(element))
    }

    /// `map<key, value>`
    pub fn map(key: TypeOption, value: TypeOption) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// `tuple<…>`
    pub fn tuple(items: impl IntoIterator<Item = TypeOption>) -> Self {
        Self::Tuple(items.into_iter().collect())
    }

    /// A user-defined type.
    pub fn udt(
        keyspace: impl Into<String>,
        name: impl Into<String>,
        fields: impl IntoIterator<Item = (String, TypeOption)>,
    ) -> Self {
        Self::Udt(Arc::new(UdtOption {
            keyspace: keyspace.into(),
            name: name.into(),
            fields: fields.into_iter().collect(),
        }))
    }

    /// A type by the name of its class in Cassandra.
    pub fn custom(class: &str) -> Self {
        Self::Custom(class.into())
    }

    /// `vector<element, dimensions>`, where `element` is the class of the element's type.
    pub fn vector(element_class: &str, dimensions: usize) -> Self {
        Self::Custom(
            format!("org.apache.cassandra.db.marshal.VectorType({element_class} , {dimensions})").into(),
        )
    }

    /// The id of the option, the version in which it appeared and the class that stands for it before.
    fn code(&self) -> (u16, Version, &str) {
        const CLASS: [&str; 5] = [
            "org.apache.cassandra.db.marshal.SimpleDateType",
            "org.apache.cassandra.db.marshal.TimeType",
            "org.apache.cassandra.db.marshal.ShortType",
            "org.apache.cassandra.db.marshal.ByteType",
            "org.apache.cassandra.db.marshal.DurationType",
        ];
        match self {
            Self::Custom(class) => (CUSTOM, Version::V3, class),
            Self::Ascii => (0x0001, Version::V3, ""),
            Self::Bigint => (0x0002, Version::V3, ""),
            Self::Blob => (0x0003, Version::V3, ""),
            Self::Boolean => (0x0004, Version::V3, ""),
            Self::Counter => (0x0005, Version::V3, ""),
            Self::Decimal => (0x0006, Version::V3, ""),
            Self::Double => (0x0007, Version::V3, ""),
            Self::Float => (0x0008, Version::V3, ""),
            Self::Int => (0x0009, Version::V3, ""),
            Self::Timestamp => (0x000B, Version::V3, ""),
            Self::Uuid => (0x000C, Version::V3, ""),
            Self::Varchar => (0x000D, Version::V3, ""),
            Self::Varint => (0x000E, Version::V3, ""),
            Self::Timeuuid => (0x000F, Version::V3, ""),
            Self::Inet => (0x0010, Version::V3, ""),
            Self::Date => (0x0011, Version::V4, CLASS[0]),
            Self::Time => (0x0012, Version::V4, CLASS[1]),
            Self::Smallint => (0x0013, Version::V4, CLASS[2]),
            Self::Tinyint => (0x0014, Version::V4, CLASS[3]),
            Self::Duration => (0x0015, Version::V5, CLASS[4]),
            Self::List(_) => (0x0020, Version::V3, ""),
            Self::Map(_) => (0x0021, Version::V3, ""),
            Self::Set(_) => (0x0022, Version::V3, ""),
            Self::Udt(_) => (0x0030, Version::V3, ""),
            Self::Tuple(_) => (0x0031, Version::V3, ""),
        }
    }

    /// Writes the option.
    #[expect(clippy::expect_used, reason = "the schema limits the number of fields")]
    pub(crate) fn put(&self, out: &mut BytesMut, version: Version) {
        let (code, since, class) = self.code();
        if code == CUSTOM || version < since {
            out.put_u16(CUSTOM);
            put_string(out, class);
            return;
        }
        out.put_u16(code);
        match self {
            Self::List(element) | Self::Set(element) => element.put(out, version),
            Self::Map(entry) => {
                entry.0.put(out, version);
                entry.1.put(out, version);
            }
            Self::Udt(udt) => {
                put_string(out, &udt.keyspace);
                put_string(out, &udt.name);
                out.put_u16(u16::try_from(udt.fields.len()).expect("a type has at most 65,535 fields"));
                for (name, field) in &udt.fields {
                    put_string(out, name);
                    field.put(out, version);
                }
            }
            Self::Tuple(items) => {
                out.put_u16(u16::try_from(items.len()).expect("a tuple has at most 65,535 items"));
                for item in items.iter() {
                    item.put(out, version);
                }
            }
            _ => {}
        }
    }

    /// Reads an option, as clients do.
    pub(crate) fn decode(reader: &mut BodyReader<'_>) -> Result<Self, ProtocolError> {
        Self::decode_nested(reader, 0)
    }

    fn decode_nested(reader: &mut BodyReader<'_>, depth: usize) -> Result<Self, ProtocolError> {
        let code = reader.u16("the type")?;
        if depth > DEPTH_MAX {
            return Err(ProtocolError::InvalidValue { field: "the depth of the type", value: depth as i64 });
        }
        let mut nested = || Self::decode_nested(reader, depth + 1);
        Ok(match code {
            0x0001 => Self::Ascii,
            0x0002 => Self::Bigint,
            0x0003 => Self::Blob,
            0x0004 => Self::Boolean,
            0x0005 => Self::Counter,
            0x0006 => Self::Decimal,
            0x0007 => Self::Double,
            0x0008 => Self::Float,
            0x0009 => Self::Int,
            0x000B => Self::Timestamp,
            0x000C => Self::Uuid,
            0x000D => Self::Varchar,
            0x000E => Self::Varint,
            0x000F => Self::Timeuuid,
            0x0010 => Self::Inet,
            0x0011 => Self::Date,
            0x0012 => Self::Time,
            0x0013 => Self::Smallint,
            0x0014 => Self::Tinyint,
            0x0015 => Self::Duration,
            0x0020 => Self::list(nested()?),
            0x0021 => Self::map(nested()?, nested()?),
            0x0022 => Self::set(nested()?),
            CUSTOM => Self::Custom(reader.str("the class")?.into()),
            0x0030 => {
                let keyspace = reader.str("the keyspace")?.to_owned();
                let name = reader.str("the type's name")?.to_owned();
                let count = reader.u16("the number of fields")?;
                let mut fields = Vec::new();
                for _ in 0..count {
                    let field = reader.str("the field's name")?.to_owned();
                    fields.push((field, Self::decode_nested(reader, depth + 1)?));
                }
                Self::udt(keyspace, name, fields)
            }
            0x0031 => {
                let count = reader.u16("the number of items")?;
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(Self::decode_nested(reader, depth + 1)?);
                }
                Self::tuple(items)
            }
            other => return Err(ProtocolError::InvalidValue { field: "the type", value: i64::from(other) }),
        })
    }
}
