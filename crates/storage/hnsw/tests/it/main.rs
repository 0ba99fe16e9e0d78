//! Graphs against an exhaustive search, and as bytes.

use hnsw::{Decoder, Found, Graph, Insertion, Options, Quantised, Search, Similarity};
use proptest::prelude::*;
use stdx::Reader;

const OPTIONS: Options = Options { similarity: Similarity::Cosine, connections: 16, beam: 100 };

/// Numbers between -1 and 1 that look random.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    /// Vectors around a few centres, as embeddings lie.
    fn clustered(&mut self, count: usize, dimensions: usize) -> Vec<Vec<f32>> {
        let centres: Vec<Vec<f32>> =
            (0..10).map(|_| (0..dimensions).map(|_| self.next()).collect()).collect();
        let around = |at: usize, noise: &mut Self| {
            centres[at % centres.len()].iter().map(|one| one + noise.next() * 0.4).collect()
        };
        (0..count).map(|at| around(at, self)).collect()
    }
}

fn graph_of(vectors: &[Vec<f32>], options: Options) -> Graph {
    let mut graph = Graph::new(options, vectors[0].len());
    for vector in vectors {
        graph.insert(&Quantised::new(vector).expect("finite"));
    }
    graph
}

fn encode(graph: &Graph) -> Vec<u8> {
    let mut bytes = Vec::new();
    graph.encode_head(&mut bytes);
    (0..graph.len() as u32).for_each(|node| graph.encode_node(node, &mut bytes));
    bytes
}

fn decode(bytes: &[u8]) -> Option<Graph> {
    let mut reader = Reader::new(bytes);
    let mut decoder = Decoder::new(&mut reader)?;
    while decoder.left() > 0 {
        decoder.node(&mut reader)?;
    }
    decoder.finish().filter(|_| reader.is_empty())
}

/// The part of the ten truly nearest that a search finds.
fn recall(similarity: Similarity, count: usize, dimensions: usize) -> f64 {
    let mut noise = Noise(42);
    let mut vectors = noise.clustered(count + 100, dimensions);
    let queries = vectors.split_off(count);
    let graph = graph_of(&vectors, Options { similarity, ..OPTIONS });
    let mut hits = 0;
    for query in &queries {
        let mut exact: Vec<Found> = vectors
            .iter()
            .enumerate()
            .map(|(at, one)| Found { node: at as u32, closeness: similarity.closeness(query, one) })
            .collect();
        exact.sort_unstable_by(|a, b| b.cmp(a));
        // As an index does: more candidates than are wanted, compared exactly.
        let mut found = graph.search(&Quantised::new(query).expect("finite"), 30, 100);
        for one in &mut found {
            one.closeness = similarity.closeness(query, &vectors[one.node as usize]);
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        hits += found[..10].iter().filter(|one| exact[..10].iter().any(|e| e.node == one.node)).count();
    }
    hits as f64 / (queries.len() * 10) as f64
}

#[test]
fn the_nearest_are_found() {
    for (_, similarity) in Similarity::NAMES {
        let reached = recall(similarity, 4_000, 48);
        assert!(reached >= 0.97, "{similarity:?}: recall@10 {reached}");
    }
}

#[test]
fn closeness_follows_the_definitions() {
    let (a, b) = ([3.0, 4.0], [4.0, 3.0]);
    let cases =
        [(Similarity::Cosine, 0.98), (Similarity::DotProduct, 12.5), (Similarity::Euclidean, 1.0 / 3.0)];
    for (similarity, expected) in cases {
        assert!((similarity.closeness(&a, &b) - expected).abs() < 1e-6, "{similarity:?}");
        let quantised = Quantised::new(&a).zip(Quantised::new(&b)).expect("finite");
        let near = quantised.0.closeness(&quantised.1, similarity);
        assert!((near - expected).abs() < 0.02 * expected.max(1.0), "{similarity:?}: {near}");
    }
    assert!(Quantised::new(&[f32::NAN]).is_none());
    assert!(Quantised::new(&[f32::INFINITY, 1.0]).is_none());
    assert!(Quantised::new(&[f32::MAX, f32::MAX]).is_none(), "its length is not finite");
    assert_eq!(Similarity::Cosine.closeness(&[0.0, 0.0], &a), 0.5);
    assert_eq!(Similarity::of_name("dot_product"), Some(Similarity::DotProduct));
    assert_eq!(Similarity::of_name("cosines"), None);
}

#[test]
fn a_graph_comes_back_from_its_bytes() {
    let mut noise = Noise(7);
    let graph = graph_of(&noise.clustered(300, 8), Options { connections: 4, beam: 20, ..OPTIONS });
    let bytes = encode(&graph);
    assert_eq!(decode(&bytes), Some(graph));
    let empty = Graph::new(OPTIONS, 3);
    assert_eq!(decode(&encode(&empty)), Some(empty));
    assert!(decode(&bytes[..bytes.len() - 1]).is_none());
}

proptest! {
    #[test]
    fn no_bytes_make_a_graph_that_fails(at in 0_usize..4_000, to in any::<u8>(), cut in any::<bool>()) {
        let mut noise = Noise(3);
        let mut bytes = encode(&graph_of(&noise.clustered(60, 4), Options { connections: 2, beam: 8, ..OPTIONS }));
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] = to }
        if let Some(graph) = decode(&bytes) {
            let query = vec![0.5; graph.dimensions()];
            let found = graph.search(&Quantised::new(&query).expect("finite"), 10, 20);
            prop_assert!(found.iter().all(|one| (one.node as usize) < graph.len()));
        }
    }

    #[test]
    fn any_finite_vectors_can_be_inserted(vectors in prop::collection::vec(prop::collection::vec(-1e18_f32..1e18, 3), 1..80)) {
        let graph = graph_of(&vectors, Options { connections: 3, beam: 5, similarity: Similarity::Euclidean });
        let found = graph.search(&Quantised::new(&vectors[0]).expect("finite"), vectors.len(), 0);
        prop_assert!(!found.is_empty());
        prop_assert_eq!(decode(&encode(&graph)), Some(graph));
    }
}

/// The bytes of graphs are those of the first version; a long insertion has many steps, and ends with the same graph.
#[test]
fn a_graph_is_a_function_of_its_vectors_and_made_in_steps() {
    let mut noise = Noise(5);
    let wide = noise.clustered(200, 2_000);
    for (options, vectors, digest) in [
        (Options { connections: 4, beam: 20, ..OPTIONS }, noise.clustered(1_000, 8), 756_557_354_u32),
        (
            Options { connections: 2, beam: 3, similarity: Similarity::Euclidean },
            noise.clustered(500, 3),
            2_664_495_280,
        ),
        (Options { connections: 64, beam: 300, ..OPTIONS }, wide, 840_889_131),
    ] {
        let (mut graph, mut most) = (Graph::new(options, vectors[0].len()), 0);
        for (at, vector) in vectors.iter().enumerate() {
            let mut insertion = Insertion::begin(&mut graph, &Quantised::new(vector).expect("finite"));
            assert_eq!(insertion.node() as usize, at);
            most = most.max((1..).find(|_| insertion.step(&mut graph)).expect("it ends"));
        }
        let sum = |graph: &Graph| {
            encode(graph).iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)))
        };
        assert_eq!((sum(&graph), graph_of(&vectors, options)), (digest, graph));
        assert_eq!(most > 20, vectors[0].len() == 2_000, "{most} steps");
    }
}

/// A search of wide vectors has several steps, and finds all of a graph in the order of their closeness.
#[test]
fn a_search_is_made_in_steps() {
    let mut noise = Noise(6);
    for (dimensions, least) in [(2_000, 2), (60_000, 50), (8, 1)] {
        let vectors = noise.clustered(100, dimensions);
        let graph = graph_of(&vectors, Options { connections: 64, beam: 300, ..OPTIONS });
        let wanted = Quantised::new(&vectors[0]).expect("finite");
        let mut search = Search::begin(&graph, &wanted, 100, 100);
        let steps = (1..).find(|_| search.step()).expect("it ends");
        assert!(steps >= least, "{steps} steps for {dimensions} dimensions");
        let found = search.into_found();
        let mut exact: Vec<(u32, f32)> =
            (0..100).map(|node| (node, graph.closeness(&wanted, node))).collect();
        exact.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        assert_eq!(found.iter().map(|one| (one.node, one.closeness)).collect::<Vec<_>>(), exact);
    }
}
