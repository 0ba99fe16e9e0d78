//! The content of a simulated file: a reader's view, and the content after a power loss.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::random::Rng;

pub(crate) const PAGE: usize = 4096;
/// The unit that a disk writes whole or not at all.
pub(crate) const SECTOR: usize = 512;

type Page = Rc<[u8; PAGE]>;

/// A file's pages twice: as written, and as durable. Pages that are in neither read as zeros.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pages: BTreeMap<u64, Page>,
    len: u64,
    /// Pages below this number have space on the disk whether written or not.
    allocated_pages: u64,
    /// Pages written at or above that number.
    pages_beyond: u64,
    dirty: BTreeSet<u64>,
    durable: BTreeMap<u64, Page>,
    durable_len: u64,
    /// A failed sync has dropped pages that are neither durable nor dirty any more.
    forgetful: bool,
}

/// The content that a sync under way will make durable.
pub(crate) struct Snapshot {
    pages: BTreeMap<u64, Option<Page>>,
    len: u64,
}

impl Snapshot {
    /// A later sync of the same file, which covered all of this one, has succeeded before it.
    pub(crate) fn overtaken_by(&mut self, len: u64) {
        self.pages.clear();
        self.len = len;
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

impl Content {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Space taken, in pages.
    pub(crate) fn pages_used(&self) -> u64 {
        self.allocated_pages + self.pages_beyond
    }

    /// Pages that a write of this range would have to take.
    pub(crate) fn pages_missing(&self, position: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let first = (position / PAGE as u64).max(self.allocated_pages);
        let last = (position + len - 1) / PAGE as u64;
        if first > last {
            return 0;
        }
        (last - first + 1) - self.pages.range(first..=last).count() as u64
    }

    pub(crate) fn read(&self, position: u64, out: &mut [u8]) -> usize {
        let len = (self.len.saturating_sub(position)).min(out.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = position + done as u64;
            let offset = (at % PAGE as u64) as usize;
            let part = (PAGE - offset).min(len - done);
            match self.pages.get(&(at / PAGE as u64)) {
                Some(page) => out[done..done + part].copy_from_slice(&page[offset..offset + part]),
                None => out[done..done + part].fill(0),
            }
            done += part;
        }
        len
    }

    pub(crate) fn write(&mut self, position: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = position + done as u64;
            let number = at / PAGE as u64;
            let offset = (at % PAGE as u64) as usize;
            let part = (PAGE - offset).min(bytes.len() - done);
            let page = self.pages.entry(number).or_insert_with(|| {
                self.pages_beyond += u64::from(number >= self.allocated_pages);
                Rc::new([0; PAGE])
            });
            Rc::make_mut(page)[offset..offset + part].copy_from_slice(&bytes[done..done + part]);
            self.dirty.insert(number);
            done += part;
        }
        self.len = self.len.max(position + bytes.len() as u64);
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let keep = len.div_ceil(PAGE as u64);
            let cut = self.pages.split_off(&keep);
            self.dirty.extend(cut.keys());
            self.allocated_pages = self.allocated_pages.min(keep);
            let tail = (len % PAGE as u64) as usize;
            if tail > 0
                && let Some(page) = self.pages.get_mut(&(len / PAGE as u64))
            {
                Rc::make_mut(page)[tail..].fill(0);
                self.dirty.insert(len / PAGE as u64);
            }
        }
        self.len = len;
        self.count_pages();
    }

    fn count_pages(&mut self) {
        self.pages_beyond = self.pages.range(self.allocated_pages..).count() as u64;
    }

    pub(crate) fn allocate(&mut self, position: u64, len: u64) {
        self.len = self.len.max(position + len);
        self.allocated_pages = self.allocated_pages.max((position + len).div_ceil(PAGE as u64));
        self.count_pages();
    }

    /// Begins a sync: later writes are not part of it; unfinished writes of other syncs under way (`others`)
    /// are.
    pub(crate) fn begin_sync<'a>(&mut self, others: impl Iterator<Item = &'a Snapshot>) -> Snapshot {
        let mut numbers = std::mem::take(&mut self.dirty);
        numbers.extend(others.flat_map(|other| other.pages.keys().copied()));
        let pages = numbers.into_iter().map(|number| (number, self.pages.get(&number).cloned())).collect();
        Snapshot { pages, len: self.len }
    }

    /// The sync succeeded.
    pub(crate) fn end_sync(&mut self, snapshot: Snapshot) {
        for (number, page) in snapshot.pages {
            match page {
                Some(page) => self.durable.insert(number, page),
                None => self.durable.remove(&number),
            };
        }
        self.durable_len = snapshot.len;
    }

    /// The sync was cut off by a power loss or failed without forgetting: its pages are dirty still.
    pub(crate) fn abort_sync(&mut self, snapshot: &Snapshot) {
        self.dirty.extend(snapshot.pages.keys());
    }

    /// The sync failed and the system forgets that its pages are dirty.
    pub(crate) fn forget_sync(&mut self) {
        self.forgetful = true;
    }

    /// Whether a power loss could change anything.
    pub(crate) fn is_durable(&self) -> bool {
        self.dirty.is_empty() && self.len == self.durable_len && !self.forgetful
    }

    /// Loses power: of the unsynced writes, all, none, or single sectors survive.
    pub(crate) fn power_loss(&mut self, rng: &mut Rng) {
        let dirty = std::mem::take(&mut self.dirty);
        let new_len_survives = rng.below(2) == 0;
        let mut after = self.durable.clone();
        let manner = rng.below(3);
        for number in dirty {
            if manner == 0 {
                continue;
            }
            let empty = || Rc::new([0u8; PAGE]);
            let new = self.pages.get(&number).cloned().unwrap_or_else(empty);
            let page = after.entry(number).or_insert_with(empty);
            for sector in 0..PAGE / SECTOR {
                if manner == 1 || rng.below(2) == 0 {
                    let range = sector * SECTOR..(sector + 1) * SECTOR;
                    Rc::make_mut(page)[range.clone()].copy_from_slice(&new[range]);
                }
            }
        }
        self.len = if new_len_survives { self.len } else { self.durable_len };
        self.pages = after;
        // Bytes behind the end do not exist.
        let len = self.len;
        self.len = u64::MAX;
        self.set_len(len);
        self.dirty.clear();
        self.durable = self.pages.clone();
        self.durable_len = len;
        self.forgetful = false;
    }

    /// The file as it is on disk now.
    pub(crate) fn image(&self) -> Content {
        let (pages, allocated_pages) = (self.durable.clone(), self.allocated_pages);
        let mut image = Content { pages, allocated_pages, len: u64::MAX, ..Content::default() };
        image.set_len(self.durable_len);
        image.dirty.clear();
        image.durable = image.pages.clone();
        image.durable_len = image.len;
        image
    }

    /// Changes one bit in each sector that the range touches, on the medium and as read.
    pub(crate) fn corrupt(&mut self, position: u64, len: u64, rng: &mut Rng) {
        let end = (position + len).min(self.len);
        let mut at = position;
        while at < end {
            let sector_end = (at / SECTOR as u64 + 1) * SECTOR as u64;
            let victim = at + rng.below(sector_end.min(end) - at);
            let bit = 1u8 << rng.below(8);
            for pages in [&mut self.pages, &mut self.durable] {
                let page = pages.entry(victim / PAGE as u64).or_insert_with(|| Rc::new([0; PAGE]));
                Rc::make_mut(page)[(victim % PAGE as u64) as usize] ^= bit;
            }
            at = sector_end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(content: &Content) -> Vec<u8> {
        let mut bytes = vec![0; content.len() as usize];
        assert_eq!(content.read(0, &mut bytes), bytes.len());
        bytes
    }

    #[test]
    fn reads_written_bytes() {
        let mut content = Content::default();
        content.write(5000, b"hello");
        assert_eq!(content.len(), 5005);
        let bytes = all(&content);
        assert!(bytes[..5000].iter().all(|byte| *byte == 0));
        assert_eq!(&bytes[5000..], b"hello");
        content.set_len(5002);
        content.set_len(6000);
        assert_eq!(&all(&content)[5000..5005], b"he\0\0\0");
        assert_eq!(content.pages_used(), 1);
        assert_eq!(content.pages_missing(0, 10_000), 2);
        content.allocate(0, 10_000);
        assert_eq!((content.pages_used(), content.pages_missing(0, 10_000)), (3, 0));
    }

    #[test]
    fn a_power_failure_keeps_synced_bytes_and_whole_sectors() {
        let mut kept = [0; 3];
        for seed in 0..200 {
            let mut rng = Rng::new(seed, 0);
            let mut content = Content::default();
            content.write(0, &[1; 3 * PAGE]);
            let snapshot = content.begin_sync(std::iter::empty());
            content.end_sync(snapshot);
            content.write(PAGE as u64, &[2; 2 * PAGE]);
            assert!(!content.is_durable());
            content.power_loss(&mut rng);
            let bytes = all(&content);
            assert!(bytes[..PAGE].iter().all(|byte| *byte == 1), "synced and untouched");
            let sectors: Vec<u8> = bytes[PAGE..].chunks(SECTOR).map(|sector| sector[0]).collect();
            for (sector, first) in bytes[PAGE..].chunks(SECTOR).zip(&sectors) {
                assert!(sector.iter().all(|byte| byte == first), "a sector is whole");
            }
            let new = sectors.iter().filter(|first| **first == 2).count();
            kept[if new == 0 {
                0
            } else if new == sectors.len() {
                1
            } else {
                2
            }] += 1;
            assert!(content.is_durable());
        }
        assert!(kept.iter().all(|count| *count > 20), "lost, kept and torn all happen: {kept:?}");
    }

    #[test]
    fn an_image_has_the_synced_bytes_and_stays_as_it_is() {
        let mut content = Content::default();
        content.write(0, &[1; 2 * PAGE]);
        let snapshot = content.begin_sync(std::iter::empty());
        content.end_sync(snapshot);
        content.write(0, &[2; 3 * PAGE]);
        let image = content.image();
        assert_eq!(all(&image), [1; 2 * PAGE]);
        assert!(image.is_durable());
        content.write(0, &[3; PAGE]);
        let snapshot = content.begin_sync(std::iter::empty());
        content.end_sync(snapshot);
        assert_eq!(all(&image), [1; 2 * PAGE]);
        content.set_len(10);
        assert_eq!(all(&content.image())[..PAGE], [3; PAGE], "the cut is not on disk yet");
    }

    #[test]
    fn a_sync_covers_writes_before_it_began() {
        for seed in 0..50 {
            let mut content = Content::default();
            content.write(0, b"before");
            let snapshot = content.begin_sync(std::iter::empty());
            content.write(0, b"during");
            content.end_sync(snapshot);
            content.power_loss(&mut Rng::new(seed, 0));
            let bytes = all(&content);
            assert!(bytes == b"before" || bytes == b"during", "{bytes:?}");
        }
    }
}
