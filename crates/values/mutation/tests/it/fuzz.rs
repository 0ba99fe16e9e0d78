//! Fuzzer of the encoding. For any bytes decoding ends with an update or an error; it does not panic, run without end, or
//! allocate the memory that a hostile length promises.
//!
//! The corpus is `testdata/fuzz`. It also defines version 1: `UPDATE=1 cargo test -p mutation` writes it again, and a change there
//! means that logs, hints and messages of an earlier build may not be readable any more.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use mutation::codec::{Layouts, Version, decode_update, decode_updates, encode_update, encode_updates};
use mutation::{DecoratedKey, DeletionTime, PartitionUpdate};
use testkit::fuzz::{change, corpus, hunt};
use testkit::updates::{full, is_same, small, small_table};

fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let table = small_table();
    let encoded = |update: &PartitionUpdate| {
        let mut out = Vec::new();
        encode_update(update, &mut out);
        out
    };
    let mut deletion = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"gone")));
    deletion.add_deletion(DeletionTime::new(5, 1_700_000_000));
    let mut run = Vec::new();
    encode_updates(&[full(&table), small(&table, 2), deletion.clone()], &mut run);
    vec![
        ("update", "deletion", encoded(&deletion)),
        ("update", "full", encoded(&full(&table))),
        ("update", "small", encoded(&small(&table, 1))),
        ("updates", "run", run),
    ]
}

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/fuzz").join(kind)
}

#[test]
fn the_corpus_equals_the_present_encoding() {
    for (kind, name, bytes) in samples() {
        let path = folder(kind).join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(folder(kind)).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{kind}/{name} is written otherwise");
    }
}

#[test]
fn update() {
    let corpus = corpus(&folder("update"));
    hunt("mutation update", |random| {
        let mut bytes = random.of(&corpus).clone();
        change(random, &mut bytes, &corpus);
        if let Ok(Some(read)) = decode_update(Version::V1, &Bytes::from(bytes), |_| Some(small_table())) {
            // A decoded update can be encoded, and decodes to the same.
            let mut again = Vec::new();
            encode_update(&read, &mut again);
            let second =
                decode_update(Version::V1, &Bytes::from(again), |_| Some(small_table())).unwrap().unwrap();
            assert_eq!((second.rows(), second.static_row()), (read.rows(), read.static_row()));
        }
    });
}

#[test]
fn updates() {
    let corpus = corpus(&folder("updates"));
    hunt("mutation updates", |random| {
        let mut bytes = random.of(&corpus).clone();
        change(random, &mut bytes, &corpus);
        let (bytes, table) = (Bytes::from(bytes), small_table());
        let layouts = Layouts::default();
        let read = |layouts| decode_updates(&bytes, layouts, |_| Some(table.clone()));
        // The second time, the layouts are known.
        for layouts in [Some(&layouts), Some(&layouts)] {
            match (read(layouts), read(None)) {
                (Ok(read), Ok(apart)) => {
                    for (left, right) in read.updates.iter().zip(&apart.updates) {
                        assert!(is_same(left, right), "with layouts {left:?}\nwithout {right:?}");
                    }
                    assert_eq!(read.encoded.is_some(), apart.encoded.is_some());
                }
                (read, apart) => assert!(read.is_err() && apart.is_err(), "both refuse the bytes"),
            }
        }
        let Ok(read) = read(Some(&layouts)) else { return };
        if let Some(encoded) = read.encoded {
            assert_eq!(encoded.iter().count(), read.updates.len());
        }
    });
}
