//! The first messages of a connection: the node's options (SUPPORTED) and the client's choice (STARTUP).

use rt::ShardId;
use wire::{
    Compression, CqlError, Dialect, ErrorKind, Framing, LWT_MARK_MASK, Opcode, RATE_LIMIT_ERROR_CODE,
    Startup, Version,
};

use crate::NodeDescription;

/// Messages before the connection is ready may not be longer than this, in bytes: a driver's configuration
/// (`DRIVER_CONFIG`, up to 32 KiB) has to fit.
pub(crate) const OPENING_MESSAGE_LEN_MAX: usize = 128 << 10;
/// Options of STARTUP that are kept, and their bytes: a message before the login can have 20,000 of a byte each.
const OPTIONS_MAX: usize = 64;
const OPTIONS_BYTES_MAX: usize = 4 << 10;

/// The agreement of a STARTUP.
#[derive(Clone, Copy)]
pub(crate) struct Agreement {
    pub(crate) dialect: Dialect,
    pub(crate) framing: Framing,
    pub(crate) compression: Option<Compression>,
    /// The client wants OVERLOADED instead of waiting.
    pub(crate) throw_on_overload: bool,
}

fn protocol_error(message: impl Into<String>) -> CqlError {
    CqlError::new(ErrorKind::ProtocolError, message)
}

/// The error for a message that has no place in the connection's stage.
pub(crate) fn unexpected(opcode: Opcode, expected: &str) -> CqlError {
    protocol_error(format!("Unexpected message {opcode}, expecting {expected}"))
}

/// Reads the options of STARTUP.
pub(crate) fn agree(version: Version, startup: &Startup, tablets: bool) -> Result<Agreement, CqlError> {
    let cql_version = startup
        .get("CQL_VERSION")
        .ok_or_else(|| protocol_error("Missing value CQL_VERSION in STARTUP message"))?;
    if !is_supported_cql_version(cql_version) {
        return Err(protocol_error(format!(
            "CQL version {cql_version} is not supported by the binary protocol (supported version are >= 3.0.0)"
        )));
    }
    let compression = match startup.get("COMPRESSION").filter(|name| !name.is_empty()) {
        None => None,
        Some(name) => Some(
            Compression::from_name(name)
                .ok_or_else(|| protocol_error(format!("Unknown compression algorithm: {name}")))?,
        ),
    };
    let framing = match (version, compression) {
        (Version::V5, None) => Framing::Checksummed,
        (Version::V5, Some(Compression::Lz4)) => Framing::Lz4,
        (Version::V5, Some(Compression::Snappy)) => {
            return Err(protocol_error("Snappy compression is not supported in protocol V5"));
        }
        (Version::V3 | Version::V4, _) => Framing::Bare,
    };
    let asks = |name| startup.get(name).is_some();
    let dialect = Dialect {
        version,
        metadata_id: asks("SCYLLA_USE_METADATA_ID"),
        lwt_mark: asks("SCYLLA_LWT_ADD_METADATA_MARK"),
        rate_limit_error: asks("SCYLLA_RATE_LIMIT_ERROR"),
        tablets_routing: tablets && asks("TABLETS_ROUTING_V1"),
    };
    let throw_on_overload = startup.get("THROW_ON_OVERLOAD") == Some("1");
    Ok(Agreement { dialect, framing, compression, throw_on_overload })
}

/// Whether the major version is 3 or later.
fn is_supported_cql_version(text: &str) -> bool {
    let major = text.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_some_and(|major| major >= 3)
}

/// The options of SUPPORTED.
pub(crate) fn supported(
    node: &NodeDescription,
    shard: ShardId,
    shard_count: u16,
    shard_aware_port: Option<u16>,
) -> Vec<(String, Vec<String>)> {
    let mut options = Vec::new();
    let mut add = |name: &str, values: &[&str]| {
        options.push((name.to_owned(), values.iter().map(|value| (*value).to_owned()).collect()));
    };
    add("CQL_VERSION", &[&node.cql_version]);
    add("COMPRESSION", &[Compression::Snappy.name(), Compression::Lz4.name()]);
    add("PROTOCOL_VERSIONS", &Version::ALL.map(Version::name));
    add("SCYLLA_SHARD", &[&shard.to_string()]);
    add("SCYLLA_NR_SHARDS", &[&shard_count.to_string()]);
    add("SCYLLA_PARTITIONER", &[&node.partitioner]);
    add("SCYLLA_SHARDING_ALGORITHM", &["biased-token-round-robin"]);
    add("SCYLLA_SHARDING_IGNORE_MSB", &[&node.sharding_ignore_msb.to_string()]);
    if let Some(port) = shard_aware_port {
        add("SCYLLA_SHARD_AWARE_PORT", &[&port.to_string()]);
    }
    if let Some(port) = node.shard_aware_port_ssl {
        add("SCYLLA_SHARD_AWARE_PORT_SSL", &[&port.to_string()]);
    }
    add("SCYLLA_HOST_ID", &[&node.host_id]);
    let mask = format!("LWT_OPTIMIZATION_META_BIT_MASK={LWT_MARK_MASK}");
    add("SCYLLA_LWT_ADD_METADATA_MARK", &[&mask]);
    add("SCYLLA_RATE_LIMIT_ERROR", &[&format!("ERROR_CODE={RATE_LIMIT_ERROR_CODE}")]);
    add("SCYLLA_USE_METADATA_ID", &[""]);
    if node.tablets {
        add("TABLETS_ROUTING_V1", &[""]);
    }
    options
}

/// The options of a STARTUP that are kept for the life of a connection, for `system_views.clients`.
pub(crate) fn kept_options(startup: &Startup) -> Vec<(String, String)> {
    let mut room = OPTIONS_BYTES_MAX;
    let mut kept = Vec::new();
    for (name, value) in startup.options.iter().take(OPTIONS_MAX) {
        if let Some(left) = room.checked_sub(name.len() + value.len()) {
            room = left;
            kept.push((name.to_string(), value.to_string()));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn startup(options: &[(&str, &str)]) -> Startup {
        Startup { options: options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect() }
    }

    fn refused(version: Version, options: &[(&str, &str)]) -> String {
        agree(version, &startup(options), true).err().expect("refused").message
    }

    #[test]
    fn accepted_options_of_startup() {
        let options = [("CQL_VERSION", "3.0.0"), ("COMPRESSION", "LZ4"), ("TABLETS_ROUTING_V1", "")];
        let agreed = agree(Version::V5, &startup(&options), true).expect("good");
        assert_eq!((agreed.framing, agreed.compression), (Framing::Lz4, Some(Compression::Lz4)));
        assert!(agreed.dialect.tablets_routing && !agreed.throw_on_overload);
        let options = [("cql_version", "3.4.7"), ("THROW_ON_OVERLOAD", "1"), ("TABLETS_ROUTING_V1", "")];
        let agreed = agree(Version::V4, &startup(&options), false).expect("good");
        assert_eq!((agreed.framing, agreed.compression), (Framing::Bare, None));
        assert!(agreed.throw_on_overload && !agreed.dialect.tablets_routing);
    }

    #[test]
    fn few_options_are_kept() {
        let many: Vec<(&str, &str)> = (0..20_000).map(|_| ("a", "b")).collect();
        assert_eq!(kept_options(&startup(&many)).len(), OPTIONS_MAX);
        let large = "x".repeat(OPTIONS_BYTES_MAX);
        let kept = kept_options(&startup(&[("DRIVER_NAME", "d"), ("DRIVER_CONFIG", &large), ("b", "c")]));
        assert_eq!(kept, [("DRIVER_NAME", "d"), ("b", "c")].map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn refused_options_of_startup() {
        assert_eq!(refused(Version::V4, &[]), "Missing value CQL_VERSION in STARTUP message");
        for version in ["2.9.9", "", "three"] {
            assert!(refused(Version::V4, &[("CQL_VERSION", version)]).contains("is not supported"));
        }
        let with = |name| [("CQL_VERSION", "3.0.0"), ("COMPRESSION", name)];
        assert_eq!(refused(Version::V4, &with("zip")), "Unknown compression algorithm: zip");
        let snappy = "Snappy compression is not supported in protocol V5";
        assert_eq!(refused(Version::V5, &with("snappy")), snappy);
        assert!(agree(Version::V4, &startup(&with("snappy")), false).is_ok());
    }
}
