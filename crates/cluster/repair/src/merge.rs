//! The master's decisions about one segment: its end, the buckets that differ, the rows to fetch and their sources, and the rows to
//! send to each node. Pure.

use mutation::{DecoratedKey, PartitionUpdate};
use replica::compare::{lacks, order};
use replica::{PartitionResult, ReadPage, Resume};
use schema::Table;
use stdx::HashMap;

use crate::bits::Bits;
use crate::element::{Element, Print, Printer};
use crate::message::Summary;
use crate::piece::{is_inner, merge};
use crate::scope::Scope;

/// Segments of so many elements or fewer are compared element by element at once.
pub const SMALL_ELEMENTS: u64 = 128;
/// Elements of a bucket, on average.
const BUCKET_ELEMENTS: u64 = 8;
/// Buckets at most.
pub const BUCKETS_MAX: u32 = 1 << 14;

/// The result of comparing the summaries of all participants.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The segment's end: the end of the shortest page.
    pub upto: Option<Resume>,
    /// All nodes have the same elements there.
    pub equal: bool,
    /// Elements of the node with the most of them.
    pub elements: u64,
}

/// Compares summaries; `nodes[i]` is the node of participant `i`.
pub fn compare(nodes: &[usize], summaries: &[Summary]) -> Compared {
    let ends = summaries.iter().filter_map(|summary| summary.end.as_ref());
    let upto = ends.min_by(|a, b| order(a, b, false)).cloned();
    let mut sums: Vec<(u64, u64)> = vec![(0, 0); nodes.iter().max().map_or(0, |last| last + 1)];
    for (node, summary) in nodes.iter().zip(summaries) {
        let (sum, elements) = &mut sums[*node];
        *sum = sum.wrapping_add(summary.sum);
        *elements += summary.elements;
    }
    let equal =
        summaries.iter().all(|summary| summary.end == upto) && sums.windows(2).all(|pair| pair[0] == pair[1]);
    let elements = sums.iter().map(|(_, elements)| *elements).max().unwrap_or(0);
    Compared { upto, equal, elements }
}

/// The number of buckets for so many elements.
pub fn bucket_count(elements: u64) -> u32 {
    if elements <= SMALL_ELEMENTS {
        return 1;
    }
    let wanted = (elements / BUCKET_ELEMENTS).min(u64::from(BUCKETS_MAX)) as u32;
    wanted.next_power_of_two().min(BUCKETS_MAX)
}

/// The buckets in which nodes differ, as bits.
pub fn differing(nodes: &[usize], sums: &[Vec<u64>]) -> Bits {
    let count = sums.first().map_or(0, Vec::len);
    let mut of_node: Vec<Vec<u64>> = vec![vec![0; count]; nodes.iter().max().map_or(0, |last| last + 1)];
    for (node, sums) in nodes.iter().zip(sums) {
        of_node[*node].iter_mut().zip(sums).for_each(|(all, sum)| *all = all.wrapping_add(*sum));
    }
    let mut bits = Bits::none(count as u32);
    for bucket in 0..count {
        if of_node.windows(2).any(|pair| pair[0][bucket] != pair[1][bucket]) {
            bits.set(bucket as u32);
        }
    }
    bits
}

/// The owners of the elements of the buckets that differ.
#[derive(Debug)]
pub struct Holdings {
    /// By node, ascending.
    of_node: Vec<Vec<u64>>,
    /// By participant: the elements to fetch from it.
    pub fetch: Vec<Vec<u64>>,
}

impl Holdings {
    /// From each participant's report. Elements that all nodes have are equal; each other is fetched once, from the first that
    /// stores it: the master itself where possible.
    pub fn new(nodes: &[usize], contents: &[Vec<u64>]) -> Self {
        let node_count = nodes.iter().max().map_or(0, |last| last + 1);
        let mut holders: HashMap<u64, (usize, usize)> = HashMap::default();
        for (participant, contents) in contents.iter().enumerate() {
            for content in contents {
                holders.entry(*content).or_insert((0, participant)).0 += 1;
            }
        }
        let mut of_node = vec![Vec::new(); node_count];
        let mut fetch = vec![Vec::new(); contents.len()];
        for (participant, contents) in contents.iter().enumerate() {
            for content in contents {
                let (count, first) = holders[content];
                if count >= node_count {
                    continue;
                }
                of_node[nodes[participant]].push(*content);
                if first == participant {
                    fetch[participant].push(*content);
                }
            }
        }
        of_node.iter_mut().for_each(|contents| contents.sort_unstable());
        Self { of_node, fetch }
    }

    /// Leaves out elements that one node alone has: an injected bug.
    pub(crate) fn forget_lone(&mut self) {
        let mut counts: HashMap<u64, usize> = HashMap::default();
        self.of_node.iter().flatten().for_each(|content| *counts.entry(*content).or_default() += 1);
        let is_shared = |content: &u64| counts[content] > 1;
        self.of_node.iter_mut().chain(&mut self.fetch).for_each(|contents| contents.retain(is_shared));
    }

    /// Whether nothing differs after all.
    pub fn is_empty(&self) -> bool {
        self.fetch.iter().all(Vec::is_empty)
    }

    /// From the fetched rows: for each node the updates that bring it to the merge of all.
    pub fn lacking(
        &self,
        scope: &Scope,
        after: Option<&Resume>,
        fetched: Vec<PartitionResult>,
    ) -> Vec<Vec<PartitionUpdate>> {
        let pool = Pool::new(scope, after, fetched);
        let pages: Vec<ReadPage> = self
            .of_node
            .iter()
            .map(|contents| ReadPage { partitions: pool.page(contents, &scope.table), ..ReadPage::default() })
            .collect();
        let inputs: Vec<&[PartitionResult]> = pages.iter().map(|page| &*page.partitions).collect();
        let merged = merge(scope, &inputs);
        pages.iter().map(|page| lacks(&scope.table, page, &merged, false)).collect()
    }
}

/// All elements that differ, in order.
struct Pool(Vec<(DecoratedKey, Print, Element)>);

impl Pool {
    fn new(scope: &Scope, after: Option<&Resume>, fetched: Vec<PartitionResult>) -> Self {
        let mut printer = Printer::new(&scope.table, scope.seed);
        let (mut pool, mut elements) = (Vec::new(), Vec::new());
        for partition in fetched {
            let key = partition.key.clone();
            let inner = is_inner(after, &partition);
            printer.elements(partition, inner, &mut elements);
            pool.extend(elements.drain(..).map(|(print, element)| (key.clone(), print, element)));
        }
        pool.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.2.order(&b.2)));
        Self(pool)
    }

    /// The contents of a node at these places.
    fn page(&self, contents: &[u64], table: &Table) -> Vec<PartitionResult> {
        let mut out: Vec<PartitionResult> = Vec::new();
        for (key, print, element) in &self.0 {
            if contents.binary_search(&print.content).is_err() {
                continue;
            }
            if out.last().is_none_or(|last| last.key != *key) {
                out.push(PartitionResult::new(key.clone()));
            }
            let partition = out.last_mut().expect("one was just added");
            element.clone().add_to(partition, table);
        }
        out
    }
}
