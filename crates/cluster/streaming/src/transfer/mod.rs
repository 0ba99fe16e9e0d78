//! Transfers of files and batches of rows between nodes: chunks in a window, with checksums, a limit of bandwidth, and a position at
//! which an interrupted transfer resumes.
//!
//! A [`Source`] produces the bytes, a [`Sink`] stores them; this module does not know SSTables. Plan, position, window and bandwidth
//! are values without IO; the drivers at both ends are thin.

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
