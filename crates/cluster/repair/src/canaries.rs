//! Bugs that tests inject, to see that their checks find them. No configuration leads here.

/// Which bugs are injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canaries {
    /// No node is sent missing rows of every second token.
    pub skipped_tokens: bool,
    /// Data that one node alone has is not sent to the others.
    pub lone_elements: bool,
}
