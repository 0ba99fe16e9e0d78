//! Indexes on vectors: after any writes, flushes, compactions and power failures the rows of all vectors are among the candidates when as many are asked
//! for, and a damaged file is made again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Candidate, Engine, NearestQuery, NearestTo, ReadError, Similarity};
use rt::Rt;
use schema::Table;
use types::CqlType;

use crate::attached::{self, Work, config, damaged, index_file, lifetimes, overwrite};
use crate::world::on_a_node;

const DIMENSIONS: usize = 6;
const PARTITIONS: u64 = 30;
const ROWS: u64 = 10;

fn table() -> Arc<Table> {
    let options = [("maximum_node_connections", "4"), ("construction_beam_width", "20")];
    attached::table(CqlType::vector(CqlType::Float, DIMENSIONS as u32), ("near", "sai"), &options)
}

fn schema() -> Arc<schema::Schema> {
    attached::schema(table())
}

fn vector(rt: &Rt) -> Vec<f32> {
    // Some of them often, so that equal vectors meet.
    let whole = rt.random_below(8) == 0;
    let component = || rt.random_below(2_000) as f32 / 1_000.0 - 1.0;
    (0..DIMENSIONS).map(|_| if whole { component().round() } else { component() }).collect()
}

async fn write(rt: &Rt, engine: &Engine, table: &Arc<Table>, place: (u64, u64), timestamp: i64) -> Vec<f32> {
    let vector = vector(rt);
    let value: Vec<u8> = vector.iter().flat_map(|one| one.to_be_bytes()).collect();
    attached::write(engine, table, place, timestamp, Bytes::from(value)).await;
    vector
}

async fn ask(rt: &Rt, engine: &Engine, vector: Vec<f32>, count: usize) -> Vec<Candidate> {
    let query = NearestQuery { index: "near".to_owned(), to: NearestTo::Vector(vector), count };
    attached::nearest(rt, engine, table().id, &query).await.places
}

/// Compares searches with the vectors that were acknowledged, by row; the part of the nearest that was found.
async fn verify(rt: &Rt, engine: &Engine, known: &[Option<Vec<f32>>]) -> (usize, usize) {
    let live = known.iter().flatten().count();
    let row_of = |candidate: &Candidate| attached::row_of(&candidate.place, ROWS);
    let target = vector(rt);
    let all = ask(rt, engine, target.clone(), 10_000).await;
    assert_eq!(all.len(), live, "each row once");
    assert!(all.iter().all(|one| known[row_of(one)].is_some()));
    assert!(all.is_sorted_by(|a, b| a.closeness >= b.closeness));
    let closeness = |row: usize| {
        let vector = known[row].as_ref().expect("a live row");
        Similarity::Cosine.closeness(&target, vector)
    };
    let mut nearest: Vec<usize> = (0..known.len()).filter(|row| known[*row].is_some()).collect();
    nearest.sort_by(|a, b| closeness(*b).total_cmp(&closeness(*a)));
    nearest.truncate(5);
    let found = ask(rt, engine, target.clone(), 50).await;
    assert_eq!(found.len(), live.min(50));
    (nearest.iter().filter(|row| found.iter().any(|one| row_of(one) == **row)).count(), nearest.len())
}

fn work() -> Work<Vec<f32>, (usize, usize)> {
    Work {
        table: table(),
        rows: ROWS,
        write: |rt, engine, table, place, timestamp| Box::pin(write(rt, engine, table, place, timestamp)),
        verify: |rt, engine, known| Box::pin(verify(rt, engine, known)),
        add: |(found, wanted), more| (*found, *wanted) = (*found + more.0, *wanted + more.1),
    }
}

#[test]
fn every_row_is_found() {
    let (mut found, mut wanted) = (0, 0);
    for seed in 0..12 {
        let seen = lifetimes((seed, PARTITIONS), (4, Duration::from_secs(20)), work);
        found += seen.0;
        wanted += seen.1;
    }
    println!("{found} of {wanted} of the nearest were found");
    assert!(wanted > 500, "{wanted}");
    assert!(found * 100 >= wanted * 97, "{found} of {wanted}");
}

#[test]
fn a_damaged_graph_is_made_again() {
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
        verify(&rt, &engine, &known).await;
        engine.stop().await.unwrap();
        let (path, good) = index_file(&rt).await;
        for bad in damaged(&rt, &good, 40) {
            overwrite(&rt, &path, &bad).await;
            let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
            verify(&rt, &engine, &known).await;
            engine.stop().await.unwrap();
        }
    });
}

#[test]
fn a_search_for_something_else_is_refused() {
    on_a_node(4, |rt| async move {
        let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
        let ask = async |index: &str, vector: Vec<f32>| {
            engine
                .nearest(
                    table().id,
                    &NearestQuery { index: index.to_owned(), to: NearestTo::Vector(vector), count: 3 },
                )
                .await
        };
        assert!(matches!(ask("far", vec![1.0; DIMENSIONS]).await, Err(ReadError::IndexUnavailable(_))));
        assert!(matches!(ask("near", vec![1.0; 2]).await, Err(ReadError::Source(_))));
        assert!(matches!(ask("near", vec![f32::NAN; DIMENSIONS]).await, Err(ReadError::Source(_))));
        assert!(ask("near", vec![1.0; DIMENSIONS]).await.unwrap().places.is_empty());
    });
}
