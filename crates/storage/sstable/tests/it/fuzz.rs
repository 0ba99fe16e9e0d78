//! Fuzzers, one for each component: files of Cassandra with one of them changed at random, read in every way that there
//! is. For any bytes reading ends with rows or an error; it does not panic, run without end, or allocate
//! the memory that a hostile length promises. Checksums are fixed most of the time, so that changes get behind them.
//!
//! The corpus is the fixtures of `testdata`.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use mutation::{ColumnSelection, DecoratedKey, FragmentBuffer, PartitionRange, Slices};
use rt::Rt;
use schema::Table;
use sstable::checksums::ChunkChecksums;
use sstable::compression_info::CompressionInfo;
use sstable::dump::{DumpOptions, describe, dump, table_of_header};
use sstable::metadata::Metadata;
use sstable::reader::read_metadata;
use sstable::toc::{decode_toc, encode_digest, encode_toc};
use sstable::verify::verify;
use sstable::{Component, Descriptor, Generation, NoCache, Sstable, SstableError, SstableSource, Version};
use testkit::fuzz::{Random, change, hunt};

use crate::flips;
use crate::support::{VERSIONS, fixture, fixtures, plain, run, write};

/// Damaged files that are tried in one simulated node.
const TRIES: usize = 8;
/// Longer data makes rounds slow; one fixture in the corpus is.
const DATA_LEN_USUAL: usize = 64 << 10;
const NOW: u32 = 1_795_230_700;

/// An SSTable in memory.
#[derive(Clone)]
struct Files {
    version: Version,
    parts: BTreeMap<Component, Vec<u8>>,
}

impl Files {
    fn load(version: Version, dir: &Path) -> Self {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let parts = entries.filter_map(|path| {
            let (_, component) = Descriptor::parse(&path)?;
            Some((component, std::fs::read(&path).unwrap()))
        });
        Self { version, parts: parts.collect() }
    }

    fn metadata(&self) -> Metadata {
        Metadata::decode(&self.parts[&Component::Statistics], self.version).unwrap()
    }

    fn table(&self) -> Arc<Table> {
        Arc::new(table_of_header(&self.metadata().header).unwrap())
    }

    /// The same without compression.
    fn uncompressed(mut self) -> Self {
        if let Some(info) = self.parts.remove(&Component::CompressionInfo) {
            let data = plain(&self.parts[&Component::Data], &info, self.version);
            self.parts.insert(Component::Digest, encode_digest(crc32fast::hash(&data)));
            self.parts.insert(Component::Data, data);
            self.fix_chunks();
            let present: Vec<Component> = self.parts.keys().copied().collect();
            self.parts.insert(Component::Toc, encode_toc(&present));
        }
        self
    }

    /// Makes the checksums of the data's chunks right again.
    fn fix_chunks(&mut self) {
        let info = self.parts.get(&Component::CompressionInfo).cloned();
        let data = self.parts.get_mut(&Component::Data).unwrap();
        match info {
            None => {
                let chunk_len = ChunkChecksums::CHUNK_LEN;
                let crcs = data.chunks(chunk_len as usize).map(crc32fast::hash).collect();
                self.parts.insert(Component::Crc, ChunkChecksums { chunk_len, crcs }.encode());
            }
            Some(info) => {
                let Ok(info) = CompressionInfo::decode(&info, self.version, data.len() as u64) else {
                    return;
                };
                for chunk in 0..info.offsets.len() {
                    let start = info.offsets.get(chunk).unwrap() as usize;
                    let end = info.offsets.get(chunk + 1).map_or(data.len(), |end| end as usize);
                    let Some(at) = end.checked_sub(4).filter(|at| *at >= start && end <= data.len()) else {
                        continue;
                    };
                    let crc = crc32fast::hash(&data[start..at]);
                    data[at..end].copy_from_slice(&crc.to_be_bytes());
                }
            }
        }
    }

    /// Makes the checksums in Statistics.db right again, as far as its table of contents is still one.
    fn fix_statistics(&mut self) {
        let bytes = self.parts.get_mut(&Component::Statistics).unwrap();
        let number = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 4).map(|four| u32::from_be_bytes(four.try_into().unwrap()) as usize)
        };
        let put = |bytes: &mut [u8], from: usize, upto: usize, seed: u32| {
            let (Some(content), true) = (bytes.get(from..upto), upto + 4 <= bytes.len()) else { return seed };
            let mut crc = crc32fast::Hasher::new_with_initial(seed);
            crc.update(content);
            let crc = crc.finalize();
            bytes[upto..upto + 4].copy_from_slice(&crc.to_be_bytes());
            crc
        };
        let count = number(bytes, 0).unwrap_or(0);
        let contents_end = count.saturating_mul(8).saturating_add(8);
        if self.version < Version::Na || contents_end > bytes.len() {
            return;
        }
        let first = put(bytes, 0, 4, 0);
        put(bytes, 8, contents_end, first);
        let starts: Vec<usize> = (0..count).filter_map(|part| number(bytes, 8 + part * 8 + 4)).collect();
        for (at, start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or(bytes.len());
            if let Some(upto) = end.checked_sub(4).filter(|upto| upto >= start) {
                put(bytes, *start, upto, 0);
            }
        }
    }
}

/// Every fixture, of every version.
fn corpus() -> Vec<Files> {
    let mut found = Vec::new();
    for version in VERSIONS {
        for name in fixtures(version.name()) {
            let files = Files::load(version, &fixture(version.name(), &name));
            found.push(files.clone().uncompressed());
            found.push(files);
        }
    }
    assert!(found.len() > 20, "there are {} SSTables in the corpus", found.len());
    found
}

/// Reads a source to its end, and no further than there can be something.
async fn drain(mut source: SstableSource, fragments_max: usize) -> Result<(), SstableError> {
    let mut buffer = FragmentBuffer::new();
    let mut seen = 0;
    loop {
        let more = source.fill_next(&mut buffer).await?;
        seen += buffer.drain(..).count();
        assert!(seen <= fragments_max, "more fragments than {fragments_max} come from a file");
        if !more {
            return Ok(());
        }
    }
}

/// Reads an SSTable in every way.
async fn read_all(
    rt: &Rt,
    descriptor: &Descriptor,
    table: &Arc<Table>,
    fragments_max: usize,
) -> Result<(), SstableError> {
    let sstable = Sstable::open(rt, descriptor.clone(), table.clone(), Rc::new(NoCache)).await?;
    let (all, every) = (PartitionRange::all(), Rc::new(ColumnSelection::All));
    let slices = Rc::new(Slices::all());
    let mut ended = drain(sstable.scan(&all), fragments_max).await;
    for reversed in [false, true] {
        let source = sstable.read(&all, &slices, &every, reversed);
        ended = ended.and(drain(source, fragments_max).await);
    }
    for key in [&b"\0\0\0\x01"[..], &b"key number 7"[..], &b""[..]] {
        let single = PartitionRange::single(&DecoratedKey::new(Bytes::copy_from_slice(key)));
        ended = ended.and(drain(sstable.read(&single, &slices, &every, true), fragments_max).await);
    }
    ended
}

async fn try_files(rt: &Rt, files: &Files, table: &Arc<Table>, dir: &str) {
    rt.disk().create_dir_all(dir).await.unwrap();
    let descriptor =
        Descriptor { dir: dir.into(), generation: Generation::Number(1), version: files.version };
    for (component, bytes) in &files.parts {
        write(rt, &descriptor.path(*component), bytes).await;
    }
    // The most that a byte can stand for, after decompression.
    let longest = files.parts.values().map(Vec::len).max().unwrap_or(0);
    let fragments_max = 100_000 + longest * 64;
    let _ = read_all(rt, &descriptor, table, fragments_max).await;
    if let Ok(metadata) = read_metadata(rt.disk(), &descriptor).await
        && let Ok(own) = table_of_header(&metadata.header)
        && own != **table
    {
        let _ = read_all(rt, &descriptor, &Arc::new(own), fragments_max).await;
    }
    let _ = verify(rt, &descriptor).await;
    let _ = dump(rt, &descriptor, &DumpOptions { now: NOW, ..DumpOptions::default() }, &mut |_| {}).await;
    let _ = describe(rt, &descriptor, NOW, 864_000).await;
    let _ = sstable::list_complete(rt.disk(), dir.as_ref()).await;
}

fn damaged(random: &mut Random, sound: &Files, component: Component, others: &[Vec<u8>]) -> Files {
    let mut files = sound.clone();
    change(random, files.parts.get_mut(&component).unwrap(), others);
    if !random.one_in(4) {
        match component {
            Component::Data => files.fix_chunks(),
            Component::Statistics => files.fix_statistics(),
            _ => {}
        }
        let digest = crc32fast::hash(&files.parts[&Component::Data]);
        if component != Component::Digest {
            files.parts.insert(Component::Digest, encode_digest(digest));
        }
    }
    files
}

/// Runs the fuzzer of one component.
fn component(component: Component) {
    let mut corpus: Vec<Files> = corpus();
    corpus.retain(|files| files.parts.contains_key(&component));
    let (usual, long): (Vec<Files>, Vec<Files>) =
        corpus.into_iter().partition(|files| files.parts[&Component::Data].len() <= DATA_LEN_USUAL);
    let others: Vec<Vec<u8>> = usual.iter().map(|files| files.parts[&component].clone()).collect();
    hunt(component.name(), |random| {
        let from = if random.one_in(40) && !long.is_empty() { &long } else { &usual };
        let sound = random.of(from);
        let table = sound.table();
        let tried: Vec<Files> = (0..TRIES).map(|_| damaged(random, sound, component, &others)).collect();
        run(move |rt| async move {
            for (at, files) in tried.iter().enumerate() {
                try_files(&rt, files, &table, &format!("/fuzz/{at}")).await;
            }
        });
    });
}

#[test]
fn data() {
    component(Component::Data);
}

#[test]
fn index() {
    component(Component::Index);
}

#[test]
fn summary() {
    component(Component::Summary);
}

#[test]
fn filter() {
    component(Component::Filter);
}

#[test]
fn statistics() {
    component(Component::Statistics);
}

#[test]
fn compression_info() {
    component(Component::CompressionInfo);
}

#[test]
fn digest() {
    component(Component::Digest);
}

#[test]
fn toc() {
    component(Component::Toc);
}

#[test]
fn crc() {
    component(Component::Crc);
}

#[test]
fn sound_files_are_read_to_the_end() {
    for files in corpus() {
        let listed = decode_toc(&files.parts[&Component::Toc]).unwrap();
        assert!(listed.contains(&Component::Data));
        let table = files.table();
        run(move |rt| async move {
            try_files(&rt, &files, &table, "/sound").await;
            let dir = "/sound".into();
            let descriptor = Descriptor { dir, generation: Generation::Number(1), version: files.version };
            read_all(&rt, &descriptor, &table, usize::MAX).await.unwrap();
            assert!(verify(&rt, &descriptor).await.unwrap().problems.is_empty());
            let mut fixed = files.clone();
            fixed.fix_chunks();
            fixed.fix_statistics();
            assert!(fixed.parts == files.parts, "checksums that are right stay as they are");
        });
    }
}

#[test]
fn flips_with_checksums() {
    hunt("flips", |random| flips::every_component(random.next(), true));
}

#[test]
fn flips_without_checksums() {
    hunt("flips without checksums", |random| flips::every_component(random.next(), false));
}
