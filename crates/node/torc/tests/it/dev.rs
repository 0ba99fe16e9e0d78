//! `torc dev`: in memory nothing touches the disk, dropped means gone, and help is there for every subcommand.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;

use wire::Version;

use crate::client::Client;
use crate::node::{address, run, torc};

/// Starts `torc dev` with a folder of its own for everything temporary, and waits until it is ready.
fn start(arguments: &[&str], folder: &Path) -> (Child, Client) {
    let address = address();
    let mut command = torc(&["dev", "--address", &address.to_string(), "--shards", "2"]);
    command.args(arguments).env("TMPDIR", folder).current_dir(folder).stderr(std::process::Stdio::null());
    let mut child = command.spawn().expect("the binary is there");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    assert!(line.starts_with("torc is ready after "), "{line}");
    (child, Client::connect((address, 9042).into(), Version::V4))
}

fn use_it(client: &mut Client) {
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    for k in 0..20 {
        client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v')"));
    }
    assert_eq!(client.rows("SELECT * FROM ks.t").len(), 20);
}

fn terminate(mut child: Child) {
    let sent = std::process::Command::new("kill").arg(child.id().to_string()).status();
    assert!(sent.expect("kill is there").success());
    assert!(child.wait().expect("a child").success());
}

#[test]
fn in_memory_nothing_touches_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (child, mut client) = start(&["--memory"], folder.path());
    use_it(&mut client);
    client.query("TRUNCATE ks.t");
    client.query("DROP TABLE ks.t");
    let open = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    for descriptor in open {
        let Ok(target) = fs::read_link(descriptor.unwrap().path()) else { continue };
        let target = target.display().to_string();
        let harmless =
            ["socket:", "pipe:", "anon_inode:", "/dev/"].iter().any(|kind| target.starts_with(kind));
        assert!(harmless, "{target} is open");
    }
    terminate(child);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was left behind");
}

#[test]
fn temporary_files_are_gone_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (child, mut client) = start(&[], folder.path());
    use_it(&mut client);
    let made = fs::read_dir(folder.path()).unwrap().next().expect("the data is somewhere").unwrap();
    assert!(made.file_name().to_str().unwrap().starts_with("torc-dev-"));
    terminate(child);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn every_subcommand_has_help() {
    let long = |arguments: &[&str]| {
        let mut command = torc(arguments);
        command.stdout(std::process::Stdio::piped());
        let done = command.output().expect("the binary is there");
        assert!(done.status.success(), "{arguments:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let top = long(&["--help"]);
    assert!(top.contains("torc dev") && top.contains("cqlsh"), "a newcomer finds the way: {top}");
    for subcommand in ["server", "dev", "bench", "sstable", "raft-log", "sim"] {
        assert!(top.contains(subcommand), "{subcommand}");
        assert!(long(&[subcommand, "--help"]).contains("Usage: torc"), "{subcommand}");
    }
    for option in ["memory_size", "prepared_statements_cache_size", "disk_failure_policy"] {
        assert!(long(&["server", "--help"]).contains(option), "{option}");
    }
    let slip = run(torc(&["dev", "--comitlog_sync", "batch"]));
    assert!(!slip.status.success() && slip.err.contains("--commitlog_sync"), "{}", slip.err);
}
