//! A node's own endpoint state: a generation, a heartbeat, and small values under keys, each with a version.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use topology::HostId;

/// Bytes of one value.
pub const VALUE_BYTES_MAX: usize = 1 << 10;
/// Values of one endpoint.
pub const STATES_MAX: usize = 64;
/// Bytes of all values of one endpoint.
pub const ENDPOINT_BYTES_MAX: usize = 16 << 10;

/// The key of a value. Numbers never change; an unknown one is passed on unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u8);

impl Key {
    /// The node's state in the ring ([`status`]).
    pub const STATUS: Key = Key(0);
    /// Bytes on disk, as a decimal number.
    pub const LOAD: Key = Key(1);
    /// Version of the schema, a UUID.
    pub const SCHEMA: Key = Key(2);
    /// Datacenter.
    pub const DC: Key = Key(3);
    /// Rack.
    pub const RACK: Key = Key(4);
    /// Version of Cassandra whose interface this is.
    pub const RELEASE_VERSION: Key = Key(5);
    /// The address for clients, with port.
    pub const NATIVE_ADDRESS: Key = Key(6);
    /// Version of the protocol between nodes.
    pub const NET_VERSION: Key = Key(7);
    /// How slow the node says that it is; higher is worse.
    pub const SEVERITY: Key = Key(8);
    /// Whether the node serves clients: "true" or "false".
    pub const RPC_READY: Key = Key(9);
    /// Hash of the node's tokens, to see whether two nodes agree about them.
    pub const TOKENS_HASH: Key = Key(10);
    /// How many shards, and the bits that the sharder ignores: "4,12".
    pub const SHARDS: Key = Key(11);
    /// The node's features, separated by commas.
    pub const FEATURES: Key = Key(12);
    /// "true" while the node's disk does not have a record of how far its gossip comes: then nobody remembers that of it.
    pub const UNRECORDED: Key = Key(13);
    /// Dead nodes that an operator has a topology change go on without: the host that joins or is removed, a colon, and their host ids
    /// with commas between.
    pub const IGNORED_NODES: Key = Key(14);

    /// The name that an operator sees; `None` for a number that this version does not know.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::STATUS => "STATUS",
            Self::LOAD => "LOAD",
            Self::SCHEMA => "SCHEMA",
            Self::DC => "DC",
            Self::RACK => "RACK",
            Self::RELEASE_VERSION => "RELEASE_VERSION",
            Self::NATIVE_ADDRESS => "NATIVE_ADDRESS_AND_PORT",
            Self::NET_VERSION => "NET_VERSION",
            Self::SEVERITY => "SEVERITY",
            Self::RPC_READY => "RPC_READY",
            Self::TOKENS_HASH => "TOKENS_HASH",
            Self::SHARDS => "SHARDS",
            Self::FEATURES => "FEATURES",
            Self::UNRECORDED => "UNRECORDED",
            Self::IGNORED_NODES => "IGNORED_NODES",
            _ => return None,
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "UNKNOWN_{}", self.0),
        }
    }
}

/// Values of [`Key::STATUS`].
pub mod status {
    /// Serves its part of the data.
    pub const NORMAL: &str = "NORMAL";
    /// Takes its part over.
    pub const BOOT: &str = "BOOT";
    /// Gives its ranges away.
    pub const LEAVING: &str = "LEAVING";
    /// Said good-bye: it is down, and will not come back in this generation.
    pub const SHUTDOWN: &str = "shutdown";
}

/// A value and the version of its endpoint at which it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// Greater than those of all earlier heartbeats and values of the generation.
    pub version: u64,
    /// At most [`VALUE_BYTES_MAX`].
    pub value: Bytes,
}

/// The values of an endpoint.
pub type States = BTreeMap<Key, Versioned>;

/// More values, or longer ones, than an endpoint may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an endpoint has at most {STATES_MAX} values of {VALUE_BYTES_MAX} bytes, {ENDPOINT_BYTES_MAX} in all"
)]
pub struct StatesFull;

/// Holds values against the bounds of an endpoint.
pub(crate) fn check(states: &States) -> Result<(), StatesFull> {
    let bytes: usize = states.values().map(|state| state.value.len()).sum();
    let longest = states.values().map(|state| state.value.len()).max().unwrap_or(0);
    match states.len() <= STATES_MAX && longest <= VALUE_BYTES_MAX && bytes <= ENDPOINT_BYTES_MAX {
        true => Ok(()),
        false => Err(StatesFull),
    }
}

/// A node as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its host id.
    pub host: HostId,
    /// Which of its lives: seconds since 1970 at its start, or more.
    pub generation: u64,
    /// Its address for other nodes in this generation.
    pub address: SocketAddr,
    /// Its version when it last showed that it lives.
    pub heartbeat: u64,
    /// Its values.
    pub states: Arc<States>,
}

impl Endpoint {
    /// The newest version of its heartbeat and values.
    pub fn version(&self) -> u64 {
        let newest = self.states.values().map(|state| state.version).max();
        newest.unwrap_or(0).max(self.heartbeat)
    }

    /// The value of a key.
    pub fn get(&self, key: Key) -> Option<&[u8]> {
        self.states.get(&key).map(|state| &state.value[..])
    }

    /// The value of a key, as text.
    pub fn text(&self, key: Key) -> Option<&str> {
        self.get(key).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Whether it said good-bye.
    pub fn is_shut_down(&self) -> bool {
        self.get(Key::STATUS) == Some(status::SHUTDOWN.as_bytes())
    }
}
