//! The kinds of operations whose latencies are recorded.

/// Whether an operation reads or writes; latencies are recorded for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    /// It reads.
    Read = 0,
    /// It writes.
    Write = 1,
}

impl Kind {
    pub(crate) const COUNT: usize = 2;
    pub(crate) const ALL: [(Kind, &str); Kind::COUNT] = [(Kind::Read, "read"), (Kind::Write, "write")];
}
