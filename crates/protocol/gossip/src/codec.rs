//! Messages as bytes. The first byte is the format's version. Every length is checked against a bound and against the present bytes
//! before memory is taken for it.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use stdx::{Reader, ShortRead, vint};
use topology::HostId;

use crate::endpoint::{self, Key, STATES_MAX, States, StatesFull, VALUE_BYTES_MAX, Versioned};
use crate::{Delta, Digest, Message, Roster};

/// Version of the format.
pub const FORMAT_VERSION: u8 = 1;

/// Bytes of a cluster's name.
const CLUSTER_BYTES_MAX: usize = 1 << 10;
/// Digests, requests or deltas of one message; a message that this node makes never comes near.
const ITEMS_MAX: usize = 1 << 16;

const SYN: u8 = 1;
const ACK: u8 = 2;
const DELTAS: u8 = 3;
const GONE: u8 = 4;
const VERSIONS: u8 = 5;
const BEATS: u8 = 6;

/// At most this much for a digest.
pub(crate) const DIGEST_BYTES_MAX: usize = 16 + 9 + ADDRESS_BYTES_MAX + 9;
/// At most this much for a message without its items and its cluster's name.
pub(crate) const MESSAGE_HEAD_BYTES_MAX: usize = 2 + 9 + ADDRESS_BYTES_MAX + 32 + 9 + 9;
const ADDRESS_BYTES_MAX: usize = 1 + 16 + 2;

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The message ended too early.
    #[error("gossip message: {0}")]
    Short(#[from] ShortRead),
    /// Written by another version.
    #[error("gossip message of format {found}; this node reads {FORMAT_VERSION}")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A field with a value outside of its domain.
    #[error("gossip message: {what} is {found}")]
    Value {
        /// Which field.
        what: &'static str,
        /// The value.
        found: u64,
    },
    /// An endpoint that says too much.
    #[error("gossip message: {0}")]
    TooMuch(#[from] StatesFull),
    /// Bytes behind the end.
    #[error("gossip message: {count} bytes too many")]
    Trailing {
        /// How many.
        count: usize,
    },
}

/// A message as bytes.
pub fn encode(message: &Message) -> Bytes {
    let mut out = vec![FORMAT_VERSION];
    match message {
        Message::Syn { cluster, reply_to, first, last, digests } => {
            out.push(SYN);
            write_bytes(cluster.as_bytes(), &mut out);
            write_address(*reply_to, &mut out);
            out.extend_from_slice(&first.0);
            out.extend_from_slice(&last.0);
            write_digests(digests, &mut out);
        }
        Message::Ack { reply_to, deltas, requests } => {
            out.push(ACK);
            write_address(*reply_to, &mut out);
            write_deltas(deltas, &mut out);
            write_digests(requests, &mut out);
        }
        Message::Deltas(deltas) => {
            out.push(DELTAS);
            write_deltas(deltas, &mut out);
        }
        Message::Versions { cluster, reply_to, roster, versions } => {
            out.push(VERSIONS);
            write_bytes(cluster.as_bytes(), &mut out);
            write_address(*reply_to, &mut out);
            write_roster(roster, &mut out);
            vint::write_unsigned(versions.len() as u64, &mut out);
            versions.iter().for_each(|version| vint::write_unsigned(*version, &mut out));
        }
        Message::Beats { reply_to, roster, beats, wanted } => {
            out.push(BEATS);
            write_address(*reply_to, &mut out);
            write_roster(roster, &mut out);
            write_places(beats, &mut out);
            write_places(wanted, &mut out);
        }
        Message::Gone { host, generation } => {
            out.push(GONE);
            out.extend_from_slice(&host.0);
            vint::write_unsigned(*generation, &mut out);
        }
    }
    out.into()
}

/// Bytes as a message.
///
/// # Errors
/// [`CodecError::Version`] when another version wrote it; the others when the bytes are cut off, a field has an
/// undefined value or is longer than its limit, or bytes are left.
pub fn decode(bytes: &[u8]) -> Result<Message, CodecError> {
    let mut reader = Reader::new(bytes);
    let found = reader.u8()?;
    if found != FORMAT_VERSION {
        return Err(CodecError::Version { found });
    }
    let message = match reader.u8()? {
        SYN => Message::Syn {
            cluster: read_cluster(&mut reader)?,
            reply_to: read_address(&mut reader)?,
            first: read_host(&mut reader)?,
            last: read_host(&mut reader)?,
            digests: read_digests(&mut reader)?,
        },
        ACK => Message::Ack {
            reply_to: read_address(&mut reader)?,
            deltas: read_deltas(&mut reader)?,
            requests: read_digests(&mut reader)?,
        },
        DELTAS => Message::Deltas(read_deltas(&mut reader)?),
        VERSIONS => Message::Versions {
            cluster: read_cluster(&mut reader)?,
            reply_to: read_address(&mut reader)?,
            roster: read_roster(&mut reader)?,
            versions: read_versions(&mut reader)?,
        },
        BEATS => Message::Beats {
            reply_to: read_address(&mut reader)?,
            roster: read_roster(&mut reader)?,
            beats: read_places(&mut reader)?,
            wanted: read_places(&mut reader)?,
        },
        GONE => {
            Message::Gone { host: read_host(&mut reader)?, generation: vint::read_unsigned(&mut reader)? }
        }
        kind => return Err(CodecError::Value { what: "kind of message", found: kind.into() }),
    };
    match reader.len() {
        0 => Ok(message),
        count => Err(CodecError::Trailing { count }),
    }
}

/// Bytes that a delta takes in a message, at most.
pub(crate) fn delta_bytes(delta: &Delta) -> usize {
    let states: usize = delta.states.values().map(|state| 1 + 9 + 9 + state.value.len()).sum();
    16 + 9 + ADDRESS_BYTES_MAX + 9 + 9 + 9 + states
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    vint::write_unsigned(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_address(address: SocketAddr, out: &mut Vec<u8>) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

fn write_digests(digests: &[Digest], out: &mut Vec<u8>) {
    vint::write_unsigned(digests.len() as u64, out);
    for digest in digests {
        out.extend_from_slice(&digest.host.0);
        vint::write_unsigned(digest.generation, out);
        write_address(digest.address, out);
        vint::write_unsigned(digest.version, out);
    }
}

fn write_roster(roster: &Roster, out: &mut Vec<u8>) {
    out.extend_from_slice(&roster.first.0);
    out.extend_from_slice(&roster.last.0);
    out.extend_from_slice(&roster.lives.to_be_bytes());
}

/// Places are written as steps from the one before.
fn write_places(places: &[(u32, u64)], out: &mut Vec<u8>) {
    vint::write_unsigned(places.len() as u64, out);
    let mut next = 0;
    for (place, version) in places {
        vint::write_unsigned(u64::from(place - next), out);
        vint::write_unsigned(*version, out);
        next = place + 1;
    }
}

fn write_deltas(deltas: &[Delta], out: &mut Vec<u8>) {
    vint::write_unsigned(deltas.len() as u64, out);
    for delta in deltas {
        out.extend_from_slice(&delta.host.0);
        vint::write_unsigned(delta.generation, out);
        write_address(delta.address, out);
        vint::write_unsigned(delta.heartbeat, out);
        vint::write_unsigned(delta.base, out);
        vint::write_unsigned(delta.states.len() as u64, out);
        for (key, state) in &delta.states {
            out.push(key.0);
            vint::write_unsigned(state.version, out);
            write_bytes(&state.value, out);
        }
    }
}

/// A count of items each of which takes at least `least` bytes.
fn read_count(
    reader: &mut Reader<'_>,
    what: &'static str,
    max: usize,
    least: usize,
) -> Result<usize, CodecError> {
    let found = vint::read_unsigned(reader)?;
    let count = usize::try_from(found).ok().filter(|count| *count <= max && *count * least <= reader.len());
    count.ok_or(CodecError::Value { what, found })
}

fn read_cluster(reader: &mut Reader<'_>) -> Result<String, CodecError> {
    let len = read_count(reader, "length of the cluster's name", CLUSTER_BYTES_MAX, 1)?;
    let bytes = reader.bytes(len)?;
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned).map_err(|error| CodecError::Value {
        what: "offset of invalid UTF-8 in the cluster's name",
        found: error.valid_up_to() as u64,
    })
}

fn read_host(reader: &mut Reader<'_>) -> Result<HostId, CodecError> {
    Ok(HostId(reader.array()?))
}

fn read_address(reader: &mut Reader<'_>) -> Result<SocketAddr, CodecError> {
    let ip = match reader.u8()? {
        4 => IpAddr::from(reader.array::<4>()?),
        6 => IpAddr::from(reader.array::<16>()?),
        family => return Err(CodecError::Value { what: "family of an address", found: family.into() }),
    };
    Ok(SocketAddr::new(ip, reader.u16()?))
}

fn read_digests(reader: &mut Reader<'_>) -> Result<Vec<Digest>, CodecError> {
    let count = read_count(reader, "number of digests", ITEMS_MAX, 25)?;
    let mut digests: Vec<Digest> = Vec::with_capacity(count);
    for at in 0..count {
        let host = read_host(reader)?;
        // Each host once: nobody is made to answer the same question a thousand times.
        if digests.last().is_some_and(|before| before.host >= host) {
            return Err(CodecError::Value { what: "digest out of order", found: at as u64 });
        }
        let generation = vint::read_unsigned(reader)?;
        let address = read_address(reader)?;
        digests.push(Digest { host, generation, address, version: vint::read_unsigned(reader)? });
    }
    Ok(digests)
}

fn read_roster(reader: &mut Reader<'_>) -> Result<Roster, CodecError> {
    let (first, last) = (read_host(reader)?, read_host(reader)?);
    let lives = reader.u64()?;
    Ok(Roster { first, last, lives })
}

fn read_versions(reader: &mut Reader<'_>) -> Result<Vec<u64>, CodecError> {
    let count = read_count(reader, "number of versions", ITEMS_MAX, 1)?;
    let mut versions = Vec::with_capacity(count);
    for _ in 0..count {
        versions.push(vint::read_unsigned(reader)?);
    }
    Ok(versions)
}

fn read_places(reader: &mut Reader<'_>) -> Result<Vec<(u32, u64)>, CodecError> {
    let count = read_count(reader, "number of places", ITEMS_MAX, 2)?;
    let mut places = Vec::with_capacity(count);
    let mut next = 0;
    for _ in 0..count {
        let step = vint::read_unsigned(reader)?;
        let place = u32::try_from(step).ok().and_then(|step| step.checked_add(next));
        // The one after it is a place, too.
        let place = place.filter(|place| *place < ITEMS_MAX as u32);
        let place = place.ok_or(CodecError::Value { what: "step to a place", found: step })?;
        places.push((place, vint::read_unsigned(reader)?));
        next = place + 1;
    }
    Ok(places)
}

fn read_deltas(reader: &mut Reader<'_>) -> Result<Vec<Delta>, CodecError> {
    let count = read_count(reader, "number of deltas", ITEMS_MAX, 27)?;
    let mut deltas = Vec::new();
    for _ in 0..count {
        deltas.push(Delta {
            host: read_host(reader)?,
            generation: vint::read_unsigned(reader)?,
            address: read_address(reader)?,
            heartbeat: vint::read_unsigned(reader)?,
            base: vint::read_unsigned(reader)?,
            states: read_states(reader)?,
        });
    }
    Ok(deltas)
}

fn read_states(reader: &mut Reader<'_>) -> Result<States, CodecError> {
    let count = read_count(reader, "number of an endpoint's values", STATES_MAX, 3)?;
    let mut states = States::new();
    for _ in 0..count {
        let key = Key(reader.u8()?);
        let version = vint::read_unsigned(reader)?;
        let len = read_count(reader, "length of a value", VALUE_BYTES_MAX, 1)?;
        let value = Bytes::copy_from_slice(reader.bytes(len)?);
        if states.insert(key, Versioned { version, value }).is_some() {
            return Err(CodecError::Value { what: "key that comes twice", found: key.0.into() });
        }
    }
    endpoint::check(&states)?;
    Ok(states)
}
