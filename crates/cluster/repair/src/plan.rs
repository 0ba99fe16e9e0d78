//! The ranges that a node repairs, and their participants. Pure.

use topology::{HostId, NodeIndex, Placement, Ring, RingNode, TokenRange};

/// Which of the ranges that a node has copies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// All of them.
    All,
    /// Those of which it is the first replica (within the datacenters that take part): when every node repairs these,
    /// everything is repaired once (`-pr`).
    Primary,
}

/// The ranges to be repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairOptions {
    /// Which of the node's ranges.
    pub ranges: Ranges,
    /// Only with replicas in these datacenters (`-dc`, `-local`); empty for all.
    pub datacenters: Vec<String>,
    /// Only with these replicas, this node among them (`-hosts`); empty for all.
    pub hosts: Vec<HostId>,
    /// Without these replicas.
    pub ignored: Vec<HostId>,
    /// Only these tokens (`-st`, `-et`); empty for all. They may overlap.
    pub tokens: Vec<TokenRange>,
    /// Ranges are cut so that each holds about so many bytes at most; progress is recorded range by range.
    pub unit_bytes_max: u64,
    /// Bytes that a copy of the whole ring would hold, as far as this node can tell.
    pub ring_bytes: u64,
}

impl RepairOptions {
    /// Everything that a node has.
    pub fn all() -> Self {
        Self {
            ranges: Ranges::All,
            datacenters: Vec::new(),
            hosts: Vec::new(),
            ignored: Vec::new(),
            tokens: Vec::new(),
            unit_bytes_max: 1 << 30,
            ring_bytes: 0,
        }
    }
}

/// A range that is repaired as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which tokens; never around the ring's end.
    pub range: TokenRange,
    /// The other nodes that take part.
    pub peers: Vec<NodeIndex>,
    /// Every replica of the range takes part: afterwards all of them have the rows that any had.
    pub complete: bool,
}

impl Unit {
    /// The hosts of the other nodes, by the ring that it was planned with.
    pub fn hosts(&self, ring: &Ring) -> Vec<HostId> {
        self.peers.iter().map(|peer| ring.node(*peer).host).collect()
    }
}

/// Why nothing can be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The node keeps nothing yet.
    #[error("this node has no place in the ring yet: it is joining")]
    NotInRing,
    /// A datacenter that is not there.
    #[error("there is no datacenter {0} in the ring; known are: {1}")]
    UnknownDatacenter(String, String),
    /// The node's own datacenter has to take part.
    #[error("the repair has to include this node's own datacenter, {0}")]
    OwnDatacenter(String),
    /// This node is left out of the nodes that are to take part.
    #[error("The current host must be part of the repair")]
    OwnHost,
    /// The tokens asked for.
    #[error("the range ({}, {}] has no token that this node keeps; name a range of its own, or ask another node", .0.after, .0.upto)]
    NotKept(TokenRange),
}

/// Plans the repair of a keyspace by one of its nodes.
///
/// # Errors
/// [`PlanError::NotInRing`] when this node has no tokens, [`PlanError::UnknownDatacenter`],
/// [`PlanError::OwnDatacenter`] and [`PlanError::OwnHost`] when the named ones leave this node out,
/// [`PlanError::NotKept`] when this node has no replica of one of the given ranges.
pub fn plan(
    ring: &Ring,
    placement: &Placement,
    own: NodeIndex,
    options: &RepairOptions,
) -> Result<Vec<Unit>, PlanError> {
    check(ring, own, options)?;
    let takes_part = |node: &NodeIndex| {
        let RingNode { host, location } = ring.node(*node);
        (options.datacenters.is_empty() || options.datacenters.contains(&location.datacenter))
            && (options.hosts.is_empty() || options.hosts.contains(host))
            && !options.ignored.contains(host)
    };
    let mut kept = Vec::new();
    for (range, replicas) in placement.ranges() {
        let taking: Vec<NodeIndex> = replicas.iter().copied().filter(takes_part).collect();
        let wanted = match options.ranges {
            Ranges::All => taking.contains(&own),
            Ranges::Primary => taking.first() == Some(&own),
        };
        if wanted {
            let complete = taking.len() == replicas.len();
            let mut peers: Vec<NodeIndex> = taking.into_iter().filter(|node| *node != own).collect();
            peers.sort_unstable();
            kept.extend(straight(range).map(|range| Unit { range, peers: peers.clone(), complete }));
        }
    }
    let has = |range: &TokenRange| straight(*range).any(|part| !within(&kept, part).is_empty());
    if let Some(other) = options.tokens.iter().find(|range| !has(range)) {
        return Err(PlanError::NotKept(*other));
    }
    if !options.tokens.is_empty() {
        kept = disjoint(&options.tokens).into_iter().flat_map(|part| within(&kept, part)).collect();
    }
    kept.retain(|unit| !unit.peers.is_empty());
    kept.sort_by_key(|unit| unit.range);
    let joined = join(kept);
    Ok(joined.into_iter().flat_map(|unit| cut(unit, options)).collect())
}

fn check(ring: &Ring, own: NodeIndex, options: &RepairOptions) -> Result<(), PlanError> {
    if usize::from(own.0) >= ring.nodes().len() {
        return Err(PlanError::NotInRing);
    }
    let known = |name: &String| ring.nodes().iter().any(|node| node.location.datacenter == *name);
    if let Some(unknown) = options.datacenters.iter().find(|name| !known(name)) {
        let mut names: Vec<&str> =
            ring.nodes().iter().map(|node| node.location.datacenter.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        return Err(PlanError::UnknownDatacenter(unknown.clone(), names.join(", ")));
    }
    let RingNode { host, location } = ring.node(own);
    if options.ignored.contains(host) || !options.hosts.is_empty() && !options.hosts.contains(host) {
        return Err(PlanError::OwnHost);
    }
    let own = &location.datacenter;
    if !options.datacenters.is_empty() && !options.datacenters.contains(own) {
        return Err(PlanError::OwnDatacenter(own.clone()));
    }
    Ok(())
}

/// A range that may go around the ring's end as ranges that do not. No key has the smallest token.
pub fn straight(range: TokenRange) -> impl Iterator<Item = TokenRange> {
    let TokenRange { after, upto } = range;
    let parts = if after < upto {
        [Some(range), None]
    } else {
        [Some(TokenRange { after, upto: i64::MAX }), Some(TokenRange { after: i64::MIN, upto })]
    };
    parts.into_iter().flatten().filter(|range| range.after < range.upto)
}

/// Ranges in order that have the same tokens, each token once.
fn disjoint(ranges: &[TokenRange]) -> Vec<TokenRange> {
    let mut all: Vec<TokenRange> = ranges.iter().copied().flat_map(straight).collect();
    all.sort_unstable();
    let mut out: Vec<TokenRange> = Vec::new();
    for range in all {
        match out.last_mut() {
            Some(last) if range.after <= last.upto => last.upto = last.upto.max(range.upto),
            _ => out.push(range),
        }
    }
    out
}

/// The ranges of which a node has the only copy.
pub fn alone(placement: &Placement, own: NodeIndex) -> Vec<TokenRange> {
    let only = placement.ranges().filter(|(_, replicas)| *replicas == [own]);
    only.flat_map(|(range, _)| straight(range)).collect()
}

fn within(units: &[Unit], tokens: TokenRange) -> Vec<Unit> {
    let clip = |unit: &Unit| {
        let after = unit.range.after.max(tokens.after);
        let upto = unit.range.upto.min(tokens.upto);
        (after < upto).then(|| Unit { range: TokenRange { after, upto }, ..unit.clone() })
    };
    units.iter().filter_map(clip).collect()
}

/// Neighbours with the same peers become one.
fn join(units: Vec<Unit>) -> Vec<Unit> {
    let mut out: Vec<Unit> = Vec::new();
    for unit in units {
        match out.last_mut() {
            Some(last)
                if last.range.upto == unit.range.after
                    && last.peers == unit.peers
                    && last.complete == unit.complete =>
            {
                last.range.upto = unit.range.upto;
            }
            _ => out.push(unit),
        }
    }
    out
}

/// How much of the ring a range is, from 0 to 1.
pub fn share(range: TokenRange) -> f64 {
    range.upto.wrapping_sub(range.after) as u64 as f64 / 2f64.powi(64)
}

/// Equal parts of about the size wanted.
fn cut(unit: Unit, options: &RepairOptions) -> Vec<Unit> {
    let bytes = share(unit.range) * options.ring_bytes as f64;
    let length = unit.range.upto.wrapping_sub(unit.range.after) as u64;
    let parts = ((bytes / options.unit_bytes_max.max(1) as f64).ceil() as u64).clamp(1, length.min(1 << 16));
    let bound = |part: u64| {
        let offset = u128::from(length) * u128::from(part) / u128::from(parts);
        unit.range.after.wrapping_add(offset as i64)
    };
    (0..parts)
        .map(|part| Unit { range: TokenRange { after: bound(part), upto: bound(part + 1) }, ..unit.clone() })
        .collect()
}
