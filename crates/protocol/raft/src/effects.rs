//! The effects of a node's turn, which wait for its writes.

use crate::data::{Committed, ReadState, Snapshot};
use crate::message::Message;

/// The effects that are allowed once a [`Persist`] is durable, in this order.
#[derive(Debug, Default)]
pub struct Effects {
    /// The state above is this snapshot's from now on.
    pub install: Option<Snapshot>,
    /// Entries to apply, ascending, after the snapshot.
    pub committed: Vec<Committed>,
    /// Messages to send, each encoded with [`crate::Message::encode`].
    pub messages: Vec<Message>,
    /// Reads that were asked for and may be served once their index is applied.
    pub reads: Vec<ReadState>,
}
