//! A node's datacenter, rack and addresses: `torc.yaml`, `cassandra-rackdc.properties`, flags.

use std::path::Path;

use crate::node::{Ended, Setup, run, torc};

/// The output of `torc server` with these files before it gives up: its data directory cannot be made.
fn server(dir: &Path, yaml: &str, rackdc: &str, more: &[&str]) -> Ended {
    std::fs::write(dir.join("torc.yaml"), yaml).unwrap();
    std::fs::write(dir.join("cassandra-rackdc.properties"), rackdc).unwrap();
    let mut command = torc(&["server", "--config", dir.join("torc.yaml").to_str().unwrap()]);
    command.args(["--data_file_directories", "/proc/nowhere/data"]).args(more);
    run(command)
}

#[test]
fn mistakes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (yaml, rackdc, said) in [
        ("seeds: 'no.such.name.invalid'", "", "none of these has an address: 'no.such.name.invalid'"),
        ("rpc_address: 0.0.0.0", "", "set broadcast_rpc_address"),
        ("listen_address: 0.0.0.0", "", "listen_address cannot be a wildcard"),
        ("endpoint_snitch: Ec2Snitch", "", "expected GossipingPropertyFileSnitch or SimpleSnitch"),
        ("seed_provider: [{class_name: other.Provider}]", "", "SimpleSeedProvider"),
        ("", "datacenter=x", "expected dc, rack or prefer_local"),
        ("ssl_storage_port: 7001", "", "this is of no use here: ssl_storage_port"),
        ("sasi_indexes_enabled: true", "", "has no effect: sasi_indexes_enabled"),
        // A snitch that does not read the file ignores its content.
        ("endpoint_snitch: SimpleSnitch", "datacenter=x", "/proc/nowhere"),
        ("", "dc=x", "/proc/nowhere"),
    ] {
        let ended = server(dir.path(), yaml, rackdc, &[]);
        assert!(!ended.status.success() && ended.err.contains(said), "{yaml} {rackdc}: {}", ended.err);
    }
}

#[test]
fn clients_see_where_a_node_stands_and_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path())
        .option("datacenter", "north")
        .option("rack", "r7")
        .option("broadcast_address", "10.9.8.7")
        .option("broadcast_rpc_address", "10.9.8.6")
        .start();
    let columns = "data_center, rack, broadcast_address, rpc_address, listen_address";
    let row = node.any_client().rows(&format!("SELECT {columns} FROM system.local")).remove(0);
    let text = |at: usize| String::from_utf8(row[at].clone().unwrap()).unwrap();
    assert_eq!((text(0), text(1)), ("north".to_owned(), "r7".to_owned()));
    assert_eq!(row[2].as_deref(), Some(&[10, 9, 8, 7][..]));
    assert_eq!(row[3].as_deref(), Some(&[10, 9, 8, 6][..]));
    assert_eq!(row[4].clone().unwrap()[0], 127);
}

#[test]
fn a_node_that_owns_data_cannot_stand_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let at = |datacenter: &str, rack: &str| {
        Setup::new(dir.path()).option("datacenter", datacenter).option("rack", rack).try_start()
    };
    let Ok(node) = at("north", "r1") else { panic!("it starts") };
    assert!(!node.log().contains('\u{1b}'), "no colours where nobody sees them: {}", node.log());
    assert!(node.stop().success());
    for (datacenter, rack, said) in [
        ("south", "r1", "snitch's data center (south) differs from previous data center (north)"),
        ("north", "r2", "snitch's rack (r2) differs from previous rack (r1)"),
    ] {
        let Err(ended) = at(datacenter, rack) else { panic!("{datacenter} {rack}") };
        assert!(!ended.status.success() && ended.err.contains(said), "{}", ended.err);
    }
    assert!(at("north", "r1").is_ok());
}

#[test]
fn a_node_takes_the_tokens_that_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).option("initial_token", "-5,7");
    let tokens = |setup: &Setup| {
        let node = setup.start();
        let row = node.any_client().rows("SELECT tokens FROM system.local").remove(0);
        assert!(node.stop().success());
        row[0].clone().unwrap()
    };
    // A set of texts: how many, and each with its length.
    let expected = b"\0\0\0\x02\0\0\0\x02-5\0\0\0\x017";
    assert_eq!(tokens(&setup), expected);
    // They stay, regardless of later values of the option.
    let later = Setup { options: vec!["--initial_token=8".to_owned()], ..setup };
    assert_eq!(tokens(&later), expected);
}

#[test]
fn a_node_that_owns_tokens_cannot_have_more_or_fewer() {
    let dir = tempfile::tempdir().unwrap();
    let with = |count: &str| Setup::new(dir.path()).option("num_tokens", count).try_start();
    let Ok(node) = with("5") else { panic!("it starts") };
    assert!(node.stop().success());
    for count in ["4", "16"] {
        let Err(ended) = with(count) else { panic!("{count} tokens") };
        for said in [
            &format!("Cannot change the number of tokens from 5 to {count}: ")[..],
            "Set num_tokens to 5, or decommission",
        ] {
            assert!(!ended.status.success() && ended.err.contains(said), "{}", ended.err);
        }
    }
    assert!(with("5").is_ok());
}

#[test]
fn the_file_beside_the_configuration_says_where_a_node_stands() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let yaml = format!(
        "rpc_address: {0}\nlisten_address: {0}\napi_port: 0\nprometheus_port: 0\nrack: r2\nshards: 1\n\
         data_file_directories: {1}\n",
        setup.address,
        setup.dir.display()
    );
    std::fs::write(dir.path().join("torc.yaml"), yaml).unwrap();
    std::fs::write(dir.path().join("cassandra-rackdc.properties"), "dc=south\nrack=r1\n").unwrap();
    let node = setup.start_server(&dir.path().join("torc.yaml"));
    let row = node.any_client().rows("SELECT data_center, rack FROM system.local").remove(0);
    assert_eq!(row[0].as_deref(), Some(&b"south"[..]));
    assert_eq!(row[1].as_deref(), Some(&b"r2"[..]), "torc.yaml goes before");
}
