//! The checkers of a quiescent phase, a promise each, and their order. They know the director, the models and the clients, and no phase of a run.

pub(crate) mod atomic;
pub(crate) mod available;
pub(crate) mod bounded;
pub(crate) mod changes;
pub(crate) mod ddl;
pub(crate) mod durable;
pub(crate) mod equal;
pub(crate) mod indexed;
pub(crate) mod items;
pub(crate) mod items_derived;
pub(crate) mod kept;
pub(crate) mod left_behind;
pub(crate) mod lwt;
pub(crate) mod monotonic;
pub(crate) mod repaired;
pub(crate) mod replicating;
pub(crate) mod resurrection;
pub(crate) mod schema;
pub(crate) mod serial;
pub(crate) mod stamps;
pub(crate) mod truncating;
pub(crate) mod truncation;
pub(crate) mod views;

use crate::cluster::director::ClusterDirector;
use crate::cluster::plan::fault::Fault;

/// The checks of a quiescent phase, in this order.
pub(crate) const CHECKS: [&str; 25] = [
    "kept",
    "truncation",
    "left_behind",
    "delivered",
    "repaired",
    "resurrection",
    "replicating",
    "truncating",
    "indexed",
    "views",
    "changes",
    "durable",
    "atomic",
    "equal",
    "serial",
    "lwt",
    "stamps",
    "items",
    "transactions",
    "item_index",
    "item_stream",
    "schema",
    "ddl",
    "bounded",
    "available",
];

/// Runs a checker of this name, if the plan has something for it.
pub(crate) async fn check(director: &mut ClusterDirector, name: &str) -> Result<(), String> {
    let forgets = director.plan.faults.iter().any(|fault| fault.loses_memory());
    let delivered = !director.plan.grace.refuses_hints(director.sim.now() - director.began);
    let keeps_hints = director.plan.hints && delivered && !director.hints_lost && !forgets;
    let jumps = director.plan.faults.contains(&Fault::ClockJump);
    match name {
        "kept" => kept::check(director).await,
        "truncation" => truncation::truncate(director).await,
        "left_behind" => left_behind::check(director).await,
        "delivered" if keeps_hints => {
            director.keep_promises();
            equal::check(director).await
        }
        "delivered" => Ok(()),
        "repaired" => repaired::check(director).await,
        "resurrection" => resurrection::check(director).await,
        "replicating" if !director.plan.replications.is_empty() => replicating::check(director).await,
        "replicating" => Ok(()),
        "truncating" if director.plan.truncates => truncating::check(director).await,
        "truncating" => Ok(()),
        "indexed" if director.plan.truncates => indexed::check(director).await,
        "indexed" => Ok(()),
        "views" if director.plan.views => views::check(director).await,
        "views" => Ok(()),
        "changes" if director.plan.captured => changes::check(director).await,
        "changes" => Ok(()),
        "durable" => durable::check(director).await,
        "atomic" => atomic::check(director),
        "equal" => equal::check(director).await,
        "serial" if director.plan.serial_percent > 0 => serial::judge(director).await,
        "serial" => Ok(()),
        "lwt" => lwt::judge(director).await,
        "stamps" if director.plan.operations.stamps => stamps::check(director).await,
        "stamps" => Ok(()),
        "items" if director.plan.operations.items => items::judge_numbers(director).await,
        "items" => Ok(()),
        "transactions" if director.plan.operations.items => items::judge_lists(director),
        "transactions" => Ok(()),
        "item_index" if director.plan.operations.items => items_derived::check_indexes(director).await,
        "item_index" => Ok(()),
        // Changes of a clock that was behind may be older than the stream, and those of one that was ahead are not shown yet.
        "item_stream" if director.plan.operations.items && !jumps => {
            items_derived::check_stream(director).await
        }
        "item_stream" => Ok(()),
        "schema" => schema::check(director).await,
        "ddl" => ddl::judge(director).await,
        "bounded" => bounded::check(director).await,
        "available" if director.plan.probes => available::check(director).await,
        "available" => Ok(()),
        other => panic!("no checker is called {other}"),
    }
}
