//! Bugs that tests plant, to see that their checks find them. No configuration leads here.

/// Which bugs are planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canaries {
    /// Reads of several replicas are content with one answer less than their level asks for.
    pub short_quorum: bool,
    /// Hints are said to be kept, and are not.
    pub dropped_hints: bool,
}
