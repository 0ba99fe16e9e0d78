//! The internode protocol: requests and answers between the shards of a cluster's nodes.
//!
//! A shard reaches another node over one connection for each class of verbs, so that bulk data does not delay the messages that decide
//! whether a node is alive; a frame names the shard that serves it. In large clusters shards share connections. The meaning of a
//! verb's body is not known here. Layout of the frames, limits and invariants: docs/design/rpc.md.

mod accept;
mod acceptor;
mod calls;
mod config;
mod connections;
mod error;
mod forward;
mod forwarding;
pub mod frame;
mod frame_error;
mod greet;
mod handover;
pub mod hello;
mod inbound;
mod inbound_task;
mod lane;
mod link;
mod messenger;
mod metrics;
mod packing;
mod peer;
mod peer_stats;
mod peer_table;
mod peers;
mod pipe;
mod pool;
mod queue;
mod request;
mod secure;
mod served;
mod serving;
mod shard;
mod stats;
mod sweep;
mod verb;
mod write_buffer;

pub use config::{CompressBetween, Limits, RpcConfig, Timeouts};
pub use error::{Refusal, RpcError};
pub use frame_error::FrameError;
pub use handover::{HandoverEndpoint, handover_mesh};
pub use messenger::{Messenger, Target};
pub use packing::{Packer, Packing, unpack};
pub use peer_stats::{Amount, PeerStats};
pub use peers::{Near, PeerInfo, Peers};
pub use pool::ConnectionsPerPeer;
pub use request::Incoming;
pub use secure::{EncryptBetween, Secure};
pub use stats::{Dropped, RpcStats, VerbStats};
pub use verb::{Class, Verb};
pub use write_buffer::WriteBuffer;
