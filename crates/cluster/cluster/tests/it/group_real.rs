//! A group of one on the machine's own disk: the writes of a single node at every schema change.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::group::{Group, GroupConfig, Opened};
use cluster::state::{MemberInfo, STATE_VERSION};
use cluster::{SchemaStore, own_schema};
use rpc::{Messenger, RpcConfig, handover_mesh};
use rt::{Rt, shard_mains};
use topology::Location;

use crate::group_world::{SECOND, host, keyspace};

const CHANGES: u32 = 40;

/// Opens the group in `directory`, makes some changes, and gives how long each took.
async fn change(rt: &Rt, directory: &Path, life: u32) -> Duration {
    let own = "127.0.42.1:0".parse().unwrap();
    let config = Arc::new(RpcConfig::new("test", host(0), own));
    let messenger = Messenger::new(rt, config, handover_mesh(1).pop().unwrap());
    let info = MemberInfo {
        internode: own,
        native: own,
        location: Location::new("dc1", "rack1"),
        shard_count: 1,
        release_version: "5.0.0".to_owned(),
        state_version: STATE_VERSION,
    };
    let config = GroupConfig::new(directory, "test", host(0), info);
    let group = match Group::open(rt, &messenger, config).await.unwrap() {
        Opened::Member(group) => group,
        Opened::Blank(blank) => blank.start_first_node(vec![0]).await.unwrap(),
    };
    assert_eq!(
        group.applied().state.schema_number,
        u64::from(1 + life * CHANGES),
        "the changes of earlier processes"
    );
    let user = group.clone();
    let uses = rt.spawn(rt::Group::Maintenance, async move {
        let mut applied = user.subscribe();
        while applied.changed().await.is_ok() {
            user.schema_in_use(user.applied().state.schema_number);
        }
    });
    let began = rt.now();
    for number in 0..CHANGES {
        let base = group.applied().state.schema.version();
        let edits = keyspace(&format!("ks{life}_{number}"));
        group.change_schema(base, edits, rt.now() + 10 * SECOND, |_| true).await.unwrap();
    }
    let took = (rt.now() - began) / CHANGES;
    drop(uses);
    group.stop().await;
    messenger.stop().await;
    took
}

/// The same changes as one file that is replaced each time.
async fn replace(rt: &Rt, directory: &Path) -> Duration {
    let mut store = SchemaStore::open(rt, directory, own_schema()).await.unwrap();
    let began = rt.now();
    for number in 0..CHANGES {
        let base = store.current().version();
        store.change(base, keyspace(&format!("ks{number}"))).await.unwrap();
    }
    (rt.now() - began) / CHANGES
}

#[test]
fn a_node_alone_changes_its_schema_as_fast_as_a_file_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_path_buf();
    let mains = shard_mains(1, move |rt: Rt| {
        let path = path.clone();
        async move {
            let (log, file) = (path.join("log"), path.join("file"));
            for directory in [&log, &file] {
                rt.disk().create_dir_all(directory).await.unwrap();
            }
            let replaced = replace(&rt, &file).await;
            let logged = change(&rt, &log, 0).await.min(change(&rt, &log, 1).await);
            println!("a change: {logged:?} through the log, {replaced:?} by replacing a file");
            assert!(logged < 4 * replaced + Duration::from_millis(20), "{logged:?}, {replaced:?} before");
        }
    });
    let config = rt_uring::Config { pin: false, ..rt_uring::Config::default() };
    rt_uring::run(&config, mains).expect("the node starts");
}
