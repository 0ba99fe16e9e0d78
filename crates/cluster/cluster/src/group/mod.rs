//! The group of all nodes that agrees on schema and members: its log on disk, its task on shard 0, and its interface for the rest of the node
//! asks of it (docs/design/raft.md).

mod driver;
mod error;
mod handle;
mod heard;
mod inner;
mod log;
mod log_format;
mod pieces;
mod receiving;
mod serve;
mod start;
mod stopped;
mod wire;

pub use driver::VOTERS_MAX;
pub use error::{GroupError, JoinError, ProposeError};
pub use handle::{ChangeSchemaError, Group, GroupStatus, SchemaAgreement};
pub use inner::{Applied, GroupConfig};
pub use log::LogError;
pub use log_format::Damage;
pub use start::{Blank, Opened};
pub use stopped::{Shown, ShownEntry, StoppedError, StoppedLog};
