//! Ids as text and places as objects, in the JSON of state and commands.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use topology::HostId;

/// Sixteen bytes in the form of a UUID.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The sixteen bytes of a UUID.
pub(crate) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    crate::stored_value::parse_id(text).map(|id| id.0)
}

pub(crate) mod id {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(id: &[u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
        uuid(id).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_uuid(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no UUID")))
    }
}

pub(crate) mod host {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(host: &HostId, serializer: S) -> Result<S::Ok, S::Error> {
        id::serialize(&host.0, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HostId, D::Error> {
        id::deserialize(deserializer).map(HostId)
    }
}

pub(crate) mod maybe_host {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(host: &Option<HostId>, serializer: S) -> Result<S::Ok, S::Error> {
        host.map(|host| uuid(&host.0)).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<HostId>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let id = parse_uuid(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no UUID")))?;
        Ok(Some(HostId(id)))
    }
}

pub(crate) mod hosts {
    use super::*;
    use std::collections::BTreeSet;

    pub(crate) fn serialize<S: Serializer>(
        hosts: &BTreeSet<HostId>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(hosts.iter().map(|host| uuid(&host.0)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeSet<HostId>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let read = |text: &String| {
            parse_uuid(text).map(HostId).ok_or_else(|| D::Error::custom(format!("{text:?} is no UUID")))
        };
        texts.iter().map(read).collect()
    }
}

pub(crate) mod location {
    use super::*;
    use topology::Location;

    #[derive(Serialize, Deserialize)]
    struct Stored {
        datacenter: String,
        rack: String,
    }

    pub(crate) fn serialize<S: Serializer>(location: &Location, serializer: S) -> Result<S::Ok, S::Error> {
        Stored { datacenter: location.datacenter.clone(), rack: location.rack.clone() }.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Location, D::Error> {
        Stored::deserialize(deserializer).map(|stored| Location::new(stored.datacenter, stored.rack))
    }
}

/// Replications by keyspace.
pub(crate) mod replications {
    use super::*;
    use std::collections::BTreeMap;

    use schema::Replication;

    use crate::codec::{StoredReplication, load_replication, store_replication};

    pub(crate) fn serialize<S: Serializer>(
        all: &BTreeMap<String, Replication>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let stored = all.iter().map(|(name, replication)| (name, store_replication(replication)));
        stored.collect::<BTreeMap<_, _>>().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, Replication>, D::Error> {
        let stored = BTreeMap::<String, StoredReplication>::deserialize(deserializer)?;
        Ok(stored.into_iter().map(|(name, replication)| (name, load_replication(replication))).collect())
    }
}
