//! The first places of a scan of an ordered index, collected over several sources.

use std::collections::BTreeSet;

use crate::ordered_scan::OrderedScan;
use crate::place::{self, Place};
use crate::term::successor;

/// The first terms and places of a scan, collected over several sources, each of which offers its own in the order of the scan.
#[derive(Debug)]
pub(crate) struct OrderedGather {
    /// Terms and places below are out, one behind the other.
    pub(crate) start: Vec<u8>,
    /// Terms and places from here on are out.
    pub(crate) end: Vec<u8>,
    pub(crate) is_reversed: bool,
    count: usize,
    /// Of each the term's length.
    found: BTreeSet<(Box<[u8]>, usize)>,
}

impl OrderedGather {
    pub(crate) fn new(scan: &OrderedScan) -> Self {
        let (mut start, mut end) = (scan.start.to_vec(), scan.end.to_vec());
        if let Some((term, Place { key, clustering })) = &scan.after {
            let mut bytes = Vec::new();
            place::encode(key, clustering.as_ref(), &mut bytes);
            if scan.is_reversed {
                end = end.min([term, &bytes[..]].concat());
            } else {
                start = start.max(successor(&[term, &bytes[..]].concat()));
            }
        }
        Self { start, end, is_reversed: scan.is_reversed, count: scan.count, found: BTreeSet::new() }
    }

    /// Whether nothing can be found.
    pub(crate) fn is_void(&self) -> bool {
        self.start >= self.end
    }

    fn last(&self) -> Option<&(Box<[u8]>, usize)> {
        if self.is_reversed { self.found.first() } else { self.found.last() }
    }

    /// Takes a term with its place, one behind the other, if they are wanted; false when neither they nor those that the source has next are.
    pub(crate) fn offer(&mut self, bytes: &[u8], term_len: usize) -> bool {
        let (is_before, is_behind) = match self.is_reversed {
            false => (*bytes < *self.start, *bytes >= *self.end),
            true => (*bytes >= *self.end, *bytes < *self.start),
        };
        if is_before || is_behind {
            return is_before;
        }
        if self.found.len() >= self.count {
            let is_wanted = self.last().is_some_and(|(last, _)| match self.is_reversed {
                false => *bytes < **last,
                true => *bytes > **last,
            });
            if !is_wanted {
                return false;
            }
        }
        self.found.insert((bytes.into(), term_len));
        if self.found.len() > self.count {
            _ = if self.is_reversed { self.found.pop_first() } else { self.found.pop_last() };
        }
        true
    }

    /// The terms with their places, one behind the other, each with the term's length; and whether the scan is reversed.
    pub(crate) fn into_found(self) -> (BTreeSet<(Box<[u8]>, usize)>, bool) {
        (self.found, self.is_reversed)
    }
}
