//! The client's half of the protocol: requests written, responses read. The load generator and the tests use it.

mod request;
mod response;

pub use request::{BatchItem, Parameters, RequestWriter};
pub use response::{Answer, AnswerBody, Prepared, ResultBody, Rows};
