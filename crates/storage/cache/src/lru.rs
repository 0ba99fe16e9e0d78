//! The order of last use, over partitions and blocks alike: a doubly linked list in a vector.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use schema::TableId;

use crate::partition::Entry;

/// The meaning of a place in the list.
pub(crate) enum Item {
    /// A cached partition, which may have left its table.
    Partition { table: TableId, key: Bytes, entry: Rc<RefCell<Entry>> },
    /// A block of a file.
    Block { file: u64, block: u64 },
}

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

struct Node {
    newer: u32,
    older: u32,
    item: Option<Item>,
}

/// The list. Nodes are named by numbers that stay until they are removed.
pub(crate) struct Lru {
    nodes: Vec<Node>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl Default for Lru {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE }
    }
}

impl Lru {
    /// Adds an item as the newest.
    pub(crate) fn push(&mut self, item: Item) -> u32 {
        let node = Node { newer: NONE, older: NONE, item: Some(item) };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 things are cached")
            }
        };
        self.link(at);
        at
    }

    /// Makes an item the newest.
    pub(crate) fn touch(&mut self, at: u32) {
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
    }

    /// Removes an item.
    pub(crate) fn remove(&mut self, at: u32) {
        assert!(self.nodes[at as usize].item.take().is_some(), "a node is removed once");
        self.unlink(at);
        self.free.push(at);
    }

    /// Removes the oldest item.
    pub(crate) fn pop_oldest(&mut self) -> Option<Item> {
        let at = self.oldest;
        let item = self.nodes.get_mut(at as usize)?.item.take();
        self.unlink(at);
        self.free.push(at);
        item
    }

    fn link(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        self.nodes[at as usize].older = before;
        self.nodes[at as usize].newer = NONE;
        match before {
            NONE => self.oldest = at,
            before => self.nodes[before as usize].newer = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(block: u64) -> Item {
        Item::Block { file: 1, block }
    }

    fn oldest(lru: &mut Lru) -> Option<u64> {
        lru.pop_oldest().map(|item| match item {
            Item::Block { block, .. } => block,
            Item::Partition { .. } => panic!("a block"),
        })
    }

    #[test]
    fn oldest_first() {
        let mut lru = Lru::default();
        let nodes: Vec<u32> = (0..4).map(|n| lru.push(block(n))).collect();
        lru.touch(nodes[0]);
        lru.touch(nodes[3]);
        lru.remove(nodes[2]);
        assert_eq!(oldest(&mut lru), Some(1));
        let again = lru.push(block(9));
        assert_eq!(oldest(&mut lru), Some(0));
        lru.touch(again);
        assert_eq!(oldest(&mut lru), Some(3));
        assert_eq!(oldest(&mut lru), Some(9));
        assert_eq!(oldest(&mut lru), None);
    }
}
