//! Bulk transfer between nodes: files and batches of rows in chunks, with a window, checksums, a limit of bandwidth,
//! and a position from which a transfer that was cut goes on.
//!
//! What is sent comes from a [`Source`], what arrives goes to a [`Sink`]; what either means (SSTables, rows of a range)
//! is not known here. Plan, position, window and bandwidth are values without IO; the driver at both ends is thin.

mod bandwidth;
mod codec;
mod error;
mod files;
mod plan;
mod progress;
mod receive;
mod send;
mod sending;

pub use bandwidth::Bandwidth;
pub use codec::{Chunk, ChunkAnswer, Close, CodecError, Open, OpenAnswer};
pub use error::{StreamError, refusal};
pub use files::{FileRange, FileSink, FileSource};
pub use plan::{Item, ItemKind, Plan, PlanError, Position, TransferId};
pub use progress::{Meter, Progress};
pub use receive::{Receiver, Sink};
pub use send::{Piece, Sender, Source, StreamConfig, Summary};
pub use sending::Sending;
