//! Files made by Cassandra: reads give the same as its own tools, and written again they are the same bytes.

use std::rc::Rc;
use std::sync::Arc;

use mutation::{ColumnSelection, DecoratedKey, Fragment, FragmentBuffer, PartitionRange, Slices};
use rt::Rt;
use sstable::dump::{DumpOptions, dump, table_of_header};
use sstable::reader::read_metadata;
use sstable::{Component, Compression, Descriptor, NoCache, Sstable, SstableWriter, WriterOptions};

use crate::round_trip::drain;
use crate::support::{VERSIONS, fixture, fixtures, load, plain, read, run};

/// When the fixtures were made: nothing in them had expired.
const NOW: u32 = 1_795_230_700;

#[test]
fn dumps_are_those_of_sstabledump() {
    run(|rt| async move {
        for (version, name) in
            VERSIONS.iter().flat_map(|v| fixtures(v.name()).into_iter().map(|n| (v.name(), n)))
        {
            let descriptor = load(&rt, version, &name).await;
            let mut text = String::new();
            let options = DumpOptions { now: NOW, ..DumpOptions::default() };
            dump(&rt, &descriptor, &options, &mut |piece| text.push_str(piece)).await.unwrap();
            text.push('\n');
            if let Ok(expected) = std::fs::read_to_string(fixture(version, &name).join("dump.json")) {
                if name == "counters" {
                    // sstabledump shows the first bytes of a counter's context for its value.
                    text = without_values(&text);
                }
                let expected = if name == "counters" { without_values(&expected) } else { expected };
                for (at, (mine, theirs)) in text.lines().zip(expected.lines()).enumerate() {
                    assert_eq!(mine.trim_end(), theirs.trim_end(), "{version} {name}, line {}", at + 1);
                }
                assert_eq!(text.trim_end().len(), expected.trim_end().len(), "{version} {name}");
            } else {
                let expected = std::fs::read_to_string(fixture(version, &name).join("dump.crc32")).unwrap();
                assert_eq!(
                    crc32fast::hash(text.trim_end().as_bytes()).to_string(),
                    expected.trim(),
                    "{version} {name}"
                );
            }
        }
    });
}

fn without_values(json: &str) -> String {
    let cut = |line: &str| match line.split_once("\"value\" : ") {
        Some((before, after)) => {
            format!("{before}{}\n", after.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit()))
        }
        None => format!("{line}\n"),
    };
    json.lines().map(cut).collect()
}

/// The data of an SSTable before compression.
async fn uncompressed(rt: &Rt, descriptor: &Descriptor) -> Vec<u8> {
    let data = read(rt, &descriptor.path(Component::Data)).await;
    let path = descriptor.path(Component::CompressionInfo);
    if !rt.disk().exists(&path).await.unwrap() {
        return data;
    }
    plain(&data, &read(rt, &path).await, descriptor.version)
}

#[test]
fn written_again_they_are_the_same_bytes() {
    run(|rt| async move {
        for name in fixtures("nb") {
            let descriptor = load(&rt, "nb", &name).await;
            let metadata = read_metadata(rt.disk(), &descriptor).await.unwrap();
            let table = Arc::new(table_of_header(&metadata.header).unwrap());
            let reader =
                Sstable::open(&rt, descriptor.clone(), table.clone(), Rc::new(NoCache)).await.unwrap();
            let mut options = WriterOptions::for_table(&table, 1);
            options.compression = match name.strip_prefix("c_") {
                Some("plain") => None,
                Some(class) => {
                    let algorithm = match class {
                        "zstd" => sstable::Algorithm::Zstd,
                        "snappy" => sstable::Algorithm::Snappy,
                        "deflate" => sstable::Algorithm::Deflate,
                        "noop" => sstable::Algorithm::Noop,
                        _ => sstable::Algorithm::Lz4,
                    };
                    let chunk_len = if ["lz4", "noop", "ratio"].contains(&class) { 4096 } else { 16384 };
                    let min_ratio = if class == "ratio" { 1.5 } else { 0.0 };
                    Some(Compression { algorithm, chunk_len, min_ratio, level: 3 })
                }
                None => Some(Compression::DEFAULT),
            };
            options.host_id = metadata.stats.host_id;
            // The node that made them had no column_index_size in its configuration.
            options.column_index_len = 64 << 10;
            let dir = format!("/again/{name}");
            rt.disk().create_dir_all(&dir).await.unwrap();
            let mut writer =
                SstableWriter::new(&rt, &dir, 1, table, options, metadata.header.encoding).await.unwrap();
            let mut source = reader.scan(&PartitionRange::all());
            let mut buffer = FragmentBuffer::new();
            while source.fill_next(&mut buffer).await.unwrap() {
                for fragment in buffer.drain(..) {
                    writer.push(fragment).await.unwrap();
                }
            }
            let written = writer.finish().await.unwrap();
            for component in [Component::Index, Component::Summary] {
                let (mine, theirs) = (written.descriptor.path(component), descriptor.path(component));
                assert_eq!(read(&rt, &mine).await, read(&rt, &theirs).await, "{name} {component:?}");
            }
            let (mine, theirs) =
                (uncompressed(&rt, &written.descriptor).await, uncompressed(&rt, &descriptor).await);
            let differs = mine.iter().zip(&theirs).position(|(a, b)| a != b);
            assert_eq!((differs, mine.len()), (None, theirs.len()), "{name}");
            let again = read_metadata(rt.disk(), &written.descriptor).await.unwrap();
            assert_eq!(again.header, metadata.header, "{name}");
            let mut stats = again.stats.clone();
            stats.commit_log_intervals = metadata.stats.commit_log_intervals.clone();
            // Compressors of other makers find other matches.
            stats.compression_ratio = metadata.stats.compression_ratio;
            assert!(stats == metadata.stats, "{name}: {stats:?}\n{:?}", metadata.stats);
            assert!(again.cardinality == metadata.cardinality, "{name}");
        }
    });
}

#[test]
fn earlier_versions_are_read_as_the_same_rows() {
    run(|rt| async move {
        let mut all = Vec::new();
        for version in ["mc", "md", "me", "na"] {
            let mut rows = Vec::new();
            for name in fixtures(version) {
                let descriptor = load(&rt, version, &name).await;
                assert_eq!(descriptor.version.name(), version);
                let metadata = read_metadata(rt.disk(), &descriptor).await.unwrap();
                let table = Arc::new(table_of_header(&metadata.header).unwrap());
                let sstable = Sstable::open(&rt, descriptor, table.clone(), Rc::new(NoCache)).await.unwrap();
                let all = PartitionRange::all();
                let everything = drain(sstable.scan(&all)).await;
                // Each partition by its key, through filter, summary, index and row index, and backwards.
                let mut found = Vec::new();
                for fragment in &everything {
                    let Fragment::PartitionStart { key, .. } = fragment else { continue };
                    let (one, slices) = (PartitionRange::single(key), Rc::new(Slices::all()));
                    let columns = Rc::new(ColumnSelection::All);
                    found.extend(drain(sstable.read(&one, &slices, &columns, false)).await);
                    let mut reversed = drain(sstable.read(&one, &slices, &columns, true)).await;
                    let is_row = |fragment: &Fragment| matches!(fragment, Fragment::Row(_));
                    reversed.retain(is_row);
                    let forwards = everything_of(&everything, key);
                    assert!(
                        reversed.iter().rev().eq(forwards.iter().filter(|f| is_row(f))),
                        "{version} {name}"
                    );
                }
                assert!(found == everything, "{version} {name}");
                rows.push((name, everything.len()));
            }
            all.push(rows);
        }
        assert!(all.iter().all(|rows| *rows == all[0] && rows.len() == 4), "{all:?}");
    });
}

/// The fragments of one partition.
fn everything_of(fragments: &[Fragment], wanted: &DecoratedKey) -> Vec<Fragment> {
    let is_start = |f: &Fragment| matches!(f, Fragment::PartitionStart { key, .. } if key == wanted);
    let start = fragments.iter().position(is_start).unwrap();
    fragments[start..].iter().take_while(|f| !matches!(f, Fragment::PartitionEnd)).cloned().collect()
}

#[test]
fn metadata_is_that_of_sstablemetadata() {
    run(|rt| async move {
        let descriptor = load(&rt, "nb", "clustered").await;
        let text = sstable::dump::describe(&rt, &descriptor, NOW, 864_000).await.unwrap();
        // Lines that Cassandra's tool prints for this file.
        for line in [
            "Minimum timestamp: 11/14/2023 22:13:19 (1699999999999999)",
            "Maximum timestamp: 11/14/2023 22:13:20 (1700000000000046)",
            "SSTable min local deletion time: 11/21/2026 03:10:43 (1795230643)",
            "Compressor: org.apache.cassandra.io.compress.LZ4Compressor",
            "Compression ratio: 0.541927409261577",
            "TTL min: 0",
            "TTL max: 1000000 (11 days 13 hours 46 minutes 40 seconds)",
            "Originating host id: 465b6066-bb94-4970-af92-8f09b99c183f",
            "totalColumnsSet: 125",
            "totalRows: 64",
            "   372          |     4 ( 66) OOOOOOOOOOOOOOOOOOOOOOOOOOOOOO",
            "Estimated cardinality: 6",
            "EncodingStats minTTL: 864000 (10 days)",
            "KeyType: org.apache.cassandra.db.marshal.CompositeType(org.apache.cassandra.db.marshal.UTF8Type,\
             org.apache.cassandra.db.marshal.Int32Type)",
            "RegularColumns: v:org.apache.cassandra.db.marshal.Int32Type, w:org.apache.cassandra.db.marshal.UTF8Type",
            "IsTransient: false",
        ] {
            assert!(text.lines().any(|mine| mine == line), "{line}\n{text}");
        }
    });
}
