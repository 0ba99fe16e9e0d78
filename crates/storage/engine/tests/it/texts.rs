//! Indexes of full text: after any writes, flushes, compactions and power failures a search finds the rows whose texts a comparison of all of
//! them finds, in the order of their relevance, and a damaged file is made again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Candidates, Engine, NearestQuery, NearestTo, Origin, ReadError, TextStatistics, Write};
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row};
use rt::Rt;
use schema::Table;
use text::{Document, FullText, TextQuery};
use types::CqlType;

use crate::attached::{self, Work, config, damaged, index_file, lifetimes, overwrite, row_of};
use crate::world::on_a_node;

const PARTITIONS: u64 = 20;
const ROWS: u64 = 8;

const QUERIES: [&str; 12] = [
    "alpha",
    "alpha beta",
    "alpha AND beta",
    "gamma -alpha",
    "\"alpha beta\"",
    "\"alpha gamma\"~2",
    "al*",
    "alhpa~",
    "(alpha OR delta) AND NOT beta",
    "usual rare7",
    "rare*",
    "nothing",
];

fn table() -> Arc<Table> {
    attached::table(CqlType::Text, ("words", "fulltext_index"), &[])
}

fn schema() -> Arc<schema::Schema> {
    attached::schema(table())
}

fn sentence(rt: &Rt) -> String {
    let words = ["alpha", "beta", "gamma", "delta", "usual", "usual", "usual", "alpine"];
    let word = || match rt.random_below(10) {
        0 => format!("rare{}", rt.random_below(40)),
        _ => words[rt.random_below(words.len() as u64) as usize].to_owned(),
    };
    (0..rt.random_below(12)).map(|_| word()).collect::<Vec<_>>().join(" ")
}

async fn write(rt: &Rt, engine: &Engine, table: &Arc<Table>, place: (u64, u64), timestamp: i64) -> String {
    let text = sentence(rt);
    attached::write(engine, table, place, timestamp, Bytes::from(text.clone())).await;
    text
}

async fn ask(rt: &Rt, engine: &Engine, text: &str, count: usize) -> Candidates {
    let query = NearestQuery { index: "words".to_owned(), to: NearestTo::Text(text.to_owned()), count };
    attached::nearest(rt, engine, table().id, &query).await
}

/// Compares searches with the texts that were acknowledged, by row; how many rows were found.
async fn verify(rt: &Rt, engine: &Engine, known: &[Option<String>]) -> usize {
    let fulltext = FullText::of(&Default::default()).expect("options");
    let mut rows = 0;
    for text in QUERIES {
        let query = TextQuery::parse(text, &fulltext.analyzer, true).expect("a query");
        let found = ask(rt, engine, text, 10_000).await;
        let row_of = |at: usize| row_of(&found.places[at].place, ROWS);
        let mut is_found = vec![false; known.len()];
        for at in 0..found.places.len() {
            assert!(!std::mem::replace(&mut is_found[row_of(at)], true), "{text}: each row comes once");
        }
        assert!(found.places.is_sorted_by(|a, b| a.closeness >= b.closeness), "{text}");
        let TextStatistics { texts, .. } = found.statistics;
        assert!(texts >= known.iter().flatten().count() as u64, "{text}: each version is counted");
        for (row, value) in known.iter().enumerate() {
            let Some(value) = value else { continue };
            let document = Document::new(&query, &fulltext.analyzer, value.as_bytes()).expect("a text");
            let Some(score) = query.score(&document, &found.statistics) else { continue };
            rows += 1;
            assert!(is_found[row], "{text}: {value} is missing");
            // Or that of an older version, which is greater.
            let at = (0..found.places.len()).find(|at| row_of(*at) == row).expect("it is found");
            assert!(found.places[at].closeness >= score, "{text}: {value}");
        }
        // The first of few are the first of all, unless a flush has dropped older versions meanwhile.
        let few = ask(rt, engine, text, 3).await;
        if few.statistics != found.statistics {
            continue;
        }
        let scores =
            |all: &Candidates| all.places.iter().take(3).map(|one| one.closeness).collect::<Vec<_>>();
        assert_eq!(scores(&few), scores(&found), "{text}");
    }
    rows
}

fn work() -> Work<String, usize> {
    Work {
        table: table(),
        rows: ROWS,
        write: |rt, engine, table, place, timestamp| Box::pin(write(rt, engine, table, place, timestamp)),
        verify: |rt, engine, known| Box::pin(verify(rt, engine, known)),
        add: |rows, more| *rows += more,
    }
}

#[test]
fn every_text_is_found() {
    let rows: usize =
        (0..8).map(|seed| lifetimes((seed, PARTITIONS), (3, Duration::from_secs(10)), work)).sum();
    assert!(rows > 5_000, "{rows} rows make no test");
}

#[test]
fn a_damaged_file_is_made_again() {
    on_a_node(3, |rt| async move {
        let table = table();
        let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
        let mut known = Vec::new();
        for k in 0..PARTITIONS {
            for c in 0..ROWS {
                known.push(Some(write(&rt, &engine, &table, (k, c), 1).await));
            }
        }
        engine.flush(table.id).await.unwrap();
        assert!(verify(&rt, &engine, &known).await > 200);
        engine.stop().await.unwrap();
        let (path, good) = index_file(&rt).await;
        for bad in damaged(&rt, &good, 30) {
            overwrite(&rt, &path, &bad).await;
            let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
            verify(&rt, &engine, &known).await;
            engine.stop().await.unwrap();
        }
    });
}

/// Posting lists of many blocks, in memory and in a file; a prefix of too many texts is refused and not held.
#[test]
fn long_lists_of_postings() {
    on_a_node(5, |rt| async move {
        let table = table();
        let mut settings = config();
        settings.memtable_bytes_max = 256 << 20;
        let engine = Engine::open(rt.clone(), settings, schema()).await.unwrap();
        let id = table.column("v").expect("it is there").id;
        let int = |value: i32| Bytes::copy_from_slice(&value.to_be_bytes());
        const COUNT: i32 = 70_000;
        for k in 0..COUNT / 1_000 {
            let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(int(k)));
            for c in 0..1_000 {
                let mut row = Row::new(Clustering::new(&table, &[Some(&int(c))]));
                let rare = if (k * 1_000 + c) % 7_000 == 3 { "needle" } else { "hay" };
                let text = format!("common {rare} w{k}x{c}");
                row.set(id, ColumnData::Simple(Cell::live(1, Bytes::from(text))));
                update.add_row(row);
            }
            engine.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
        }
        for is_flushed in [false, true] {
            if is_flushed {
                engine.flush(table.id).await.unwrap();
            }
            let common = ask(&rt, &engine, "common", 50).await;
            assert_eq!((common.places.len(), common.statistics.texts), (50, COUNT as u64));
            let with = common.statistics.with_leaf[0];
            assert!(with.abs_diff(COUNT as u64) < 7_000, "{with} texts have the word");
            for (query, count) in
                [("common AND needle", 10), ("\"common needle\"", 10), ("needle -common", 0), ("w3x77", 1)]
            {
                assert_eq!(
                    ask(&rt, &engine, query, 100).await.places.len(),
                    count,
                    "{query}, flushed: {is_flushed}"
                );
            }
            assert_eq!(ask(&rt, &engine, "w3x9*", 1_000).await.places.len(), 111);
            let all =
                NearestQuery { index: "words".to_owned(), to: NearestTo::Text("w*".to_owned()), count: 5 };
            let refused = engine.nearest(table.id, &all).await.map(|found| found.places.len());
            assert!(
                matches!(&refused, Err(ReadError::Source(error)) if error.to_string().contains("too many texts")),
                "{refused:?}"
            );
        }
        engine.stop().await.unwrap();
    });
}

#[test]
fn a_search_for_something_else_is_refused() {
    on_a_node(4, |rt| async move {
        let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
        let ask = async |index: &str, to: NearestTo| {
            let query = NearestQuery { index: index.to_owned(), to, count: 3 };
            engine.nearest(table().id, &query).await
        };
        let text = |text: &str| NearestTo::Text(text.to_owned());
        assert!(matches!(ask("none", text("a")).await, Err(ReadError::IndexUnavailable(_))));
        assert!(matches!(ask("words", text("\"a")).await, Err(ReadError::Source(_))));
        assert!(matches!(ask("words", NearestTo::Vector(vec![1.0])).await, Err(ReadError::Source(_))));
        assert_eq!(ask("words", text("a")).await.unwrap().places, []);
    });
}
