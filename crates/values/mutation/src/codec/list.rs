//! Several updates as one run of bytes that names its version: the content of one message, hint or answer.

use std::sync::Arc;

use bytes::Bytes;
use schema::{Table, TableId};
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};

use super::{DecodeError, Decoded, Layouts, Version, decode, encode_update};
use crate::PartitionUpdate;

/// The most updates that a run may have.
const UPDATES_MAX: usize = 1 << 16;

/// Bytes that are no run of updates, or one that cannot be read here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdatesError {
    /// They end too early.
    Short,
    /// A version that this build does not know.
    Version(u8),
    /// More updates than a run may have.
    TooMany(u64),
    /// One of the updates cannot be read.
    Update(DecodeError),
    /// The table of an update does not exist here.
    UnknownTable(TableId),
    /// A column of an update does not exist here, and did not before: the schema of this node is behind.
    UnknownColumn(TableId),
    /// Bytes follow the last update.
    Rest(usize),
}

impl std::fmt::Display for UpdatesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short => f.write_str("the message ends too early"),
            Self::Version(version) => write!(f, "version {version} of updates is not known to this node"),
            Self::TooMany(count) => {
                write!(f, "{count} updates are more than the {UPDATES_MAX} that a message may have")
            }
            Self::Update(error) => error.fmt(f),
            Self::UnknownTable(id) => write!(f, "there is no table with the id {id} of an update"),
            Self::UnknownColumn(id) => {
                write!(f, "the table with the id {id} has not yet a column of an update")
            }
            Self::Rest(len) => write!(f, "{len} bytes after the last update"),
        }
    }
}

impl std::error::Error for UpdatesError {}

impl From<ShortRead> for UpdatesError {
    fn from(_: ShortRead) -> Self {
        Self::Short
    }
}

/// Appends updates, in [`Version::CURRENT`].
pub fn encode_updates(updates: &[PartitionUpdate], out: &mut Vec<u8>) {
    debug_assert!(updates.len() <= UPDATES_MAX, "a run that nobody would read");
    out.push(Version::CURRENT.number());
    write_unsigned(updates.len() as u64, out);
    let mut one = Vec::with_capacity(128);
    for update in updates {
        one.clear();
        encode_update(update, &mut one);
        write_unsigned(one.len() as u64, out);
        out.extend_from_slice(&one);
    }
}

/// Updates as bytes in [`Version::CURRENT`], from which they were decoded whole: encoding them again would give the same bytes.
#[derive(Clone, Debug)]
pub struct EncodedUpdates {
    /// The run, checked when it was decoded.
    run: Bytes,
}

impl EncodedUpdates {
    /// The bytes of each update, in order.
    #[expect(clippy::expect_used, reason = "the run was checked when it was decoded")]
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut reader = Reader::new(&self.run);
        let version = reader.u8().expect("a run begins with its version");
        assert_eq!(version, Version::CURRENT.number(), "only runs of the current version are held");
        let count = read_unsigned(&mut reader).expect("its number of updates follows");
        (0..count).map(move |_| reader.bytes_vint().expect("the run was checked when it was decoded"))
    }
}

impl EncodedUpdates {
    /// Whether these bytes are of these updates. It decodes all of them.
    pub fn is_of(&self, updates: &[PartitionUpdate]) -> bool {
        let find =
            |id| updates.iter().find(|update| update.table.id == id).map(|update| update.table.clone());
        let Ok(decoded) = decode_updates(&self.run, None, find) else { return false };
        let is_same = |(left, right): (&PartitionUpdate, &PartitionUpdate)| {
            left.key == right.key
                && left.deletion == right.deletion
                && left.static_row() == right.static_row()
                && left.range_tombstones == right.range_tombstones
                && left.rows() == right.rows()
        };
        decoded.updates.len() == updates.len() && decoded.updates.iter().zip(updates).all(is_same)
    }
}

/// Updates out of a run.
#[derive(Clone, Debug)]
pub struct DecodedUpdates {
    /// The updates.
    pub updates: Vec<PartitionUpdate>,
    /// Their bytes, if they are of the current version and nothing of them was left out.
    pub encoded: Option<Box<EncodedUpdates>>,
}

/// Reads an update of another node or of the time before a restart: the schema of this node may be behind the one that the update was made
/// under, and without the cells that it does not know it would be another write. With `layouts`, the cells of a row stay encoded where they
/// can.
///
/// # Errors
///
/// [`UpdatesError::Update`], [`UpdatesError::UnknownTable`], [`UpdatesError::UnknownColumn`].
pub fn decode_received(
    version: Version,
    bytes: &Bytes,
    layouts: Option<&Layouts>,
    table: impl FnOnce(TableId) -> Option<Arc<Table>>,
) -> Result<Decoded, UpdatesError> {
    let mut unknown = None;
    let find = |id| {
        let found = table(id);
        unknown = found.is_none().then_some(id);
        found
    };
    match (decode(version, bytes, layouts, find).map_err(UpdatesError::Update)?, unknown) {
        (Some(decoded), _) if decoded.has_unknown => {
            Err(UpdatesError::UnknownColumn(decoded.update.table.id))
        }
        (Some(decoded), _) => Ok(decoded),
        (None, Some(id)) => Err(UpdatesError::UnknownTable(id)),
        (None, None) => unreachable!("an update is none only of a table that is not known"),
    }
}

/// Reads a run of updates. Their values are slices of `run`; with `layouts`, the cells of a row stay encoded where they can.
///
/// # Errors
///
/// [`UpdatesError`]: nothing of it was read.
pub fn decode_updates(
    run: &Bytes,
    layouts: Option<&Layouts>,
    table: impl Fn(TableId) -> Option<Arc<Table>>,
) -> Result<DecodedUpdates, UpdatesError> {
    let mut reader = Reader::new(run);
    let number = reader.u8()?;
    let version = Version::of_number(number).ok_or(UpdatesError::Version(number))?;
    let count = read_unsigned(&mut reader)?;
    if count > UPDATES_MAX as u64 {
        return Err(UpdatesError::TooMany(count));
    }
    let mut updates = Vec::with_capacity((count as usize).min(64));
    let mut is_whole = version == Version::CURRENT;
    for _ in 0..count {
        let bytes = run.slice_ref(reader.bytes_vint()?);
        let decoded = decode_received(version, &bytes, layouts, &table)?;
        is_whole &= decoded.is_whole;
        updates.push(decoded.update);
    }
    if !reader.is_empty() {
        return Err(UpdatesError::Rest(reader.len()));
    }
    assert_eq!(updates.len() as u64, count, "each update of a run was read");
    Ok(DecodedUpdates { updates, encoded: is_whole.then(|| Box::new(EncodedUpdates { run: run.clone() })) })
}
