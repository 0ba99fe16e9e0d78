//! The token ring: which nodes exist, where they stand, and which tokens each took. A value; a change makes another.

use std::collections::BTreeSet;
use std::fmt;

/// A node's identity for life, independent of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

impl fmt::Display for HostId {
    /// As a UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Its datacenter.
    pub datacenter: String,
    /// Its rack, a name within the datacenter.
    pub rack: String,
}

impl Location {
    /// From the two names.
    pub fn new(datacenter: impl Into<String>, rack: impl Into<String>) -> Self {
        Self { datacenter: datacenter.into(), rack: rack.into() }
    }
}

/// A node of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingNode {
    /// Its role.
    pub host: HostId,
    /// Where it stands.
    pub location: Location,
}

/// The place of a node in its ring's list of nodes. It means nothing in another ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u16);

/// The reason why nodes and tokens are an invalid ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Two nodes took the same token.
    #[error("token {token} is taken by two nodes")]
    TokenTaken {
        /// The token.
        token: i64,
    },
    /// A host stands in the ring twice.
    #[error("host {host:?} is in the ring twice")]
    HostTwice {
        /// The host.
        host: HostId,
    },
    /// A node without a token owns nothing and cannot be found.
    #[error("host {host:?} has no token")]
    NoToken {
        /// The host.
        host: HostId,
    },
    /// More nodes than a ring can count.
    #[error("a ring has at most 65,535 nodes")]
    TooManyNodes,
}

/// Nodes and their tokens. A token owns the range from the token before it (not included) to itself (included), and the
/// smallest token also the tokens above the greatest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    nodes: Vec<RingNode>,
    /// Ascending; every token once.
    tokens: Vec<(i64, NodeIndex)>,
}

impl Ring {
    /// A ring of these nodes, each with its tokens.
    ///
    /// # Errors
    /// A [`RingError`] when there are more than 65,535 nodes, a host comes twice or has no token, or two nodes have the
    /// same token.
    pub fn new(members: impl IntoIterator<Item = (RingNode, Vec<i64>)>) -> Result<Self, RingError> {
        let mut ring = Self::default();
        let mut hosts = BTreeSet::new();
        for (node, tokens) in members {
            let Ok(index) = u16::try_from(ring.nodes.len()) else { return Err(RingError::TooManyNodes) };
            if !hosts.insert(node.host) {
                return Err(RingError::HostTwice { host: node.host });
            }
            if tokens.is_empty() {
                return Err(RingError::NoToken { host: node.host });
            }
            ring.tokens.extend(tokens.into_iter().map(|token| (token, NodeIndex(index))));
            ring.nodes.push(node);
        }
        ring.tokens.sort_unstable();
        match ring.tokens.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(RingError::TokenTaken { token: pair[0].0 }),
            None => Ok(ring),
        }
    }

    /// The nodes, in the order in which they were given.
    pub fn nodes(&self) -> &[RingNode] {
        &self.nodes
    }

    /// A node by its index.
    pub fn node(&self, index: NodeIndex) -> &RingNode {
        &self.nodes[usize::from(index.0)]
    }

    /// All indexes of nodes.
    pub fn indexes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.nodes.len() as u16).map(NodeIndex)
    }

    /// Where a host stands in the list.
    pub fn index_of(&self, host: HostId) -> Option<NodeIndex> {
        self.nodes.iter().position(|node| node.host == host).map(|at| NodeIndex(at as u16))
    }

    /// Every token with its owner, ascending.
    pub fn tokens(&self) -> &[(i64, NodeIndex)] {
        &self.tokens
    }

    /// A node's tokens, ascending.
    pub fn tokens_of(&self, index: NodeIndex) -> impl Iterator<Item = i64> + '_ {
        self.tokens.iter().filter(move |(_, owner)| *owner == index).map(|(token, _)| *token)
    }

    /// The place in [`Ring::tokens`] of the token that owns `token`; `None` in an empty ring.
    pub fn owner_position(&self, token: i64) -> Option<usize> {
        if self.tokens.is_empty() {
            return None;
        }
        let at = self.tokens.partition_point(|(owner, _)| *owner < token);
        Some(if at == self.tokens.len() { 0 } else { at })
    }

    /// The owners of tokens from a place on, once around the ring.
    pub fn walk(&self, from: usize) -> impl Iterator<Item = NodeIndex> + '_ {
        let (before, after) = self.tokens.split_at(from);
        after.iter().chain(before).map(|(_, owner)| *owner)
    }

    /// How much of the ring lies between each token and the one before it, in [`Ring::tokens`]' order; the parts of all
    /// tokens make 2^64.
    pub fn range_lengths(&self) -> Vec<u128> {
        let count = self.tokens.len();
        (0..count)
            .map(|at| {
                let before = self.tokens[(at + count - 1) % count].0;
                match self.tokens[at].0.wrapping_sub(before) as u64 {
                    0 => 1 << 64,
                    length => u128::from(length),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u8) -> RingNode {
        RingNode { host: HostId([id; 16]), location: Location::new("dc1", "rack1") }
    }

    #[test]
    fn a_host_is_shown_as_a_uuid() {
        let host = HostId(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        assert_eq!(host.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_token_owns_the_range_before_it() {
        let ring = Ring::new([(node(1), vec![-100, 50]), (node(2), vec![0])]).unwrap();
        let owner = |token| ring.tokens()[ring.owner_position(token).unwrap()];
        assert_eq!(owner(-101), (-100, NodeIndex(0)));
        assert_eq!(owner(-100), (-100, NodeIndex(0)));
        assert_eq!(owner(-99), (0, NodeIndex(1)));
        assert_eq!(owner(1), (50, NodeIndex(0)));
        assert_eq!(owner(51), (-100, NodeIndex(0)), "above the greatest token the ring begins again");
        assert_eq!(ring.range_lengths().iter().sum::<u128>(), 1 << 64);
        assert_eq!(Ring::default().owner_position(0), None);
    }

    #[test]
    fn invalid_rings_are_refused() {
        let taken = Ring::new([(node(1), vec![5]), (node(2), vec![5])]);
        assert_eq!(taken, Err(RingError::TokenTaken { token: 5 }));
        let twice = Ring::new([(node(1), vec![5]), (node(1), vec![6])]);
        assert_eq!(twice, Err(RingError::HostTwice { host: HostId([1; 16]) }));
        assert_eq!(Ring::new([(node(1), vec![])]), Err(RingError::NoToken { host: HostId([1; 16]) }));
    }

    #[test]
    fn one_token_owns_the_whole_ring() {
        let ring = Ring::new([(node(1), vec![7])]).unwrap();
        assert_eq!(ring.range_lengths(), [1 << 64]);
    }
}
