//! The content of a transfer, and its position. Values.

use bytes::Bytes;

/// The most items of a transfer.
pub const ITEMS_MAX: usize = 65_536;
/// The longest descriptor of an item, and the longest purpose of a plan, in bytes.
pub const DESCRIPTOR_LEN_MAX: usize = 16 << 10;
/// All descriptors of a plan together, in bytes.
pub const DESCRIPTORS_LEN_MAX: usize = 8 << 20;
/// The longest cursor in bytes.
pub const CURSOR_LEN_MAX: usize = 128 << 10;

/// Names a transfer on both sides, and after a restart of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub [u8; 16]);

impl std::fmt::Display for TransferId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ItemKind {
    /// Bytes of a file: the length is known, and any offset can be read again.
    File = 1,
    /// Batches of rows: the length is not known, and a cursor says where the next batch begins.
    Rows = 2,
}

/// One thing to transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its kind.
    pub kind: ItemKind,
    /// Its length in bytes, when that is known.
    pub length: Option<u64>,
    /// Its description for the receiver; opaque here.
    pub descriptor: Bytes,
}

/// Why a list of items is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There are too many.
    #[error("a transfer of {0} items; at most {max} are possible", max = ITEMS_MAX)]
    Items(usize),
    /// Some descriptor, or all together, are too long.
    #[error("descriptors of {0} bytes are too long")]
    Descriptors(usize),
    /// The lengths do not add up.
    #[error("a transfer of more than 2^63 bytes")]
    Length,
}

/// Everything that a transfer consists of. It never changes: another plan has another id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    id: TransferId,
    purpose: Bytes,
    items: Vec<Item>,
}

impl Plan {
    /// A plan, when it is within the limits.
    ///
    /// # Errors
    /// [`PlanError::Items`] and [`PlanError::Descriptors`] when there are too many or they are too long,
    /// [`PlanError::Length`] when the lengths add up to 2^63 bytes or more.
    pub fn new(id: TransferId, purpose: Bytes, items: Vec<Item>) -> Result<Plan, PlanError> {
        if items.len() > ITEMS_MAX {
            return Err(PlanError::Items(items.len()));
        }
        let longest = items.iter().map(|item| item.descriptor.len()).max().unwrap_or(0).max(purpose.len());
        let all: usize = items.iter().map(|item| item.descriptor.len()).sum();
        if longest > DESCRIPTOR_LEN_MAX || all > DESCRIPTORS_LEN_MAX {
            return Err(PlanError::Descriptors(longest.max(all)));
        }
        let mut total = 0u64;
        for length in items.iter().filter_map(|item| item.length) {
            total = total.checked_add(length).filter(|sum| *sum < 1 << 63).ok_or(PlanError::Length)?;
        }
        Ok(Plan { id, purpose, items })
    }

    /// Its name.
    pub fn id(&self) -> TransferId {
        self.id
    }

    /// The purpose of the transfer; opaque here.
    pub fn purpose(&self) -> &Bytes {
        &self.purpose
    }

    /// The items, in this order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Bytes of all items whose length is known, and whether that is all of them.
    pub fn known_bytes(&self) -> (u64, bool) {
        let lengths = self.items.iter().map(|item| item.length);
        (lengths.clone().flatten().sum(), lengths.clone().all(|length| length.is_some()))
    }

    /// The position after everything.
    pub fn end(&self) -> Position {
        Position { item: self.items.len() as u32, offset: 0, cursor: Bytes::new() }
    }

    /// Whether a position lies inside of the plan, or is its end.
    pub fn contains(&self, position: &Position) -> bool {
        match self.items.get(position.item as usize) {
            Some(item) => item.length.is_none_or(|length| position.offset <= length),
            None => *position == self.end(),
        }
    }

    /// The position after so many more bytes of an item.
    pub fn after(&self, from: &Position, bytes: u64, last: bool, cursor: Bytes) -> Position {
        match last {
            true => Position { item: from.item.saturating_add(1), offset: 0, cursor: Bytes::new() },
            false => Position { item: from.item, offset: from.offset.saturating_add(bytes), cursor },
        }
    }

    /// Bytes before a position, as far as lengths are known.
    pub fn bytes_before(&self, position: &Position) -> u64 {
        let whole = self.items.iter().take(position.item as usize).filter_map(|item| item.length);
        whole.sum::<u64>().saturating_add(position.offset)
    }
}

/// How far a transfer has come: everything before is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The item that comes next.
    pub item: u32,
    /// Bytes of it that are there.
    pub offset: u64,
    /// Of rows: where the next batch begins, in the source's own words.
    pub cursor: Bytes,
}

impl Position {
    /// Its place in the order of all positions of a plan.
    pub fn place(&self) -> (u32, u64) {
        (self.item, self.offset)
    }
}
