//! SSTables of one table that are out of service, and which reads fail for them.

use std::cell::RefCell;

use mutation::PartitionRange;
use sstable::{Descriptor, SstableError};

use crate::{MaintenanceError, ReadError};

/// Every token.
pub(crate) const ALL_TOKENS: (i64, i64) = (i64::MIN, i64::MAX);

/// An SSTable that is out of service.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    /// Its name, if it lies in the table's directory.
    pub(crate) descriptor: Option<Descriptor>,
    /// The first and the last token of its partitions; all tokens where that is not known for certain.
    pub(crate) tokens: (i64, i64),
    /// The problem, its place, and the remedy.
    pub(crate) reason: String,
}

impl Damage {
    /// Whether it may hold partitions of a range.
    fn touches(&self, range: &PartitionRange) -> bool {
        range.start.token() <= self.tokens.1 && range.end.token() >= self.tokens.0
    }
}

/// The SSTables of one table that could not be opened. Their content is not known, so nothing of their ranges is read and nothing of
/// the table is compacted: a purged deletion might be the one that hides their rows.
#[derive(Default)]
pub(crate) struct Damages(RefCell<Vec<Damage>>);

impl Damages {
    /// Takes an SSTable out of service.
    pub(crate) fn add(&self, damage: Damage) {
        assert!(damage.tokens.0 <= damage.tokens.1, "a damaged SSTable has a first and a last token");
        assert!(!damage.reason.is_empty(), "a read that fails for a damage says why");
        let mut all = self.0.borrow_mut();
        assert!(
            damage.descriptor.is_none() || all.iter().all(|known| known.descriptor != damage.descriptor),
            "an SSTable is taken out of service once"
        );
        all.push(damage);
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Those in the table's directory.
    pub(crate) fn files(&self) -> Vec<Descriptor> {
        self.0.borrow().iter().filter_map(|damage| damage.descriptor.clone()).collect()
    }

    /// The problem of each.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.0.borrow().iter().map(|damage| damage.reason.clone()).collect()
    }

    /// An edit removed those in the table's directory.
    pub(crate) fn forget_files(&self) {
        self.0.borrow_mut().retain(|damage| damage.descriptor.is_none());
    }

    /// Refuses a read of a range of which an SSTable is out of service.
    ///
    /// # Errors
    /// [`ReadError::Source`], with the damage.
    pub(crate) fn refuse(&self, range: &PartitionRange) -> Result<(), ReadError> {
        match self.0.borrow().iter().find(|damage| damage.touches(range)) {
            Some(damage) => Err(ReadError::Source(damage.reason.clone().into())),
            None => Ok(()),
        }
    }

    /// Refuses operations that need all SSTables of the table.
    ///
    /// # Errors
    /// [`MaintenanceError::Source`], with the damage.
    pub(crate) fn refuse_any(&self) -> Result<(), MaintenanceError> {
        match self.0.borrow().first() {
            Some(damage) => Err(MaintenanceError::Source(damage.reason.clone().into())),
            None => Ok(()),
        }
    }
}

/// The error that says that a file is damaged, if it does.
pub(crate) fn damage_in<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a SstableError> {
    error.downcast_ref::<SstableError>().filter(|error| matches!(error, SstableError::Corrupt(_)))
}
