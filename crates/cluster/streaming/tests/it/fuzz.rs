//! A seeded fuzzer over the messages of a transfer. The corpus, `testdata/fuzz`, also defines their bytes:
//! `UPDATE=1 cargo test -p streaming` writes it again, and a change there is a change that other nodes see.

use std::path::PathBuf;

use bytes::Bytes;
use streaming::transfer::{Chunk, Close, Item, ItemKind, Open, OpenAnswer, Plan, Position, TransferId};
use testkit::fuzz::{Random, change, corpus, hunt};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/fuzz")
}

fn samples() -> [(&'static str, Bytes); 4] {
    let transfer = TransferId([5; 16]);
    let item = |kind, length, descriptor: &'static [u8]| Item {
        kind,
        length,
        descriptor: Bytes::from_static(descriptor),
    };
    let items = vec![
        item(ItemKind::File, Some(1 << 30), b"nb-7-big-Data.db"),
        item(ItemKind::File, Some(0), b""),
        item(ItemKind::Rows, None, b"ks.table (1, 2]"),
    ];
    let plan = Plan::new(transfer, Bytes::from_static(b"bootstrap"), items).expect("within the limits");
    let cursor = Bytes::from_static(b"partition 17");
    let chunk = Chunk {
        transfer,
        item: 2,
        offset: 1 << 33,
        last: false,
        cursor: cursor.clone(),
        data: b"row ".repeat(50).into(),
    };
    let answer = OpenAnswer { resume: Position { item: 2, offset: 9, cursor }, window: 4 << 20 };
    [
        ("answer", answer.encode()),
        ("chunk", chunk.encode()),
        ("close", Close { transfer, complete: true }.encode()),
        ("open", Open { plan }.encode()),
    ]
}

#[test]
fn the_corpus_equals_the_present_encoding() {
    for (name, bytes) in samples() {
        let path = folder().join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{} is written otherwise", path.display());
    }
}

/// Decodes bytes as every message; a valid one must be encoded to the same bytes.
fn read(bytes: &Bytes) {
    if let Ok(open) = Open::decode(bytes) {
        assert_eq!(open.encode(), bytes);
        assert!(open.plan.contains(&open.plan.end()));
    }
    if let Ok(answer) = OpenAnswer::decode(bytes) {
        assert_eq!(answer.encode(), bytes);
    }
    if let Ok(close) = Close::decode(bytes) {
        assert_eq!(close.encode(), bytes);
    }
    if let Ok(chunk) = Chunk::decode(bytes) {
        assert_eq!(chunk.encode(), bytes);
    }
}

#[test]
fn messages_of_a_peer() {
    let others = corpus(&folder());
    others.iter().for_each(|sound| read(&Bytes::copy_from_slice(sound)));
    hunt("streaming", |random: &mut Random| {
        let mut bytes = random.of(&others).clone();
        change(random, &mut bytes, &others);
        read(&bytes.into());
    });
}
