//! An id that a client gives a new table (`WITH ID`) is refused while a node may have something of a dropped table with it.

use std::path::Path;

use cluster::SchemaEdit;
use coordinator::{Canaries, SchemaChangeError};

use crate::world::{Node, SECOND, World, table};

fn drop_table(world: &World) {
    world.on(0, |Node { coordinator, .. }| async move {
        let edits = vec![SchemaEdit::DropTable { keyspace: "ks".to_owned(), name: "t".to_owned() }];
        let base = coordinator.schema().version();
        coordinator.change_schema(base, edits).await.expect("a majority is up");
    });
}

/// The answer of node 0 for the id of `ks.t`.
async fn check(Node { coordinator, .. }: Node) -> Result<(), SchemaChangeError> {
    coordinator.check_given_id(coordinator.schema().version(), table().id).await
}

/// The reason why it is refused.
fn refused(world: &World) -> String {
    match world.on(0, check) {
        Err(SchemaChangeError::Invalid(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_id_is_refused_while_a_node_has_files_of_it() {
    let world = World::new(1, 3, Canaries::default());
    (1..3).for_each(|node| world.start(node));
    let before = world.on(0, |node| async move { node.coordinator.schema().version() });
    let dir = engine::dropped_table_dir(Path::new("/data"), "ks", "t", table().id);
    let stray = dir.join("used by a reader");
    let file = stray.clone();
    world.on(2, |Node { rt, .. }| async move {
        rt.disk().create_dir_durably(&dir).await.expect("the disk is well");
        rt.disk().write_atomically(&file, b"x").await.expect("the disk is well");
    });
    drop_table(&world);
    let text = refused(&world);
    assert!(text.contains("node 10.0.0.3 ") && text.contains("still read"), "{text}");
    let moved = world.on(0, move |Node { coordinator, .. }| async move {
        coordinator.check_given_id(before, table().id).await
    });
    assert_eq!(moved, Err(SchemaChangeError::Moved));
    world.on(2, |Node { rt, .. }| async move { rt.disk().remove(&stray).await.expect("it is there") });
    world.sim.run_for(40 * SECOND);
    assert_eq!(world.on(0, check), Ok(()), "no statement has to come for it");
}

#[test]
fn an_id_is_refused_while_a_node_that_missed_the_drop_is_down() {
    let world = World::new(2, 3, Canaries::default());
    (1..3).for_each(|node| world.start(node));
    world.kill(1);
    world.sim.run_for(60 * SECOND);
    drop_table(&world);
    let text = refused(&world);
    assert!(text.contains("node 10.0.0.2 ") && text.contains("is down"), "{text}");
    world.start(1);
    world.wait_until(|| world.on(0, check).is_ok());
    let dropped =
        world.on(1, |node| async move { node.coordinator.schema().table_by_id(table().id).is_none() });
    assert!(dropped, "the node that missed it");
}
