//! The stream that a read gives.

use mutation::Fragment;

use crate::ReadError;

/// What [`EngineReader::try_next_sync`] has to say.
#[derive(Debug)]
pub enum SyncStep {
    /// The next fragment.
    Fragment(Fragment),
    /// The stream has ended.
    End,
    /// A file must be read first: await [`EngineReader::next`].
    Wait,
}

/// The fragments that a read asked for, merged from memtables, cache and SSTables. What deletions hide is gone; the
/// deletions themselves, and expired cells, are there.
pub struct EngineReader {
    _pending: (),
}

impl EngineReader {
    /// The next fragment; none at the end.
    pub async fn next(&mut self) -> Result<Option<Fragment>, ReadError> {
        crate::engine::pending()
    }

    /// The next fragment if it is in memory.
    #[inline]
    pub fn try_next_sync(&mut self) -> Result<SyncStep, ReadError> {
        crate::engine::pending()
    }
}
