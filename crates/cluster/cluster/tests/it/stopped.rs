//! An operator's tools for the logs of stopped nodes: an entry that nobody can read, and a majority that is lost.

use std::path::{Path, PathBuf};

use cluster::group::{StoppedError, StoppedLog};
use rt::Rt;

use crate::group_world::*;

const RECORD_MAGIC: [u8; 4] = [0xc2, b'T', b'R', 0x7e];

/// The log with the entry that names `name` made one of a kind that does not exist, with checksums that are right.
fn spoil(bytes: &[u8], name: &str) -> Vec<u8> {
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).rposition(|window| window == what);
    let at = find(bytes, name.as_bytes()).expect("the entry is there");
    let kind = find(&bytes[..at], b"SchemaChange").expect("the kind stands before it");
    let record = find(&bytes[..at], &RECORD_MAGIC).expect("it stands in a record");
    let mut bytes = bytes.to_vec();
    bytes[kind + 11] = b'?';
    let len = u32::from_be_bytes(bytes[record + 12..record + 16].try_into().unwrap()) as usize;
    let crc = crc32fast::hash(&bytes[record + 24..record + 24 + len]);
    bytes[record + 16..record + 20].copy_from_slice(&crc.to_be_bytes());
    let crc = crc32fast::hash(&bytes[record..record + 20]);
    bytes[record + 20..record + 24].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn log_of(cluster: &Cluster, node: usize) -> (PathBuf, Vec<u8>) {
    let files = cluster.sim.files(cluster.nodes[node]);
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("log-")?.parse::<u64>().ok();
        name.filter(|_| path.starts_with("/data/node/raft"))
    };
    // A crash may have brought an older one back.
    let path =
        files.into_iter().map(|(path, _)| path).filter(|path| number(path).is_some()).max_by_key(number);
    let path = path.expect("it has a log");
    let bytes = cluster.sim.read_file(cluster.nodes[node], &path).expect("it was listed");
    (path, bytes)
}

async fn opened(rt: &Rt) -> StoppedLog {
    StoppedLog::open(rt, Path::new(DIRECTORY)).await.expect("a node that was in a cluster has a log")
}

fn create(cluster: &Cluster, node: usize, name: &str) {
    let edits = keyspace(name);
    let made = cluster.on(node, |rt, group| async move {
        let base = group.applied().state.schema.version();
        group.change_schema(base, edits, rt.now() + 20 * SECOND, |_| false).await
    });
    made.unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn an_entry_that_nobody_reads_is_named_and_skipped_on_all_nodes() {
    let mut cluster = Cluster::empty(41);
    for node in 0..3 {
        cluster.add(Setup { snapshot_entries: 1_000, ..Setup::new(node) });
    }
    cluster.all_in(3);
    create(&cluster, 1, "before");
    create(&cluster, 1, "spoilt");
    create(&cluster, 1, "after");
    cluster.until("all have it", || {
        (0..3).all(|node| group(node).applied().state.schema.keyspace("after").is_some())
    });
    (0..3).for_each(|node| cluster.crash(node));
    for node in 0..3 {
        let (path, bytes) = log_of(&cluster, node);
        // The second of three: the name stands in its entry only.
        let spoilt = spoil(&bytes, "spoilt");
        cluster.offline(node, move |rt| {
            let (path, spoilt) = (path.clone(), spoilt.clone());
            Box::pin(async move {
                rt.disk().write_atomically(&path, &spoilt).await.unwrap();
                String::new()
            })
        });
        cluster.sim.start(cluster.nodes[node]);
        cluster.until("it ends", || !cluster.sim.is_running(cluster.nodes[node]));
    }
    let told = cluster.sim.exits(cluster.nodes[0]).join("");
    assert!(told.contains("SchemaChang?") && told.contains("cannot be applied"), "{told}");
    let (index, term) = named(&told);
    assert!(told.contains("torc raft-log skip"), "{told}");
    for node in 0..3 {
        let said = cluster.offline(node, move |rt| {
            Box::pin(async move {
                let mut log = opened(&rt).await;
                let shown = log.show().unwrap();
                let bad: Vec<_> = shown.entries.iter().filter(|entry| entry.unreadable.is_some()).collect();
                assert_eq!((bad.len(), bad[0].index, bad[0].term), (1, index, term));
                let good = shown.entries.iter().find(|entry| entry.what == "SchemaChange").unwrap();
                let refused = log.skip(good.index, good.term).await;
                assert!(matches!(refused, Err(StoppedError::Readable { .. })), "{refused:?}");
                let nowhere = log.skip(index, term + 1).await;
                assert!(matches!(nowhere, Err(StoppedError::NoEntry { .. })), "{nowhere:?}");
                let path = log.skip(index, term).await.unwrap().expect("it held something");
                assert!(rt.disk().exists(&path).await.unwrap());
                assert_eq!(log.skip(index, term).await.unwrap(), None, "done already");
                "skipped".to_owned()
            })
        });
        assert_eq!(said, "skipped");
    }
    for node in 0..3 {
        cluster.sim.start(cluster.nodes[node]);
    }
    cluster.until("all are back", || (0..3).all(is_in));
    create(&cluster, 2, "again");
    let states: Vec<_> = (0..3).map(|node| cluster.barrier(node).state).collect();
    for state in &states {
        let has = |name| state.schema.keyspace(name).is_some();
        assert!(has("before") && has("again") && !has("spoilt"), "the others stand, this one was never made");
        assert_eq!(state.encode(), states[0].encode());
    }
}

/// Index and term out of the message about an entry.
fn named(told: &str) -> (u64, u64) {
    let after = |word: &str| {
        let rest = &told[told.find(word).expect("it names the entry") + word.len()..];
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().expect("a number")
    };
    (after("--index "), after("--term "))
}

#[test]
fn a_majority_that_is_lost_for_good_is_made_anew() {
    let mut cluster = Cluster::empty(42);
    for node in 0..7 {
        cluster.add(Setup::new(node));
    }
    cluster.all_in(7);
    create(&cluster, 1, "before");
    cluster.until("all have it", || {
        (0..7).all(|node| group(node).applied().state.schema.keyspace("before").is_some())
    });
    (3..7).for_each(|node| cluster.crash(node));
    let stuck = cluster.on(0, |rt, group| async move {
        let base = group.applied().state.schema.version();
        group.change_schema(base, keyspace("never"), rt.now() + 10 * SECOND, |_| false).await
    });
    assert!(stuck.is_err(), "three of seven decide nothing");
    (0..3).for_each(|node| cluster.crash(node));
    let mut best = ((0, 0), 0);
    for node in 0..3 {
        let last = cluster.offline(node, |rt| {
            Box::pin(async move {
                let (term, index) = opened(&rt).await.show().unwrap().last;
                format!("{term} {index}")
            })
        });
        let (term, index) = last.split_once(' ').unwrap();
        best = best.max(((term.parse::<u64>().unwrap(), index.parse::<u64>().unwrap()), node));
    }
    let chosen = best.1;
    cluster.offline(chosen, move |rt| {
        Box::pin(async move {
            let mut log = opened(&rt).await;
            let few = log.force_majority(&[host(3), host(4), host(5)]).await;
            assert!(matches!(few, Err(StoppedError::HasMajority { left: 4, voters: 7 })), "{few:?}");
            let own = log.force_majority(&[host(chosen), host(4), host(5), host(6)]).await;
            assert!(matches!(own, Err(StoppedError::OwnLost)), "{own:?}");
            let nobody = log.force_majority(&[host(99)]).await;
            assert!(matches!(nobody, Err(StoppedError::UnknownHost(_))), "{nobody:?}");
            log.force_majority(&[host(3), host(4), host(5), host(6)]).await.unwrap();
            String::new()
        })
    });
    (0..3).for_each(|node| cluster.sim.start(cluster.nodes[node]));
    cluster.until("the three are a group", || {
        (0..3).all(|node| {
            let status = is_in(node).then(|| group(node).status()).flatten();
            status.is_some_and(|status| {
                let mut voters =
                    [0, 1, 2].map(|node| group(node).applied().state.member(host(node)).unwrap().number);
                voters.sort_unstable();
                status.membership.voters.iter().copied().collect::<Vec<_>>() == voters
            })
        })
    });
    create(&cluster, 2, "after");
    for node in 0..3 {
        let state = cluster.barrier(node).state;
        assert!(state.schema.keyspace("before").is_some() && state.schema.keyspace("after").is_some());
        assert_eq!(state.members.len(), 7, "the lost ones are removed by nodetool");
    }
    // One of the new voters may fail now.
    let down = (0..3).find(|node| *node != cluster.leader()).unwrap();
    cluster.crash(down);
    create(&cluster, (0..3).find(|node| *node != down).unwrap(), "later");
    // A node that was given up comes back all the same: it becomes a learner, and receives the entries committed without it.
    cluster.sim.start(cluster.nodes[4]);
    cluster
        .until("it has followed", || is_in(4) && group(4).applied().state.schema.keyspace("later").is_some());
}

#[test]
fn a_node_with_more_than_the_chosen_one_does_not_follow_it() {
    let mut cluster = Cluster::empty(43);
    for node in 0..3 {
        cluster.add(Setup::new(node));
    }
    cluster.all_in(3);
    create(&cluster, 0, "early");
    cluster.crash(1);
    create(&cluster, 0, "late");
    (0..3).filter(|node| *node != 1).for_each(|node| cluster.crash(node));
    // The wrong one: it was down.
    cluster.offline(1, |rt| {
        Box::pin(async move {
            opened(&rt).await.force_majority(&[host(0), host(2)]).await.unwrap();
            String::new()
        })
    });
    cluster.sim.start(cluster.nodes[1]);
    cluster.until("it decides alone", || is_in(1));
    create(&cluster, 1, "alone");
    cluster.sim.start(cluster.nodes[0]);
    let node = cluster.nodes[0];
    cluster.until("it ends", || cluster.sim.exits(node).iter().any(|told| told.contains("force-majority")));
}
