//! The compactions that a strategy would choose one after another, counted without choosing each.

use crate::candidate::Candidate;

/// The compactions that a strategy would choose one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How many they are.
    pub compactions: u64,
    /// Bytes of data of the SSTables that they merge, each counted once.
    pub bytes: u64,
}

/// The compactions that would follow one another, and the SSTables that none of them merges.
#[derive(Default)]
pub(crate) struct Pending<'a> {
    pub(crate) compactions: u64,
    pub(crate) left: Vec<&'a Candidate>,
}

impl<'a> Pending<'a> {
    /// Of a group that is merged in parts of `most`, the last of which has at least `least`.
    pub(crate) fn add_group(&mut self, group: &[&'a Candidate], (least, most): (usize, usize)) {
        assert!(0 < least && least <= most, "a part of a group has SSTables");
        for part in group.chunks(most) {
            if part.len() >= least {
                self.compactions += 1;
            } else {
                self.left.extend(part);
            }
        }
    }
}
