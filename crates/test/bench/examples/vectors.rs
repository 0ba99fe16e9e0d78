//! Measures the graph of an index on vectors: CPU time of an insertion and of a search, and the part of the ten truly nearest that is found.
//!
//!     cargo run --release -p bench --example vectors [vectors] [dimensions]
//!
//! The vectors lie around a hundred centres, as embeddings do.

use std::time::Instant;

use hnsw::{Graph, Options, Quantised, Similarity};

const OPTIONS: Options = Options { similarity: Similarity::Cosine, connections: 16, beam: 100 };
const QUERIES: usize = 500;
const TOP: usize = 10;

/// Numbers between -1 and 1 that look random.
fn noise(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let (count, dimensions) = (numbers.next().unwrap_or(20_000), numbers.next().unwrap_or(128));
    let mut state = 1;
    let mut vector = || -> Vec<f32> { (0..dimensions).map(|_| noise(&mut state)).collect() };
    let centres: Vec<Vec<f32>> = (0..100).map(|_| vector()).collect();
    let mut vectors: Vec<Vec<f32>> = (0..count + QUERIES)
        .map(|at| {
            centres[at % 100].iter().zip(vector()).map(|(centre, noise)| centre + noise * 0.5).collect()
        })
        .collect();
    let queries = vectors.split_off(count);
    let quantised: Vec<Quantised> =
        vectors.iter().map(|vector| Quantised::new(vector).expect("finite")).collect();

    let begun = Instant::now();
    let mut graph = Graph::new(OPTIONS, dimensions);
    quantised.iter().for_each(|vector| {
        graph.insert(vector);
    });
    let insertion = begun.elapsed() / count.max(1) as u32;

    let targets: Vec<Quantised> =
        queries.iter().map(|query| Quantised::new(query).expect("finite")).collect();
    let begun = Instant::now();
    let found: Vec<_> = targets.iter().map(|target| graph.search(target, TOP * 3, 100)).collect();
    let search = begun.elapsed() / QUERIES as u32;

    let mut hits = 0;
    for (query, found) in queries.iter().zip(found) {
        let closeness = |node: usize| OPTIONS.similarity.closeness(query, &vectors[node]);
        let nearest_of = |mut nodes: Vec<usize>| {
            nodes.sort_by(|a, b| closeness(*b).total_cmp(&closeness(*a)));
            nodes.truncate(TOP);
            nodes
        };
        let exact = nearest_of((0..count).collect());
        let of_graph = nearest_of(found.iter().map(|one| one.node as usize).collect());
        hits += of_graph.iter().filter(|node| exact.contains(node)).count();
    }
    println!(
        "{count} vectors of {dimensions}: {} us an insertion, {} us a search, recall@{TOP} {:.3}, {} bytes a vector",
        insertion.as_micros(),
        search.as_micros(),
        hits as f64 / (QUERIES * TOP) as f64,
        graph.memory_size() / count.max(1)
    );
}
