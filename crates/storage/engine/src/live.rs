//! SSTables in use: each is shared by the set of its table and by the readers that are under way, and its files are
//! removed when it left the set and the last reader is gone.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;

use rt::sync::Notify;
use rt::{Disk, DiskError};
use sstable::{Descriptor, Sstable};

use crate::error::is_shortage;
use crate::salvaged::Salvaged;

/// Where SSTables go that nobody needs any more; one task of the shard empties it.
#[derive(Default)]
pub(crate) struct Trash {
    queue: RefCell<VecDeque<Discarded>>,
    pub(crate) filled: Notify,
    bytes: Cell<u64>,
}

/// The files of an SSTable that nobody needs.
struct Discarded {
    descriptor: Descriptor,
    indexes: Vec<PathBuf>,
    removal: Rc<Removal>,
}

/// A committed edit whose files are still to be removed; the log of the edit goes last.
pub(crate) struct Removal {
    left: Cell<usize>,
    log: Option<PathBuf>,
}

impl Removal {
    /// An edit that removes `count` SSTables, recorded in `log`; none when the log is to stay for the next start.
    pub(crate) fn new(count: usize, log: Option<PathBuf>) -> Rc<Self> {
        assert!(count > 0, "an edit without removals has no log to keep");
        Rc::new(Self { left: Cell::new(count), log })
    }
}

impl Trash {
    /// Bytes of SSTables that left their sets and are still on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Takes an SSTable that a committed edit removed and that was never in use.
    pub(crate) fn add(&self, descriptor: Descriptor, removal: &Rc<Removal>) {
        self.queue.borrow_mut().push_back(Discarded {
            descriptor,
            indexes: Vec::new(),
            removal: removal.clone(),
        });
        self.filled.notify_one();
    }

    /// Removes the files of its SSTables; files that cannot be removed stay for the next start, which finishes by the edit's log.
    pub(crate) async fn empty(&self, disk: &Disk) -> Result<(), DiskError> {
        loop {
            let Some(discarded) = self.queue.borrow_mut().pop_front() else { return Ok(()) };
            for index in &discarded.indexes {
                // Files that cannot be removed now are removed by the next start.
                let _ = disk.remove(index).await;
            }
            let removed = sstable::remove(disk, &discarded.descriptor).await;
            if let Err(sstable::SstableError::Disk(error)) = removed {
                if is_shortage(&error) {
                    // It is tried again with the next.
                    self.queue.borrow_mut().push_back(discarded);
                }
                return Err(error);
            }
            let removal = discarded.removal;
            let left = removal.left.get();
            assert!(left > 0, "an edit removes as many SSTables as it said");
            removal.left.set(left - 1);
            if removal.left.get() == 0
                && let Some(log) = &removal.log
            {
                match disk.remove(log).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
    }
}

/// An SSTable of the set, or of a reader that saw the set earlier.
pub(crate) struct LiveSstable {
    pub(crate) sstable: Rc<Sstable>,
    removal: RefCell<Option<Rc<Removal>>>,
    trash: Rc<Trash>,
    /// Taken by a compaction.
    pub(crate) compacting: Cell<bool>,
    /// A read or a compaction found it damaged ([`crate::salvage`]).
    pub(crate) suspect: Cell<bool>,
    /// The readable part of it was written anew: repairs do without it.
    pub(crate) salvaged: RefCell<Option<Salvaged>>,
    /// It is damaged, and no repair may do without it.
    pub(crate) is_beyond_repair: Cell<bool>,
    /// The number of the mark that covers it first; 0 when none does ([`crate::marks`]).
    pub(crate) covered_by: Cell<u64>,
    /// Its indexes ([`crate::indexes`]).
    pub(crate) indexes: RefCell<Vec<Rc<index::IndexFile>>>,
    /// When it came to be, microseconds of the wall clock; 0 when it was there at the start.
    pub(crate) since_micros: i64,
}

impl LiveSstable {
    pub(crate) fn new(sstable: Rc<Sstable>, trash: &Rc<Trash>, since_micros: i64) -> Rc<Self> {
        Rc::new(Self {
            sstable,
            removal: RefCell::new(None),
            trash: trash.clone(),
            compacting: Cell::new(false),
            suspect: Cell::new(false),
            salvaged: RefCell::new(None),
            is_beyond_repair: Cell::new(false),
            covered_by: Cell::new(0),
            indexes: RefCell::default(),
            since_micros,
        })
    }

    /// Takes down that a mark covers it.
    pub(crate) fn cover(&self, number: u64) {
        let before = self.covered_by.replace(number);
        assert_eq!(before, 0, "the first mark that covers an SSTable is kept");
    }

    /// Says that a committed edit removed it: its files go when the last user does.
    pub(crate) fn obsolete(&self, removal: &Rc<Removal>) {
        let before = self.removal.borrow_mut().replace(removal.clone());
        assert!(before.is_none(), "an SSTable is removed once");
        self.trash.bytes.set(self.trash.bytes.get() + self.sstable.disk_len());
    }
}

/// The mark that covers the merge of SSTables: the number that covers all of them, 0 where one is not covered.
pub(crate) fn covers_all(inputs: &[Rc<LiveSstable>]) -> u64 {
    assert!(!inputs.is_empty(), "a merge has inputs");
    let numbers = || inputs.iter().map(|live| live.covered_by.get());
    if numbers().any(|number| number == 0) { 0 } else { numbers().max().unwrap_or(0) }
}

impl Drop for LiveSstable {
    fn drop(&mut self) {
        if let Some(removal) = self.removal.borrow_mut().take() {
            let (bytes, len) = (self.trash.bytes.get(), self.sstable.disk_len());
            assert!(bytes >= len, "bytes of obsolete SSTables were counted when they left the set");
            self.trash.bytes.set(bytes - len);
            let indexes = self.indexes.borrow().iter().map(|file| file.path().to_owned()).collect();
            let descriptor = self.sstable.descriptor().clone();
            self.trash.queue.borrow_mut().push_back(Discarded { descriptor, indexes, removal });
            self.trash.filled.notify_one();
        }
    }
}
