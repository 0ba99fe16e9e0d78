//! The order of last use, over ranges of rows and blocks of files alike: a doubly linked list in a vector.

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// A place in the list.
struct Node<T> {
    newer: u32,
    older: u32,
    item: Option<T>,
}

/// The list. Nodes are named by numbers that stay until they are removed.
pub(crate) struct Lru<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl<T> Default for Lru<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE }
    }
}

impl<T> Lru<T> {
    /// Adds an item as the newest.
    pub(crate) fn push(&mut self, item: T) -> u32 {
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

    /// The oldest item.
    pub(crate) fn oldest(&self) -> Option<(u32, &T)> {
        let item = self.nodes.get(self.oldest as usize)?.item.as_ref();
        Some((self.oldest, item.expect("listed nodes have an item")))
    }

    /// Removes the oldest item.
    pub(crate) fn pop_oldest(&mut self) -> Option<T> {
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

    #[test]
    fn oldest_first() {
        let mut lru: Lru<u64> = Lru::default();
        let nodes: Vec<u32> = (0..4u64).map(|n| lru.push(n)).collect();
        lru.touch(nodes[0]);
        lru.touch(nodes[3]);
        lru.remove(nodes[2]);
        assert_eq!(lru.oldest(), Some((nodes[1], &1)));
        assert_eq!(lru.pop_oldest(), Some(1));
        let again = lru.push(9);
        assert_eq!(lru.pop_oldest(), Some(0));
        lru.touch(again);
        assert_eq!(lru.pop_oldest(), Some(3));
        assert_eq!(lru.pop_oldest(), Some(9));
        assert_eq!(lru.pop_oldest(), None);
    }
}
