//! The first message in each direction: the host, the shard that owns the connection, and the format of frames. Pure.
//!
//! Both messages begin with [`MAGIC`] and the length of the rest (2 bytes) and end with the CRC-32 of everything
//! before it. A later version may add fields at the end; unknown ones are skipped. The connecting side says hello
//! and sends nothing else until it has the answer.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::ops::RangeInclusive;

use bytes::{BufMut, BytesMut};
use stdx::{Reader, ShortRead};
use topology::HostId;

use crate::packing::Packing;
use crate::verb::Class;

/// The first bytes of every connection, in both directions.
pub const MAGIC: [u8; 8] = *b"\xF5TorcRPC";
/// Length of magic and length.
pub const PREFIX_LEN: usize = 10;
/// The most bytes that may follow the prefix.
pub const HELLO_LEN_MAX: usize = 1024;
/// The longest cluster name in bytes.
pub const CLUSTER_NAME_LEN_MAX: usize = 255;
/// The longest message of a refusal in bytes.
const MESSAGE_LEN_MAX: usize = 400;
const CHECKSUM_LEN: usize = 4;

/// A range of versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest.
    pub min: u16,
    /// The highest.
    pub max: u16,
}

impl Versions {
    /// The versions that this program supports.
    pub const SPOKEN: Versions = Versions { min: 2, max: 2 };

    /// The highest version that both support.
    pub fn highest_common(self, other: Versions) -> Option<u16> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }

    fn range(self) -> RangeInclusive<u16> {
        self.min..=self.max
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", self.range().start(), self.range().end())
    }
}

/// The hello of the connecting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions that it supports.
    pub versions: Versions,
    /// Its host id.
    pub host: HostId,
    /// How many shards it has.
    pub shard_count: u16,
    /// The shard that connects.
    pub source_shard: u16,
    /// The shard that is to own the connection, taken modulo the shards that there are.
    pub wanted_shard: u16,
    /// The class of the connection.
    pub class: Class,
    /// A set of [`Packing::bit`]: the packings that it can unpack and prefers.
    pub packings: u8,
    /// Its cluster.
    pub cluster_name: String,
}

/// The answer of the accepting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAnswer {
    /// The agreement, or the refusal.
    pub outcome: Result<Agreement, HelloRefusal>,
    /// The host that answers.
    pub host: HostId,
    /// How many shards it has.
    pub shard_count: u16,
    /// The shard that owns the connection.
    pub shard: u16,
}

/// How frames will look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The version of the protocol.
    pub version: u16,
    /// How both sides may pack bodies.
    pub packing: Packing,
}

/// Why a connection is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HelloRefusal {
    /// For programs; 0 is reserved for acceptance.
    pub code: u8,
    /// For people.
    pub message: String,
}

impl HelloRefusal {
    /// The nodes belong to different clusters.
    pub const CLUSTER_NAME: u8 = 1;
    /// No version is common to both.
    pub const VERSION: u8 = 2;
    /// The node has reached itself, or a node with its own host id.
    pub const SAME_HOST: u8 = 3;
    /// There are too many connections.
    pub const TOO_MANY: u8 = 4;
    /// The node is starting or stopping.
    pub const NOT_READY: u8 = 5;
    /// The message is of this version's form, but makes no sense.
    pub const MALFORMED: u8 = 6;
    /// The connection should have been encrypted.
    pub const PLAINTEXT: u8 = 7;
    /// The node that connects was removed from the cluster, for good.
    pub const REMOVED: u8 = 8;

    /// A refusal.
    pub fn new(code: u8, message: impl Into<String>) -> HelloRefusal {
        HelloRefusal { code, message: message.into() }
    }
}

/// Bytes that are no hello.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// They do not begin as every connection of the protocol does.
    #[error("{}", foreign(.0))]
    Magic([u8; 8]),
    /// The message is longer than any.
    #[error("its hello has {0} bytes; at most {max} are accepted", max = HELLO_LEN_MAX)]
    TooLong(usize),
    /// The message was damaged.
    #[error("its hello is damaged: the checksum is {read:08x}, computed is {computed:08x}")]
    Checksum {
        /// The checksum in the message.
        read: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// A field is missing or has no meaning.
    #[error("its hello is malformed: {0}")]
    Malformed(&'static str),
}

/// Another protocol that it uses. A handshake of TLS begins with a record of type 22, version 3.
fn foreign(begins: &[u8; 8]) -> String {
    match begins {
        [22, 3, ..] => "it uses TLS, but this node has no internode_encryption".to_owned(),
        begins => format!("it does not use Torc's internode protocol (it begins with {begins:02x?})"),
    }
}

impl From<ShortRead> for HelloError {
    fn from(_: ShortRead) -> Self {
        HelloError::Malformed("it ends early")
    }
}

/// Reads magic and length: how many bytes follow.
///
/// # Errors
/// [`HelloError::Magic`] when the other end uses another protocol, [`HelloError::TooLong`] when it announces more than
/// any hello has.
pub fn decode_prefix(prefix: &[u8; PREFIX_LEN]) -> Result<usize, HelloError> {
    let [magic @ .., high, low] = *prefix;
    if magic != MAGIC {
        return Err(HelloError::Magic(magic));
    }
    match usize::from(u16::from_be_bytes([high, low])) {
        len if len > HELLO_LEN_MAX => Err(HelloError::TooLong(len)),
        len => Ok(len),
    }
}

/// Whether bytes that are not a whole prefix yet can become one.
pub fn may_be_prefix(bytes: &[u8]) -> bool {
    MAGIC.iter().zip(bytes).all(|(expected, byte)| expected == byte)
}

fn message(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::with_capacity(128);
    let mut fields = BytesMut::with_capacity(128);
    write(&mut fields);
    let following = fields.len() + CHECKSUM_LEN;
    assert!(following <= HELLO_LEN_MAX, "a hello of {following} bytes");
    out.extend_from_slice(&MAGIC);
    out.put_u16(following as u16);
    assert_eq!(out.len(), PREFIX_LEN, "the length of what follows is in the prefix");
    out.extend_from_slice(&fields);
    let checksum = crc32fast::hash(&out);
    out.put_u32(checksum);
    out
}

/// The fields of a message whose checksum is right.
fn fields<'a>(prefix: &[u8; PREFIX_LEN], following: &'a [u8]) -> Result<Reader<'a>, HelloError> {
    let Some((fields, checksum)) = following.split_last_chunk::<CHECKSUM_LEN>() else {
        return Err(HelloError::Malformed("it ends early"));
    };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(prefix);
    hasher.update(fields);
    let (read, computed) = (u32::from_be_bytes(*checksum), hasher.finalize());
    if read != computed {
        return Err(HelloError::Checksum { read, computed });
    }
    Ok(Reader::new(fields))
}

fn host(reader: &mut Reader<'_>) -> Result<HostId, HelloError> {
    Ok(HostId(reader.array()?))
}

fn shard_count(reader: &mut Reader<'_>) -> Result<u16, HelloError> {
    match reader.u16()? {
        0 => Err(HelloError::Malformed("a node without shards")),
        count => Ok(count),
    }
}

impl Hello {
    /// The message as it lies on the wire.
    ///
    /// # Panics
    /// When the cluster's name is too long; the configuration was checked.
    pub fn encode(&self) -> BytesMut {
        assert!(self.cluster_name.len() <= CLUSTER_NAME_LEN_MAX, "a cluster name of at most 255 bytes");
        message(|out| {
            out.put_u16(self.versions.min);
            out.put_u16(self.versions.max);
            out.extend_from_slice(&self.host.0);
            out.put_u16(self.shard_count);
            out.put_u16(self.source_shard);
            out.put_u16(self.wanted_shard);
            out.put_u8(self.class as u8);
            out.put_u8(self.packings);
            out.put_u8(self.cluster_name.len() as u8);
            out.extend_from_slice(self.cluster_name.as_bytes());
        })
    }

    /// Decodes the rest after the prefix.
    ///
    /// # Errors
    /// [`HelloError`] when the bytes are cut off or damaged, the number of shards is 0, the class is unknown, or the
    /// name is not UTF-8.
    pub fn decode(prefix: &[u8; PREFIX_LEN], following: &[u8]) -> Result<Hello, HelloError> {
        let mut reader = fields(prefix, following)?;
        let versions = Versions { min: reader.u16()?, max: reader.u16()? };
        let host = host(&mut reader)?;
        let shard_count = shard_count(&mut reader)?;
        let (source_shard, wanted_shard) = (reader.u16()?, reader.u16()?);
        let class = Class::from_number(reader.u8()?).ok_or(HelloError::Malformed("an unknown class"))?;
        let packings = reader.u8()?;
        let name_len = usize::from(reader.u8()?);
        let name = std::str::from_utf8(reader.bytes(name_len)?);
        let cluster_name = name.map_err(|_| HelloError::Malformed("a name that is no text"))?.to_string();
        Ok(Hello { versions, host, shard_count, source_shard, wanted_shard, class, packings, cluster_name })
    }
}

impl HelloAnswer {
    /// The message as it lies on the wire.
    pub fn encode(&self) -> BytesMut {
        message(|out| {
            let (code, version, packing, text) = match &self.outcome {
                Ok(agreed) => (0, agreed.version, agreed.packing, ""),
                Err(refusal) => (refusal.code.max(1), 0, Packing::None, refusal.message.as_str()),
            };
            let text = text.split_at(text.floor_char_boundary(MESSAGE_LEN_MAX)).0;
            out.put_u8(code);
            out.put_u16(version);
            out.put_u8(packing as u8);
            out.extend_from_slice(&self.host.0);
            out.put_u16(self.shard_count);
            out.put_u16(self.shard);
            out.put_u16(text.len() as u16);
            out.extend_from_slice(text.as_bytes());
        })
    }

    /// Decodes the rest after the prefix.
    ///
    /// # Errors
    /// [`HelloError`] when the bytes are cut off or damaged, the number of shards is 0, or the packing is unknown.
    pub fn decode(prefix: &[u8; PREFIX_LEN], following: &[u8]) -> Result<HelloAnswer, HelloError> {
        let mut reader = fields(prefix, following)?;
        let (code, version, packing) = (reader.u8()?, reader.u16()?, reader.u8()?);
        let host = host(&mut reader)?;
        let shard_count = shard_count(&mut reader)?;
        let shard = reader.u16()?;
        let message_len = usize::from(reader.u16()?).min(MESSAGE_LEN_MAX);
        let message = String::from_utf8_lossy(reader.bytes(message_len)?).into_owned();
        let packing = Packing::from_number(packing).ok_or(HelloError::Malformed("an unknown packing"))?;
        let outcome = match code {
            0 => Ok(Agreement { version, packing }),
            code => Err(HelloRefusal { code, message }),
        };
        Ok(HelloAnswer { outcome, host, shard_count, shard })
    }
}

/// The accepting node.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// Its cluster.
    pub cluster_name: &'a str,
    /// Its host id.
    pub host: HostId,
    /// The versions that it supports.
    pub versions: Versions,
}

/// Whether the node takes a connection, and how frames will look.
///
/// # Errors
/// A [`HelloRefusal`] for the other end when the cluster names differ, there is no common version, or both have the
/// same host id.
pub fn judge(own: Own<'_>, hello: &Hello) -> Result<Agreement, HelloRefusal> {
    if hello.cluster_name != own.cluster_name {
        let message = format!(
            "this node belongs to the cluster \"{}\", the other one to \"{}\": check cluster_name and the seeds",
            own.cluster_name, hello.cluster_name
        );
        return Err(HelloRefusal::new(HelloRefusal::CLUSTER_NAME, message));
    }
    let Some(version) = own.versions.highest_common(hello.versions) else {
        let message = format!(
            "this node supports the versions {} of the internode protocol, the other one {}: upgrade one step at a time",
            own.versions, hello.versions
        );
        return Err(HelloRefusal::new(HelloRefusal::VERSION, message));
    };
    if hello.host == own.host {
        let message = "both ends have the same host id: the address is the node's own, or a node runs on a copy of \
                       another one's data directory";
        return Err(HelloRefusal::new(HelloRefusal::SAME_HOST, message));
    }
    let known = [Packing::Zstd, Packing::Lz4];
    let offered = known.into_iter().find(|packing| hello.packings & packing.bit() != 0);
    Ok(Agreement { version, packing: offered.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            versions: Versions { min: 1, max: 3 },
            host: HostId([7; 16]),
            shard_count: 4,
            source_shard: 3,
            wanted_shard: 9,
            class: Class::Bulk,
            packings: Packing::Lz4.bit(),
            cluster_name: "Prüfstand".to_string(),
        }
    }

    fn split(message: &[u8]) -> (&[u8; PREFIX_LEN], &[u8]) {
        let (prefix, following) = message.split_first_chunk::<PREFIX_LEN>().unwrap();
        assert_eq!(decode_prefix(prefix), Ok(following.len()));
        (prefix, following)
    }

    #[test]
    fn messages_come_back() {
        let message = hello().encode();
        let (prefix, following) = split(&message);
        assert_eq!(Hello::decode(prefix, following), Ok(hello()));
        let accepted = Ok(Agreement { version: 2, packing: Packing::Zstd });
        let refused = Err(HelloRefusal::new(HelloRefusal::VERSION, "too old"));
        for outcome in [accepted, refused] {
            let answer = HelloAnswer { outcome, host: HostId([1; 16]), shard_count: 2, shard: 1 };
            let message = answer.encode();
            let (prefix, following) = split(&message);
            assert_eq!(HelloAnswer::decode(prefix, following), Ok(answer));
        }
    }

    #[test]
    fn a_later_version_may_add_fields() {
        let message = hello().encode();
        let mut longer = BytesMut::from(&message[..message.len() - CHECKSUM_LEN]);
        longer.extend_from_slice(b"new field");
        let following = (longer.len() - PREFIX_LEN + CHECKSUM_LEN) as u16;
        longer[8..10].copy_from_slice(&following.to_be_bytes());
        let checksum = crc32fast::hash(&longer);
        longer.put_u32(checksum);
        let (prefix, following) = split(&longer);
        assert_eq!(Hello::decode(prefix, following), Ok(hello()));
    }

    #[test]
    fn every_damaged_bit_is_seen() {
        let message = hello().encode();
        for bit in 0..message.len() * 8 {
            let mut broken = message.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let (prefix, following) = broken.split_first_chunk::<PREFIX_LEN>().unwrap();
            let len = decode_prefix(prefix);
            let seen = len != Ok(following.len()) || Hello::decode(prefix, following).is_err();
            assert!(seen, "bit {bit}");
        }
        for len in 0..message.len() - PREFIX_LEN {
            let (prefix, following) = split(&message);
            assert!(Hello::decode(prefix, &following[..len]).is_err());
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let refusal = HelloRefusal::new(HelloRefusal::TOO_MANY, "ä".repeat(500));
        let answer = HelloAnswer { outcome: Err(refusal), host: HostId([1; 16]), shard_count: 1, shard: 0 };
        let message = answer.encode();
        let (prefix, following) = split(&message);
        let back = HelloAnswer::decode(prefix, following).unwrap();
        assert_eq!(back.outcome.unwrap_err().message, "ä".repeat(200));
    }

    #[test]
    fn accepted_peers() {
        let versions = Versions { min: 1, max: 2 };
        let own = Own { cluster_name: "Prüfstand", host: HostId([8; 16]), versions };
        assert_eq!(judge(own, &hello()), Ok(Agreement { version: 2, packing: Packing::Lz4 }));
        let code = |own, hello: &Hello| judge(own, hello).unwrap_err().code;
        assert_eq!(code(Own { cluster_name: "x", ..own }, &hello()), HelloRefusal::CLUSTER_NAME);
        assert_eq!(code(Own { host: HostId([7; 16]), ..own }, &hello()), HelloRefusal::SAME_HOST);
        let newer = Versions { min: 4, max: 9 };
        assert_eq!(code(Own { versions: newer, ..own }, &hello()), HelloRefusal::VERSION);
        let message = judge(Own { versions: newer, ..own }, &hello()).unwrap_err().message;
        assert!(message.contains("4 to 9") && message.contains("1 to 3"), "{message}");
        let all = Hello { packings: 0xFF, ..hello() };
        assert_eq!(judge(own, &all).unwrap().packing, Packing::Zstd);
        let none = Hello { packings: 0xFC, ..hello() };
        assert_eq!(judge(own, &none).unwrap().packing, Packing::None, "an unknown packing is not chosen");
    }

    #[test]
    fn versions_agree_on_the_highest_common_one() {
        let range = |min, max| Versions { min, max };
        assert_eq!(range(1, 3).highest_common(range(2, 5)), Some(3));
        assert_eq!(range(2, 5).highest_common(range(1, 3)), Some(3));
        assert_eq!(range(1, 1).highest_common(range(1, 1)), Some(1));
        assert_eq!(range(1, 2).highest_common(range(3, 4)), None);
        assert_eq!(range(5, 1).highest_common(range(1, 5)), None, "an empty range has nothing in common");
    }
}
