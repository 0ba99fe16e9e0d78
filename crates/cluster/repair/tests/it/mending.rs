//! A byte of an SSTable of one node is wrong: a repair has the others send its lost rows, while the node runs.

use std::path::PathBuf;
use std::sync::Arc;

use repair::JobState;
use replica::{Form, Read, ReadCommand, TableOperation};
use rt::{IoBuf, OpenOptions};
use schema::Table;

use crate::cluster::{assert_equal, config, fill};
use crate::world::{World, everything, table};

/// Flips a bit in the middle of every data file of a table on a node; how many there are.
fn flip(world: &World, node: usize, table: &Arc<Table>) -> usize {
    let dir = engine::dropped_table_dir(&PathBuf::from("/data"), "ks", &table.name, table.id);
    world.on(node, |rt, _, _| async move {
        let entries = rt.disk().list(&dir).await.unwrap();
        let files: Vec<_> = entries.iter().filter(|entry| entry.name.ends_with("-Data.db")).collect();
        for entry in &files {
            let path = dir.join(&entry.name);
            let bytes = rt.disk().read_to_end(&path, 1 << 30).await.unwrap();
            let at = bytes.len() / 2;
            let file = rt.disk().open(&path, OpenOptions::READ_WRITE).await.unwrap();
            file.write_at(at as u64, IoBuf::copy_of(&[bytes[at] ^ 4])).await.unwrap();
        }
        files.len()
    })
}

/// Whether a client that asks this node alone can read everything; the error otherwise.
fn read(world: &World, node: usize, table: &Arc<Table>) -> Result<usize, String> {
    let command = everything(table, world.seconds(node), Form::Full);
    let command = ReadCommand { bypass_cache: true, ..command };
    world.on(node, |_, replica, _| async move {
        let page = replica.read(Read::of(&command)).await.map_err(|error| error.to_string())?;
        Ok(page.partitions.iter().map(|partition| partition.rows.len()).sum())
    })
}

fn damaged(world: &World, node: usize, table: &Arc<Table>) -> u64 {
    let id = table.id;
    world.on(node, move |_, replica, _| async move {
        replica.engine().table_stats(id).expect("it is there").damaged_sstables
    })
}

/// `met` by a read before the repair, or by the repair itself; led by `master`; `since` an earlier repair, on which it would build.
fn fixed(shards: &[u16], master: usize, met: bool, since: bool) {
    let world = World::new(3, shards, config());
    let table = table("t");
    fill(&world, &table);
    if since {
        world.wait(0, world.begin(0, &table, 0));
    }
    world.maintain(1, &table, TableOperation::Flush);
    // No block of a file is cached.
    world.restart(1);
    assert!(flip(&world, 1, &table) >= 1);
    if met {
        let error = read(&world, 1, &table).expect_err("a place is damaged");
        assert!(error.contains("Data.db is corrupt"), "{error}");
    }
    let job = if since { world.begin_incremental(master, &table) } else { world.begin(master, &table, 0) };
    let status = world.wait(master, job);
    assert_eq!((status.state, &*status.failures), (JobState::Done, &[] as &[String]));
    assert_eq!(read(&world, 1, &table), Ok((crate::cluster::PARTITIONS * crate::cluster::ROWS) as usize));
    assert_eq!(damaged(&world, 1, &table), 0);
    assert_equal(&world, &table);
    // For good: nothing of it was in memory alone, and the damaged file does not come back.
    world.lose_power(1);
    assert_eq!(read(&world, 1, &table), Ok((crate::cluster::PARTITIONS * crate::cluster::ROWS) as usize));
    assert_equal(&world, &table);
}

#[test]
fn a_repair_fixes_damage_that_a_read_met() {
    fixed(&[1, 1, 1], 1, true, false);
    fixed(&[1, 2, 3], 0, true, false);
    fixed(&[1, 1, 1], 0, true, true);
    fixed(&[2, 2, 2], 2, true, true);
}

#[test]
fn a_repair_fixes_damage_that_it_meets_itself() {
    fixed(&[1, 1, 1], 1, false, false);
    fixed(&[1, 1, 1], 0, false, false);
    fixed(&[2, 3, 2], 2, false, false);
}
