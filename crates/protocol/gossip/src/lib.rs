//! Gossip between nodes: liveness, generations, load and versions. Pure.
//!
//! [`Gossip`] is a state machine: events and the time go in, [`Effect`]s come out; it has no tasks, no clock and no sockets.
//! Membership is not its business: the cluster's log decides which hosts belong, and [`Event::Members`] brings them.
//! See docs/design/gossip.md.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod codec;
mod config;
mod detector;
mod endpoint;
mod exchange;
mod machine;
mod message;
mod own;
mod roster;
mod selection;

pub use codec::{CodecError, FORMAT_VERSION, decode, encode};
pub use config::Config;
pub use detector::{ArrivalWindow, DetectorConfig, phi};
pub use endpoint::{
    ENDPOINT_BYTES_MAX, Endpoint, Key, STATES_MAX, StatesFull, VALUE_BYTES_MAX, Versioned, status,
};
pub use machine::{Change, DownReason, Effect, Event, Gossip, Now, Peer, Refusal, Standing, Stats};
pub use message::{Delta, Digest, Message, Request, Roster};
