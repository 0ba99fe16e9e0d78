//! The models of the tables that have a client of their own: the state that the client and the checker share, without a connection, a clock or a
//! task, so that each can be tested alone.

pub(crate) mod bounded;
pub(crate) mod changes;
pub(crate) mod ddl;
pub(crate) mod indexed;
pub(crate) mod items;
pub(crate) mod items_derived;
pub(crate) mod lwt;
pub(crate) mod replicating;
pub(crate) mod serial;
pub(crate) mod stamps;
pub(crate) mod synchronous;
pub(crate) mod truncating;
pub(crate) mod views;
