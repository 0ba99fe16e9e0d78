//! Names of SSTables and their files: `nb-7-big-Data.db` in a table's directory.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use rt::Disk;

use crate::{SstableError, Version};

/// The identifier of an SSTable of a table: a rising number, or the time-ordered text that Cassandra can be told to use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// A number from 1.
    Number(u64),
    /// Such as `3gub_0a2o_2xnhc2ejdkv5ccufvt`.
    Time(String),
}

impl Generation {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse::<u64>() {
            return Some(Self::Number(number));
        }
        let well_formed = text.len() == 28
            && text.bytes().all(|b| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit());
        well_formed.then(|| Self::Time(text.to_owned()))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Time(text) => text.fmt(f),
        }
    }
}

/// One of the files of an SSTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The partitions.
    Data,
    /// Where each partition lies, and the row index of wide ones.
    Index,
    /// A sample of the index.
    Summary,
    /// Bloom filter of partition keys.
    Filter,
    /// Metadata.
    Statistics,
    /// Where each compressed chunk lies.
    CompressionInfo,
    /// Checksum of the whole data file.
    Digest,
    /// Checksums of the chunks of an uncompressed data file.
    Crc,
    /// Checksums of the components without one of their own, and whose partitions these are ([`crate::integrity`]).
    Torc,
    /// The list of components; gets its name last.
    Toc,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Index,
        Self::Summary,
        Self::Filter,
        Self::Statistics,
        Self::CompressionInfo,
        Self::Digest,
        Self::Crc,
        Self::Torc,
        Self::Toc,
    ];

    /// The last part of the file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "Data.db",
            Self::Index => "Index.db",
            Self::Summary => "Summary.db",
            Self::Filter => "Filter.db",
            Self::Statistics => "Statistics.db",
            Self::CompressionInfo => "CompressionInfo.db",
            Self::Digest => "Digest.crc32",
            Self::Crc => "CRC.db",
            Self::Torc => "Torc.db",
            Self::Toc => "TOC.txt",
        }
    }

    /// The component of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|component| component.name() == name)
    }
}

/// Names one SSTable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    /// The table's directory.
    pub dir: PathBuf,
    /// Which of the table's SSTables.
    pub generation: Generation,
    /// The format's version.
    pub version: Version,
}

impl Descriptor {
    /// The SSTable with this number, in the version that is written.
    pub fn new(dir: impl Into<PathBuf>, generation: u64) -> Self {
        assert!(generation > 0, "generations begin at 1");
        Self { dir: dir.into(), generation: Generation::Number(generation), version: Version::CURRENT }
    }

    /// The path of one of its files.
    pub fn path(&self, component: Component) -> PathBuf {
        let (version, format) = (self.version.name(), self.version.format().name());
        self.dir.join(format!("{version}-{}-{format}-{}", self.generation, component.name()))
    }

    /// The path of the TOC while the SSTable is being written or removed; see [`remove_unfinished`].
    pub fn temporary_toc(&self) -> PathBuf {
        let mut name = self.path(Component::Toc).into_os_string();
        name.push(TEMPORARY);
        PathBuf::from(name)
    }

    /// The SSTable that a file belongs to, and which of its files it is; none for other files and for versions that
    /// cannot be read. A name without a directory gives an empty directory.
    pub fn parse(path: impl AsRef<Path>) -> Option<(Self, Component)> {
        let path = path.as_ref();
        let name = path.file_name()?.to_str()?;
        let mut parts = name.splitn(4, '-');
        let version = Version::from_name(parts.next()?)?;
        let generation = Generation::parse(parts.next()?)?;
        if parts.next()? != version.format().name() {
            return None;
        }
        let component = Component::from_name(parts.next()?)?;
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        Some((Self { dir, generation, version }, component))
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, format) = (self.version.name(), self.version.format().name());
        write!(f, "{}/{version}-{}-{format}", self.dir.display(), self.generation)
    }
}

/// The directory of a table below a data directory: `<data>/<keyspace>/<table>-<id without dashes>`.
pub fn table_dir(data: &Path, table: &schema::Table) -> PathBuf {
    named_table_dir(data, &table.keyspace, &table.name, table.id)
}

/// [`table_dir`] of a table of which only keyspace, name and id are known.
pub fn named_table_dir(data: &Path, keyspace: &str, table: &str, id: schema::TableId) -> PathBuf {
    let id: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    data.join(keyspace).join(format!("{table}-{id}"))
}

/// The suffix of the TOC's name while the SSTable is being written or removed.
const TEMPORARY: &str = ".tmp";

/// The files of one SSTable in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub descriptor: Descriptor,
    /// Which of its files are there, in the order of [`Component::ALL`].
    pub components: Vec<Component>,
    /// Whether the temporary TOC is there.
    pub has_temporary_toc: bool,
}

impl Found {
    /// Whether it is there as a whole, as far as the names of its files tell.
    pub fn is_complete(&self) -> bool {
        self.has(Component::Toc) && self.has(Component::Data)
    }

    /// Whether this crate's writer had begun it and not finished, or had begun to remove it: for as long, and only then,
    /// the TOC has its temporary name.
    pub fn is_unfinished(&self) -> bool {
        self.has_temporary_toc && !self.has(Component::Toc)
    }

    /// Whether a file of it is there.
    pub fn has(&self, component: Component) -> bool {
        self.components.contains(&component)
    }
}

/// All SSTables of a directory of which any file is there, in order of generation.
///
/// # Errors
/// When the directory cannot be listed.
pub async fn list_all(disk: &Disk, dir: &Path) -> Result<Vec<Found>, SstableError> {
    // Not by descriptor: comparing the directory, which is the same, would be most of the work.
    let mut found: BTreeMap<(Generation, Version), (Vec<Component>, bool)> = BTreeMap::new();
    for entry in disk.list(dir).await? {
        if entry.is_dir {
            continue;
        }
        let temporary = entry.name.strip_suffix(TEMPORARY);
        let Some((descriptor, component)) = Descriptor::parse(temporary.unwrap_or(&entry.name)) else {
            continue;
        };
        let key = (descriptor.generation, descriptor.version);
        match temporary {
            Some(_) if component == Component::Toc => found.entry(key).or_default().1 = true,
            Some(_) => {}
            None => found.entry(key).or_default().0.push(component),
        }
    }
    let found = found.into_iter().map(|((generation, version), (mut components, has_temporary_toc))| {
        components.sort();
        let descriptor = Descriptor { dir: dir.to_owned(), generation, version };
        Found { descriptor, components, has_temporary_toc }
    });
    Ok(found.collect())
}

/// The complete SSTables of a directory, in order of generation. Those without a TOC or without data and files of other
/// kinds are left out.
///
/// # Errors
/// When the directory cannot be listed.
pub async fn list_complete(disk: &Disk, dir: &Path) -> Result<Vec<Descriptor>, SstableError> {
    let found = list_all(disk, dir).await?.into_iter().filter(Found::is_complete);
    Ok(found.map(|found| found.descriptor).collect())
}

/// Removes the files of SSTables that this crate had begun to write or to remove; gives how many SSTables that were. A
/// file without a TOC that is neither stays: it is not a leftover, it is damage.
///
/// # Errors
/// When the disk fails.
pub async fn remove_unfinished(disk: &Disk, dir: &Path) -> Result<usize, SstableError> {
    let mut removed = 0;
    for found in list_all(disk, dir).await?.iter().filter(|found| found.is_unfinished()) {
        remove(disk, &found.descriptor).await?;
        removed += 1;
    }
    Ok(removed)
}

/// Removes every file of an SSTable. The TOC gets its temporary name first and goes last, so that a crash in between
/// leaves a state that [`remove_unfinished`] recognises.
///
/// # Errors
/// When the disk fails.
pub async fn remove(disk: &Disk, descriptor: &Descriptor) -> Result<(), SstableError> {
    match disk.rename(descriptor.path(Component::Toc), descriptor.temporary_toc()).await {
        Ok(()) => disk.sync_dir(&descriptor.dir).await?,
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    const _: () =
        assert!(matches!(Component::ALL.last(), Some(Component::Toc)), "the list of components comes last");
    let others = Component::ALL.into_iter().rev().filter(|component| *component != Component::Toc);
    for path in others.map(|component| descriptor.path(component)) {
        remove_if_there(disk, &path).await?;
    }
    disk.sync_dir(&descriptor.dir).await?;
    remove_if_there(disk, &descriptor.temporary_toc()).await?;
    Ok(disk.sync_dir(&descriptor.dir).await?)
}

async fn remove_if_there(disk: &Disk, path: &Path) -> Result<(), SstableError> {
    match disk.remove(path).await {
        Err(error) if error.is_not_found() => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let descriptor = Descriptor::new("/data/ks/t-1", 12);
        let path = descriptor.path(Component::Digest);
        assert_eq!(path, Path::new("/data/ks/t-1/nb-12-big-Digest.crc32"));
        assert_eq!(Descriptor::parse(&path), Some((descriptor, Component::Digest)));
        let (timed, _) = Descriptor::parse("me-3gub_0a2o_2xnhc2ejdkv5ccufvt-big-TOC.txt").unwrap();
        assert_eq!(timed.version, Version::Me);
        assert_eq!(timed.generation.to_string(), "3gub_0a2o_2xnhc2ejdkv5ccufvt");
        for other in
            ["da-1-bti-Data.db", "nb-1-big-Data.db.tmp", "nb-x-big-Data.db", "nb-1-bti-Data.db", "x", ""]
        {
            assert_eq!(Descriptor::parse(other), None, "{other}");
        }
    }
}
