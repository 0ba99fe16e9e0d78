//! Rows whose cells are taken over as an update has them: which updates allow it, and the check of their bytes.
//!
//! The replica that receives a write of plain columns neither looks each name up nor makes each cell: the layout of the columns is found
//! by the bytes of their names, and the cells are copied in one piece when they have the only form in which this build writes them.

use std::cell::RefCell;
use std::sync::Arc;

use schema::Table;
use stdx::Reader;
use stdx::vint::{read_unsigned, unsigned_len};

use super::{CELL_TOMBSTONE, CELL_TTL, CELL_VALUE};
use crate::NO_DELETION;
use crate::encoded::{CELLS_MAX, RowLayout};

/// Layouts that are remembered.
const SLOTS: usize = 64;

/// The layouts of the columns that updates have named. Each shard that receives updates has its own.
pub struct Layouts(RefCell<[Option<Arc<RowLayout>>; SLOTS]>);

impl Default for Layouts {
    fn default() -> Self {
        Self(RefCell::new([const { None }; SLOTS]))
    }
}

fn slot(table: &Table, names: &[u8]) -> usize {
    let id = u64::from(table.id.0[0]) ^ u64::from(table.id.0[7]) << 3;
    let names = names.len() as u64 ^ u64::from(names.last().copied().unwrap_or(0)) << 2;
    (id ^ names) as usize % SLOTS
}

impl Layouts {
    /// The layout of the columns with these names, each with its length, of this version of a table; if it was seen before.
    pub(super) fn find(&self, table: &Table, names: &[u8]) -> Option<Arc<RowLayout>> {
        let layouts = self.0.borrow();
        let layout = layouts.get(slot(table, names))?.as_ref()?;
        (layout.names_of(table)? == names).then(|| Arc::clone(layout))
    }

    /// Remembers a layout, instead of another perhaps.
    pub(super) fn remember(&self, table: &Table, layout: &Arc<RowLayout>) {
        let Some(names) = layout.names_of(table) else { return };
        if let Some(slot) = self.0.borrow_mut().get_mut(slot(table, names)) {
            *slot = Some(Arc::clone(layout));
        }
    }
}

/// The length of `count` cells at the front of `bytes`, and whether all are values without an end; their ends are put into `ends`. None when they are not in the form of
/// [`crate::encoded`]: numbered in order, of the update's time, and as short as can be.
pub(super) fn scan(bytes: &[u8], count: usize, ends: &mut [u32; CELLS_MAX]) -> Option<(usize, bool)> {
    let mut is_lasting = true;
    let mut reader = Reader::new(bytes);
    for (number, end) in ends.iter_mut().enumerate().take(count) {
        let [at, flags, timestamp] = reader.array().ok()?;
        if usize::from(at) != number || timestamp != 0 {
            return None;
        }
        is_lasting &= flags & !CELL_VALUE == 0;
        match flags & !CELL_VALUE {
            0 => {}
            CELL_TTL => {
                let (ttl, expires) = (reader.u32().ok()?, reader.u32().ok()?);
                if ttl == 0 || expires == NO_DELETION {
                    return None;
                }
            }
            CELL_TOMBSTONE if flags == CELL_TOMBSTONE => {
                if reader.u32().ok()? == NO_DELETION {
                    return None;
                }
            }
            _ => return None,
        }
        if flags & CELL_VALUE != 0 {
            let before = reader.len();
            let len = read_unsigned(&mut reader).ok()?;
            if len == 0 || before - reader.len() != unsigned_len(len) {
                return None;
            }
            reader.bytes(usize::try_from(len).ok()?).ok()?;
        }
        *end = u32::try_from(bytes.len() - reader.len()).ok()?;
    }
    Some((bytes.len() - reader.len(), is_lasting))
}
