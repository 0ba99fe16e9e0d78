//! One Raft group's state machine, without IO, clock or randomness of its own: events in, effects out.
//!
//! The algorithm is the `raft` crate of crates.io. This crate keeps it in the order that Raft demands (durable writes are
//! handed out before the messages that depend on them, as types: [`Batch`] before [`Effects`]), draws its election timeouts from a seed, and
//! gives messages, entries and snapshots a codec with limits, so that no byte from the network reaches a protobuf parser.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

pub mod codec;
mod convert;
mod data;
mod effects;
mod guard;
mod learners;
mod message;
mod node;
mod store;

pub use codec::CodecError;
pub use data::{
    Change, Committed, ENTRY_BYTES_MAX, Entry, HardState, Membership, Outcome, Payload, Peer, Persist,
    Proposed, ReadState, Refused, Role, Snapshot, Status, Stored, Unacceptable,
};
pub use effects::Effects;
pub use message::Message;
pub use node::{BadLog, Batch, Config, Node};
