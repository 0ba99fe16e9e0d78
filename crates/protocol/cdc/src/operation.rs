//! The meaning of a row of a log: the column `cdc$operation`, in ScyllaDB's numbers.

/// The meaning of a row of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Operation {
    /// The row before the change.
    Preimage = 0,
    /// Cells of a row were written.
    Update = 1,
    /// The same by a statement that makes the row exist.
    Insert = 2,
    /// A row was deleted.
    RowDelete = 3,
    /// All rows of the partition were deleted.
    PartitionDelete = 4,
    /// Deleted rows begin with this one.
    RangeFromInclusive = 5,
    /// Deleted rows begin behind this one.
    RangeFromExclusive = 6,
    /// Deleted rows end with this one.
    RangeToInclusive = 7,
    /// Deleted rows end before this one.
    RangeToExclusive = 8,
    /// The row after the change.
    Postimage = 9,
}

impl Operation {
    const ALL: [Self; 10] = [
        Self::Preimage,
        Self::Update,
        Self::Insert,
        Self::RowDelete,
        Self::PartitionDelete,
        Self::RangeFromInclusive,
        Self::RangeFromExclusive,
        Self::RangeToInclusive,
        Self::RangeToExclusive,
        Self::Postimage,
    ];

    /// Its number in a log.
    pub fn code(self) -> i8 {
        self as i8
    }

    /// The operation of a number; none for one that no log has.
    pub fn of_code(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.code() == code)
    }
}
