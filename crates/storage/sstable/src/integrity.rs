//! `Torc.db`: checksums of the components that have none of their own, the shard whose partitions the SSTable holds, and the records of
//! large partitions.
//!
//! Cassandra protects data and statistics and nothing else: a flipped bit in an index, a summary or a filter hides
//! partitions. This component has a checksum for each page of the index, so that a page is checked when it is read, and one
//! of each small component, checked when the SSTable is opened. Cassandra takes it for a custom component that it does not
//! know. An SSTable without it is read as it is; [`crate::certify`] compares all of its files with each other and writes it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::PathBuf;

use rt::{Disk, IoBuf, OpenOptions, Rt};

use crate::decode::Decoder;
use crate::{Component, DecodeError, Descriptor, LargeData, SstableError};

/// The first bytes of the file; the last of them is the version of this format.
const MAGIC: [u8; 8] = *b"TorcSST\x01";
/// The first bytes of a file that ends with large data. Without any the earlier version is written, which every node reads.
const MAGIC_WITH_LARGE: [u8; 8] = *b"TorcSST\x02";
/// Bytes of an index page that a checksum covers.
pub(crate) const PAGE_LEN: u32 = 16 << 10;
/// The longest index page that is accepted.
const PAGE_LEN_MAX: u32 = 1 << 20;
const _: () = assert!(PAGE_LEN <= PAGE_LEN_MAX, "pages that are written are accepted");
/// Longer files are not believed; this one has checksums of 4 TiB of index.
const FILE_LEN_MAX: usize = 1 << 30;
/// The largest component that is read as a whole.
const COMPONENT_LEN_MAX: usize = 4 << 30;
/// Components with one checksum, by the number that names each. Statistics have their own from 4.0 on.
const WHOLE: [Component; 5] = [
    Component::Summary,
    Component::Filter,
    Component::CompressionInfo,
    Component::Crc,
    Component::Statistics,
];

/// The shard whose partitions an SSTable holds, and of how many shards of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The shard, from 0.
    pub shard: u16,
    /// How many shards there are.
    pub shards: u16,
}

/// Checksums of a file's pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageChecksums {
    /// Bytes of a page; the last one may be shorter.
    pub page_len: u32,
    /// Length of the file, bytes.
    pub file_len: u64,
    /// CRC32 of each page.
    pub crcs: Vec<u32>,
}

/// The content of the component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integrity {
    /// Length of the data file, bytes.
    pub data_len: u64,
    /// The owner of its partitions; none when there are several owners or nobody looked.
    pub owner: Option<Owner>,
    /// Of the index.
    pub index: PageChecksums,
    /// Length and CRC32 of small components.
    pub whole: Vec<(Component, u64, u32)>,
    /// Its large partitions, rows and cells.
    pub large: LargeData,
}

/// Computes [`PageChecksums`] of bytes that come in order.
#[derive(Debug, Default)]
pub(crate) struct PageHasher {
    hasher: crc32fast::Hasher,
    len: u64,
    crcs: Vec<u32>,
}

impl PageHasher {
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = u64::from(PAGE_LEN) - self.len % u64::from(PAGE_LEN);
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            self.hasher.update(now);
            assert!(!now.is_empty(), "a page that is full was given its checksum");
            self.len += now.len() as u64;
            if self.len.is_multiple_of(u64::from(PAGE_LEN)) {
                self.crcs.push(std::mem::take(&mut self.hasher).finalize());
            }
            bytes = later;
        }
    }

    pub(crate) fn finish(mut self) -> PageChecksums {
        if !self.len.is_multiple_of(u64::from(PAGE_LEN)) {
            self.crcs.push(self.hasher.finalize());
        }
        let pages = self.len.div_ceil(u64::from(PAGE_LEN));
        assert_eq!(self.crcs.len() as u64, pages, "each page has a checksum");
        PageChecksums { page_len: PAGE_LEN, file_len: self.len, crcs: self.crcs }
    }
}

impl Integrity {
    /// The file's bytes.
    #[expect(clippy::expect_used, reason = "the list has every small component")]
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=PAGE_LEN_MAX).contains(&self.index.page_len), "a page length that can be read again");
        let pages = self.index.file_len.div_ceil(u64::from(self.index.page_len));
        assert_eq!(self.index.crcs.len() as u64, pages, "each page of the index has a checksum");
        assert!(self.whole.len() <= usize::from(u8::MAX), "the number of components is a byte");
        let mut out = Vec::with_capacity(64 + self.index.crcs.len() * 4 + self.whole.len() * 13);
        out.extend_from_slice(if self.large.is_empty() { &MAGIC } else { &MAGIC_WITH_LARGE });
        out.extend_from_slice(&self.data_len.to_be_bytes());
        let owner = self.owner.unwrap_or(Owner { shard: 0, shards: 0 });
        out.extend_from_slice(&owner.shard.to_be_bytes());
        out.extend_from_slice(&owner.shards.to_be_bytes());
        out.extend_from_slice(&self.index.page_len.to_be_bytes());
        out.extend_from_slice(&self.index.file_len.to_be_bytes());
        for crc in &self.index.crcs {
            out.extend_from_slice(&crc.to_be_bytes());
        }
        out.push(self.whole.len() as u8);
        for (component, len, crc) in &self.whole {
            let number = WHOLE.iter().position(|known| known == component);
            out.push(number.expect("only small components have one checksum") as u8);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&crc.to_be_bytes());
        }
        if !self.large.is_empty() {
            self.large.encode(&mut out);
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out
    }

    /// Decodes the output of [`Integrity::encode`].
    ///
    /// # Errors
    /// When the bytes are damaged, or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some((content, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(DecodeError::new(0, "a checksum", format!("{} bytes", bytes.len())));
        };
        let (stored, found) = (u32::from_be_bytes(*crc), crc32fast::hash(content));
        if stored != found {
            return Err(DecodeError::new(0, format!("checksum {stored:08x}"), format!("{found:08x}")));
        }
        let mut decoder = Decoder::new(content);
        let magic = decoder.bytes(MAGIC.len(), "magic")?;
        let has_large = magic == MAGIC_WITH_LARGE;
        if magic != MAGIC && !has_large {
            return Err(decoder.wrong(MAGIC.len(), format!("{MAGIC:02x?}"), format!("{magic:02x?}")));
        }
        let data_len = decoder.u64("length of the data")?;
        let halves = decoder.u32("owner")?;
        let owner = Owner { shard: (halves >> 16) as u16, shards: halves as u16 };
        let page_len = decoder.u32("length of an index page")?;
        let file_len = decoder.u64("length of the index")?;
        if page_len == 0 || page_len > PAGE_LEN_MAX {
            return Err(decoder.wrong(
                12,
                format!("pages of 1 to {PAGE_LEN_MAX} bytes"),
                page_len.to_string(),
            ));
        }
        let pages = usize::try_from(file_len.div_ceil(u64::from(page_len))).unwrap_or(usize::MAX);
        let crcs = decoder.bytes(pages.saturating_mul(4), "checksums of the index")?;
        let crcs = crcs.as_chunks::<4>().0.iter().map(|crc| u32::from_be_bytes(*crc)).collect();
        let count = decoder.u8("number of components")?;
        let mut whole = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let number = decoder.u8("component")?;
            let Some(component) = WHOLE.get(usize::from(number)) else {
                return Err(decoder.wrong(1, "the number of a component", number.to_string()));
            };
            whole.push((*component, decoder.u64("length")?, decoder.u32("checksum")?));
        }
        let large = if has_large { LargeData::decode(&mut decoder)? } else { LargeData::default() };
        decoder.end()?;
        let owner = (owner.shards > 0).then_some(owner);
        Ok(Self { data_len, owner, index: PageChecksums { page_len, file_len, crcs }, whole, large })
    }

    /// Reads the component of an SSTable; none when it has none.
    ///
    /// # Errors
    /// When it is damaged, or the disk fails.
    pub async fn read(disk: &Disk, descriptor: &Descriptor) -> Result<Option<Self>, SstableError> {
        let path = descriptor.path(Component::Torc);
        match disk.read_to_end(&path, FILE_LEN_MAX).await {
            Ok(bytes) => Self::decode(&bytes).map(Some).map_err(|error| error.in_file(&path, 0)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a component had been there when this was written.
    pub fn lists(&self, component: Component) -> bool {
        self.whole.iter().any(|(listed, ..)| *listed == component)
    }

    /// Compares the content of a small component.
    ///
    /// # Errors
    /// When it has changed.
    pub fn check(
        &self,
        descriptor: &Descriptor,
        component: Component,
        bytes: &[u8],
    ) -> Result<(), SstableError> {
        let Some((_, len, crc)) = self.whole.iter().find(|(listed, ..)| *listed == component) else {
            return Ok(());
        };
        let (found_len, found) = (bytes.len() as u64, crc32fast::hash(bytes));
        if (*len, *crc) == (found_len, found) {
            return Ok(());
        }
        Err(SstableError::corrupt(
            &descriptor.path(component),
            0,
            format!("{len} bytes with checksum {crc:08x}, as {} says", Component::Torc.name()),
            format!("{found_len} bytes with {found:08x}"),
        ))
    }

    /// Compares the length of a file.
    pub(crate) fn check_len(
        descriptor: &Descriptor,
        component: Component,
        expected: u64,
        found: u64,
    ) -> Result<(), SstableError> {
        if expected == found {
            return Ok(());
        }
        let path = descriptor.path(component);
        Err(SstableError::corrupt(&path, expected.min(found), format!("{expected} bytes"), found.to_string()))
    }

    /// Of the files as they are.
    pub(crate) async fn of_files(
        rt: &Rt,
        descriptor: &Descriptor,
        owner: Option<Owner>,
    ) -> Result<Self, SstableError> {
        let disk = rt.disk();
        let data_len = disk.len(descriptor.path(Component::Data)).await?;
        let index = disk.open(descriptor.path(Component::Index), OpenOptions::READ).await?;
        let mut hasher = PageHasher::default();
        loop {
            let part = index.read_at(hasher.len, 256 << 10).await?;
            if part.is_empty() {
                break;
            }
            hasher.update(&part);
            rt.maybe_yield().await;
        }
        let mut whole = Vec::new();
        for component in WHOLE {
            if component == Component::Statistics && descriptor.version.capabilities().has_metadata_checksums
            {
                continue;
            }
            match disk.read_to_end(descriptor.path(component), COMPONENT_LEN_MAX).await {
                Ok(bytes) => whole.push((component, bytes.len() as u64, crc32fast::hash(&bytes))),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { data_len, owner, index: hasher.finish(), whole, large: LargeData::default() })
    }
}

/// Notes whose partitions an SSTable has; none where they may be another shard's by the next start.
///
/// # Errors
/// When the disk fails.
pub async fn note_owner(
    disk: &Disk,
    descriptor: &Descriptor,
    integrity: Integrity,
    owner: Option<Owner>,
) -> Result<(), SstableError> {
    if integrity.owner == owner {
        return Ok(());
    }
    write(disk, descriptor, &Integrity { owner, ..integrity }).await
}

/// Writes the component anew.
pub(crate) async fn write(
    disk: &Disk,
    descriptor: &Descriptor,
    content: &Integrity,
) -> Result<(), SstableError> {
    replace(disk, descriptor, descriptor.path(Component::Torc), &content.encode()).await
}

/// Replaces a file as a whole, without ever giving a TOC its temporary name.
pub(crate) async fn replace(
    disk: &Disk,
    of: &Descriptor,
    path: PathBuf,
    bytes: &[u8],
) -> Result<(), SstableError> {
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let file = disk.open(&new, OpenOptions { truncate: true, ..OpenOptions::READ_WRITE }).await?;
    file.write_at(0, IoBuf::copy_of(bytes)).await?;
    file.sync_all().await?;
    disk.rename(&new, &path).await?;
    Ok(disk.sync_dir(&of.dir).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LargeKind, LargeRecord};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_back_and_damage_is_noticed(
            index in prop::collection::vec(any::<u8>(), 0..40_000),
            parts in prop::collection::vec(any::<u8>(), 1..50),
            owner in prop::option::of((any::<u16>(), 1u16..)),
            large_count in 0usize..12,
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let mut hasher = PageHasher::default();
            let step = parts.iter().map(|part| usize::from(*part)).sum::<usize>() + 1;
            index.chunks(step).for_each(|part| hasher.update(part));
            let checksums = hasher.finish();
            let expected: Vec<u32> = index.chunks(PAGE_LEN as usize).map(crc32fast::hash).collect();
            prop_assert_eq!(&checksums.crcs, &expected);
            let whole = vec![(Component::Filter, 7, 9), (Component::Crc, u64::MAX, 0)];
            let owner = owner.map(|(shard, shards)| Owner { shard, shards });
            let mut large = LargeData::default();
            for part in parts.iter().take(large_count) {
                let kind = LargeKind::Row { clustering: part.to_string() };
                let (token, key) = (i64::from(*part), "k".to_owned());
                large.add(LargeRecord { token, key, bytes: u64::from(*part), written_micros: 3, kind });
            }
            let written = Integrity { data_len: 77, owner, index: checksums, whole, large };
            let mut bytes = written.encode();
            prop_assert_eq!(&Integrity::decode(&bytes).unwrap(), &written);
            let at = at.index(bytes.len());
            prop_assert!(Integrity::decode(&bytes[..at]).is_err());
            bytes[at] ^= 1 << bit;
            prop_assert!(Integrity::decode(&bytes).is_err());
        }
    }
}
