//! Checker: registers with the timestamps of their coordinators show at ALL, and at each node alone, the acknowledged writes or something later by
//! timestamp.

use wire::Consistency;

use crate::cluster::clients::stamps::read;
use crate::cluster::director::ClusterDirector;

/// Reads every register of all replicas, and then of one by each node.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let keys: Vec<u64> = director.stamps.borrow().registers.keys().copied().collect();
    let mut levels = vec![(director.any_node(), Consistency::All)];
    levels.extend(director.present().into_iter().map(|nth| (nth, Consistency::One)));
    for (nth, level) in levels {
        let mut connection = director.connect(nth).await?;
        connection.consistency = level;
        for key in &keys {
            let (world, stamps) = (director.world.clone(), director.stamps.clone());
            let read = read(&world, &stamps, &mut connection, *key, true).await;
            read.map_err(|failure| format!("register {key}, read at {level:?} by node {nth}: {failure}"))?;
        }
    }
    director.stamps.borrow_mut().retire();
    Ok(())
}
