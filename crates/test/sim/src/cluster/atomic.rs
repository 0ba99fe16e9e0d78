//! Checker: a logged batch is there in all of its partitions or in none, once the nodes have come to rest.

use std::collections::BTreeMap;

use crate::cluster::director::ClusterDirector;
use crate::world::Key;

/// One part of a batch: table, partition, the number of the write there.
pub(crate) type Part = (usize, Key, u64);

/// Logged batches of several partitions, and what readings have proved of their parts.
#[derive(Default)]
pub(crate) struct Batches {
    batches: Vec<Vec<Part>>,
    proved: BTreeMap<u64, bool>,
}

impl Batches {
    /// Notes a batch that is about to be sent.
    pub(crate) fn begin(&mut self, parts: Vec<Part>) {
        self.batches.push(parts);
    }

    /// A reading has proved that a write happened, or that it did not.
    pub(crate) fn prove(&mut self, id: u64, happened: bool) {
        self.proved.entry(id).or_insert(happened);
    }

    /// A table was truncated: its parts say nothing any more.
    pub(crate) fn forget_table(&mut self, table: usize) {
        self.batches.iter_mut().for_each(|parts| parts.retain(|(of, ..)| *of != table));
    }

    fn torn(&self) -> Option<(&Part, &Part)> {
        self.batches.iter().find_map(|parts| {
            let with = |happened: bool| parts.iter().find(|part| self.proved.get(&part.2) == Some(&happened));
            Some((with(true)?, with(false)?))
        })
    }
}

/// Looks for a batch of which a part is there and another is not.
pub(crate) fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let mut world = director.world.borrow_mut();
    if let Some((there, missing)) = world.batches.torn() {
        let name = |part: &Part| {
            format!("partition {:?} of {} (write {})", part.1, world.tables[part.0].full_name(), part.2)
        };
        return Err(format!(
            "a logged batch is torn: it is in {}, and not in {}",
            name(there),
            name(missing)
        ));
    }
    world.batches = Batches::default();
    Ok(())
}
