//! Events (§4.2.6): changes of topology, node status and schema.

use std::net::SocketAddr;

use bytes::BytesMut;

use crate::notation::{BodyReader, put_inet, put_string, put_string_list};
use crate::{ProtocolError, Version};

macro_rules! named {
    ($(#[$doc:meta])* $type:ident, $field:literal: $($(#[$case_doc:meta])* $case:ident = $name:literal),*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$case_doc])* $case,)*
        }

        impl $type {
            /// The name on the wire.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$case => $name,)*
                }
            }

            /// The case with this name, in any case of letters.
            ///
            /// # Errors
            /// [`ProtocolError::UnknownName`] when no case has the name.
            pub fn from_name(name: &str) -> Result<Self, ProtocolError> {
                $(if name.eq_ignore_ascii_case($name) {
                    return Ok(Self::$case);
                })*
                Err(ProtocolError::UnknownName { field: $field, name: name.chars().take(64).collect() })
            }
        }
    };
}

named! {
    /// The events that a client can register for.
    EventType, "Type":
    /// Nodes join and leave.
    TopologyChange = "TOPOLOGY_CHANGE",
    /// Nodes go up and down.
    StatusChange = "STATUS_CHANGE",
    /// The schema changes.
    SchemaChange = "SCHEMA_CHANGE"
}

named! {
    /// How the topology changes.
    TopologyChange, "the topology change":
    /// A node joined.
    NewNode = "NEW_NODE",
    /// A node left.
    RemovedNode = "REMOVED_NODE",
    /// A node's tokens moved.
    MovedNode = "MOVED_NODE"
}

named! {
    /// How a node's status changes.
    StatusChange, "the status change":
    /// It serves clients.
    Up = "UP",
    /// It does not.
    Down = "DOWN"
}

named! {
    /// How a part of the schema changes.
    ChangeType, "the schema change":
    /// It is new.
    Created = "CREATED",
    /// It is different.
    Updated = "UPDATED",
    /// It is gone.
    Dropped = "DROPPED"
}

/// The part of the schema that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaTarget {
    /// The keyspace itself.
    Keyspace,
    /// A table, a view, or an index of the table.
    Table(String),
    /// A user-defined type.
    Type(String),
    /// A function, with the CQL types of its arguments.
    Function {
        /// Name.
        name: String,
        /// Types of the arguments.
        arguments: Vec<String>,
    },
    /// An aggregate, with the CQL types of its arguments.
    Aggregate {
        /// Name.
        name: String,
        /// Types of the arguments.
        arguments: Vec<String>,
    },
}

/// A change of the schema: the body of an event, or of the result of the statement that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaChange {
    /// How it changes.
    pub change: ChangeType,
    /// The keyspace in which it changes.
    pub keyspace: String,
    /// The change.
    pub target: SchemaTarget,
}

impl SchemaChange {
    /// Writes `<change_type><target><options>`. v3 knows no functions: for it their keyspace was updated.
    pub(crate) fn put(&self, out: &mut BytesMut, version: Version) {
        let (target, name, arguments) = match &self.target {
            SchemaTarget::Keyspace => ("KEYSPACE", None, None),
            SchemaTarget::Table(name) => ("TABLE", Some(name), None),
            SchemaTarget::Type(name) => ("TYPE", Some(name), None),
            SchemaTarget::Function { .. } | SchemaTarget::Aggregate { .. } if version < Version::V4 => {
                put_string(out, ChangeType::Updated.name());
                put_string(out, "KEYSPACE");
                put_string(out, &self.keyspace);
                return;
            }
            SchemaTarget::Function { name, arguments } => ("FUNCTION", Some(name), Some(arguments)),
            SchemaTarget::Aggregate { name, arguments } => ("AGGREGATE", Some(name), Some(arguments)),
        };
        put_string(out, self.change.name());
        put_string(out, target);
        put_string(out, &self.keyspace);
        if let Some(name) = name {
            put_string(out, name);
        }
        if let Some(arguments) = arguments {
            put_string_list(out, arguments);
        }
    }

    pub(crate) fn decode(reader: &mut BodyReader<'_>) -> Result<Self, ProtocolError> {
        let change = ChangeType::from_name(reader.str("the schema change")?)?;
        let target = reader.str("the target")?;
        let keyspace = reader.str("the keyspace")?.to_owned();
        let mut name = || Ok::<_, ProtocolError>(reader.str("the name")?.to_owned());
        let target = match target {
            "KEYSPACE" => SchemaTarget::Keyspace,
            "TABLE" => SchemaTarget::Table(name()?),
            "TYPE" => SchemaTarget::Type(name()?),
            "FUNCTION" => SchemaTarget::Function { name: name()?, arguments: arguments(reader)? },
            "AGGREGATE" => SchemaTarget::Aggregate { name: name()?, arguments: arguments(reader)? },
            other => {
                let name = other.chars().take(64).collect();
                return Err(ProtocolError::UnknownName { field: "the target", name });
            }
        };
        Ok(Self { change, keyspace, target })
    }
}

fn arguments(reader: &mut BodyReader<'_>) -> Result<Vec<String>, ProtocolError> {
    Ok(reader.string_list("the arguments")?.iter().map(ToString::to_string).collect())
}

/// Something that clients may want to know without asking again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node joined, left or moved.
    Topology {
        /// How.
        change: TopologyChange,
        /// The node's address for clients.
        address: SocketAddr,
    },
    /// A node went up or down.
    Status {
        /// How.
        change: StatusChange,
        /// The node's address for clients.
        address: SocketAddr,
    },
    /// The schema changed.
    Schema(SchemaChange),
}

impl Event {
    /// The name that a client registers for to get this event.
    pub fn event_type(&self) -> EventType {
        match self {
            Event::Topology { .. } => EventType::TopologyChange,
            Event::Status { .. } => EventType::StatusChange,
            Event::Schema(_) => EventType::SchemaChange,
        }
    }

    pub(crate) fn put(&self, out: &mut BytesMut, version: Version) {
        put_string(out, self.event_type().name());
        match self {
            Event::Topology { change, address } => {
                put_string(out, change.name());
                put_inet(out, *address);
            }
            Event::Status { change, address } => {
                put_string(out, change.name());
                put_inet(out, *address);
            }
            Event::Schema(change) => change.put(out, version),
        }
    }

    pub(crate) fn decode(reader: &mut BodyReader<'_>) -> Result<Self, ProtocolError> {
        Ok(match EventType::from_name(reader.str("the event type")?)? {
            EventType::TopologyChange => Event::Topology {
                change: TopologyChange::from_name(reader.str("the topology change")?)?,
                address: reader.inet("the address")?,
            },
            EventType::StatusChange => Event::Status {
                change: StatusChange::from_name(reader.str("the status change")?)?,
                address: reader.inet("the address")?,
            },
            EventType::SchemaChange => Event::Schema(SchemaChange::decode(reader)?),
        })
    }
}
