//! Checker: for each partition under lightweight transactions on several rows and columns there is an order of all requests which explains every
//! answer, the values in refusals included.

use std::collections::BTreeSet;

use model::conditional::ConditionalPartition;
use model::linear::{Linearity, check};
use wire::Consistency;

use crate::cluster::checks::serial;
use crate::cluster::clients::lwt::read;
use crate::cluster::director::ClusterDirector;
use crate::cluster::models::lwt::SharedLwt;

/// Judges all tables.
pub(crate) async fn judge(director: &mut ClusterDirector) -> Result<(), String> {
    for lwt in director.lwt.clone().all() {
        judge_table(director, lwt).await?;
    }
    Ok(())
}

/// Reads every partition once more, serially and then plainly by another node, and looks for an order of each history.
async fn judge_table(director: &mut ClusterDirector, lwt: &SharedLwt) -> Result<(), String> {
    let keys: Vec<u64> = lwt.borrow().histories.keys().copied().collect();
    let homes: BTreeSet<Option<usize>> = keys.iter().map(|key| lwt.borrow().home(*key)).collect();
    let plain = lwt.borrow().levels.plain;
    let serial =
        if lwt.borrow().levels.homes.is_some() { Consistency::LocalSerial } else { Consistency::Serial };
    for (level, home) in
        [serial, plain].into_iter().flat_map(|level| homes.iter().map(move |home| (level, *home)))
    {
        let nth = director.any_node_of(home);
        let mut connection = director.connect(nth).await?;
        for key in keys.iter().filter(|key| lwt.borrow().home(**key) == home) {
            let world = director.world.clone();
            if !read(&world, lwt, &mut connection, *key, level).await || director.failed() {
                return Err(format!("partition {key} is not read at {level:?} by node {nth}"));
            }
        }
    }
    let lwt = &mut *lwt.borrow_mut();
    let closed = std::mem::take(&mut lwt.closed);
    for (key, history) in closed.iter().map(|(key, history)| (key, history)).chain(&lwt.histories) {
        let found = check(&ConditionalPartition, &history.operations);
        director.world.borrow_mut().stats.note_history(!matches!(found, Linearity::Unknown));
        match found {
            Linearity::Linear(_) | Linearity::Unknown => {}
            Linearity::Broken(longest) => {
                let object = format!("{}, partition {key}", lwt.table);
                return Err(serial::complaint(&object, &history.operations, &longest));
            }
        }
    }
    lwt.end_unanswered(director.world.borrow().now());
    lwt.retire();
    Ok(())
}
