//! The guarantees of the simulator: the same seed gives the same trace, and faults do as their names say.

mod buggify;
mod clocks;
mod crashes;
mod determinism;
mod disks;
mod io_queue;
mod network;

use rt::{LocalBoxFuture, Rt, ShardMain};

/// The mains of a node of one shard.
fn single<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F + Send + 'static) -> Vec<ShardMain> {
    vec![Box::new(move |rt| Box::pin(main(rt)) as LocalBoxFuture<()>)]
}
