//! The clients of a cluster: tasks that send requests in the fault phase, note the answers in a model, and judge those that can be judged at
//! once. They know the servers, the plan and the world, and not the director.

pub(crate) mod bounded;
pub(crate) mod ddl;
pub(crate) mod indexed;
pub(crate) mod items;
pub(crate) mod items_draw;
mod items_statements;
pub(crate) mod lwt;
pub(crate) mod lwt_draw;
pub(crate) mod replicating;
pub(crate) mod serial;
pub(crate) mod stamps;
pub(crate) mod steady;
pub(crate) mod synchronous;
pub(crate) mod truncating;
pub(crate) mod views;
pub(crate) mod worker;
