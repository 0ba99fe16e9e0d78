//! Change data capture: the table that is the log of another table's changes, the streams that it is made of, and the rows of it that
//! follow from a write, as functions of definitions, the rows before, and the write (docs/design/cdc.md).
//!
//! The rows of a log follow from the write alone: its timestamp, its content, and, for images of rows, the cells of before with the timestamps
//! that they have. So all replicas of a row derive rows that are equal or merge, however often and in any order.

mod canonical;
mod change;
mod comparison;
mod image;
mod log;
mod log_table;
mod operation;
mod replay;
mod stream;
mod time;

pub use change::time_span;
pub use comparison::{Divergence, Window, compare};
pub use log::{InvalidLog, Log};
pub use log_table::{COLUMN_PREFIX, END_OF_BATCH, OPERATION, deleted, deleted_elements, log_name, log_table};
pub use operation::Operation;
pub use replay::{Replay, UnreadableRow};
pub use stream::{StreamId, stream_of, streams_of};
pub use time::Naming;
