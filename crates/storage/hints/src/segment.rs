//! The state of one segment while the shard runs.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use rt::{DiskError, File};

use crate::figures::HintFigures;
use crate::format::{BLOCK_LEN, Position};

/// A file of hints.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// Where its records end.
    pub(crate) end: u64,
    /// All its hints, delivered ones included.
    pub(crate) hints: u64,
    /// When its oldest was kept.
    pub(crate) oldest_micros: i64,
    /// When its newest was kept.
    pub(crate) newest_micros: i64,
    /// How far it is delivered.
    pub(crate) position: Position,
    /// Damaged places that a crash explains.
    pub(crate) torn: u64,
}

impl Segment {
    pub(crate) fn new(number: u64, path: PathBuf) -> Self {
        Self {
            number,
            path,
            end: BLOCK_LEN as u64,
            hints: 0,
            oldest_micros: i64::MAX,
            newest_micros: i64::MIN,
            position: Position { offset: BLOCK_LEN as u64, ..Position::default() },
            torn: 0,
        }
    }

    /// A hint of this time is in it.
    pub(crate) fn note_hint(&mut self, begun_micros: i64) {
        self.hints += 1;
        self.oldest_micros = self.oldest_micros.min(begun_micros);
        self.newest_micros = self.newest_micros.max(begun_micros);
    }

    /// Adds the undelivered hints.
    pub(crate) fn add_to(&self, figures: &mut HintFigures) {
        let count = self.hints.saturating_sub(self.position.hints);
        let bytes = self.end.saturating_sub(self.position.offset);
        figures.add(count, bytes, (self.oldest_micros, self.newest_micros));
        figures.files += 1;
    }
}

/// The segment that a host's hints are written to.
pub(crate) struct Active {
    pub(crate) segment: Segment,
    pub(crate) file: File,
    /// Its end, for sync tasks.
    pub(crate) written: Rc<Cell<u64>>,
}

/// A file with writes that were not synced.
#[derive(Clone)]
pub(crate) struct Unsynced {
    pub(crate) file: File,
    /// How far it is written.
    pub(crate) written: Rc<Cell<u64>>,
    /// A sync failed: the system may take pages for clean that never reached the disk, so they are written again first.
    pub(crate) again: Rc<Cell<bool>>,
}

impl Unsynced {
    pub(crate) fn new(file: File, written: Rc<Cell<u64>>) -> Self {
        Self { file, written, again: Rc::default() }
    }

    /// Makes the written hints durable, and returns their end.
    pub(crate) async fn sync(&self) -> Result<u64, DiskError> {
        let end = self.written.get();
        // Stays set when this is dropped half-way.
        if self.again.replace(true) {
            self.file.rewrite(end).await?;
        }
        self.file.sync_data().await?;
        self.again.set(false);
        Ok(end)
    }
}
