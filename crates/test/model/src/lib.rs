//! The reference database: the possible results of a read, by walking a list of all writes.
//!
//! It shares no code with the real one, stores everything and optimises nothing, so that it can be read at one sitting.
//! A write is certain, or it is not known to have happened; an observation is right when some choice of the unknown
//! writes explains it.

pub mod append;
pub mod conditional;
pub mod item;
pub mod linear;
mod partition;
mod row;
mod shape;
mod value;
mod write;

pub use partition::{Clock, Entry, Explained, Mismatch, Partition, State, Unknown, Verdict};
pub use row::{RowState, Seconds, Seen, SeenRow};
pub use shape::{Column, ColumnId, ColumnType, ScalarType, Shape};
pub use value::{Scalar, Value};
pub use write::{Effect, Place, Slice, Write};
