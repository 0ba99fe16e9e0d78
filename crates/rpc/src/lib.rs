//! The internode protocol: requests and answers between the shards of a cluster's nodes.
//!
//! A shard reaches a shard of another node over a connection of its own, one for each class of verbs, so that it meets
//! no lock and bulk data does not delay what decides whether a node is alive. What a verb's body means is not known
//! here. Layout of the frames, limits and invariants: docs/design/rpc.md.

mod accept;
mod calls;
mod config;
mod error;
pub mod frame;
pub mod hello;
mod inbound;
mod link;
mod messenger;
mod packing;
mod peers;
mod pipe;
mod queue;
mod secure;
mod serving;
mod shard;
mod stats;
mod verb;
mod write_buffer;

pub use config::{CompressBetween, Limits, RpcConfig, Timeouts};
pub use error::{Refusal, RpcError};
pub use messenger::{HandoverEndpoint, Incoming, Messenger, Target, handover_mesh};
pub use packing::{Packer, Packing, unpack};
pub use peers::{Near, PeerInfo, Peers};
pub use secure::{EncryptBetween, Secure};
pub use stats::{Dropped, RpcStats, VerbStats};
pub use verb::{Class, Verb};
pub use write_buffer::WriteBuffer;
