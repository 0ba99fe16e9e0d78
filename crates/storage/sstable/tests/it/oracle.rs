//! Writes SSTables onto the real disk, for Cassandra's tools to read: `SSTABLE_OUT=dir cargo test -p sstable -- --ignored
//! oracle`, then `testdata/check.py dir …`. Beside each SSTable lies `dump.json`, the expected output of Cassandra for it.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, Complex, ComplexCell, DecoratedKey, DeletionTime, Fragment, PartitionRange, Row,
};
use rt::{IoBuf, OpenOptions, Rt};
use sstable::dump::{DumpOptions, dump, table_of_header};
use sstable::reader::read_metadata;
use sstable::{Descriptor, EncodingStats, NoCache, Sstable, SstableWriter, WriterOptions};

use crate::generate::{Random, partitions, table};
use crate::round_trip::{drain, options, write};
use crate::support::{fixture, fixtures};

async fn put_dump(rt: &Rt, descriptor: &Descriptor) {
    let mut text = String::new();
    let options = DumpOptions { now: 1_795_230_700, ..DumpOptions::default() };
    dump(rt, descriptor, &options, &mut |piece| text.push_str(piece)).await.unwrap();
    let path = descriptor.dir.join("dump.json");
    let file =
        rt.disk().open(&path, OpenOptions { truncate: true, ..OpenOptions::READ_WRITE }).await.unwrap();
    file.write_at(0, IoBuf::copy_of(text.as_bytes())).await.unwrap();
}

/// The fixtures, written again with a finer row index.
async fn fixtures_again(rt: &Rt, out: &Path) {
    for name in fixtures("nb") {
        let found = sstable::list_complete(rt.disk(), &fixture("nb", &name)).await.unwrap();
        let metadata = read_metadata(rt.disk(), &found[0]).await.unwrap();
        let table = Arc::new(table_of_header(&metadata.header).unwrap());
        let reader = Sstable::open(rt, found[0].clone(), table.clone(), Rc::new(NoCache)).await.unwrap();
        let dir = out.join(&name);
        rt.disk().create_dir_all(&dir).await.unwrap();
        let options = WriterOptions::for_table(&table, reader.estimated_partitions());
        let mut writer =
            SstableWriter::new(rt, &dir, 1, table, options, metadata.header.encoding).await.unwrap();
        for fragment in drain(reader.scan(&PartitionRange::all())).await {
            writer.push(fragment).await.unwrap();
        }
        put_dump(rt, &writer.finish().await.unwrap().descriptor).await;
    }
}

/// A row in which only one of two collections was overwritten.
async fn one_collection_overwritten(rt: &Rt, out: &Path) {
    let found = sstable::list_complete(rt.disk(), &fixture("nb", "collections")).await.unwrap();
    let metadata = read_metadata(rt.disk(), &found[0]).await.unwrap();
    let table = Arc::new(table_of_header(&metadata.header).unwrap());
    let dir = out.join("overwritten");
    rt.disk().create_dir_all(&dir).await.unwrap();
    let options = WriterOptions::for_table(&table, 1);
    let mut writer =
        SstableWriter::new(rt, &dir, 1, table.clone(), options, EncodingStats::NONE).await.unwrap();
    let mut row = Row::new(Clustering::empty());
    let element = |path: &[u8], value: &[u8]| ComplexCell {
        path: Bytes::copy_from_slice(path),
        cell: Cell::live(1_700_000_000_000_000, Bytes::copy_from_slice(value)),
    };
    let deletion = DeletionTime::new(1_699_999_999_999_999, 1_700_000_000);
    let map = Complex { deletion, cells: vec![element(&[0, 0, 0, 1], b"one")] };
    let set = Complex { deletion: DeletionTime::LIVE, cells: vec![element(b"x", b"")] };
    row.set(table.column("m").unwrap().id, ColumnData::Complex(map));
    row.set(table.column("s").unwrap().id, ColumnData::Complex(set));
    let key = DecoratedKey::new(Bytes::from_static(b"mixed"));
    for fragment in [
        Fragment::PartitionStart { key, deletion: DeletionTime::LIVE },
        Fragment::Row(row),
        Fragment::PartitionEnd,
    ] {
        writer.push(fragment).await.unwrap();
    }
    put_dump(rt, &writer.finish().await.unwrap().descriptor).await;
}

async fn random(rt: &Rt, out: &Path) {
    for seed in 1000..1006 {
        let mut random = Random(seed);
        let table = table(&mut random);
        let partitions = partitions(&mut random, &table);
        let options = options(&mut random, &table, partitions.len());
        let encoding = EncodingStats { min_timestamp: -100, min_local_deletion: 900, min_ttl: 0 };
        let dir = out.join(format!("random{seed}"));
        let written = write(rt, dir.to_str().unwrap(), &table, &partitions, options, encoding).await;
        put_dump(rt, &written.descriptor).await;
    }
}

#[test]
#[ignore = "writes files for Cassandra's tools to read"]
fn oracle() {
    let out = std::env::var("SSTABLE_OUT").expect("SSTABLE_OUT names an empty directory");
    let mains = rt::shard_mains(1, move |rt: Rt| {
        let out = out.clone();
        async move {
            let out = Path::new(&out);
            fixtures_again(&rt, out).await;
            one_collection_overwritten(&rt, out).await;
            random(&rt, out).await;
        }
    });
    rt_uring::run(&rt_uring::Config::default(), mains).unwrap();
}
