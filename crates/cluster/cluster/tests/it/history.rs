//! Logs of earlier versions: their commands have the outcomes that they had. A node that is upgraded applies the entries after its
//! snapshot again, and must reach the state of the nodes that applied it before.
//!
//! `testdata/history-N.txt` is of version N of the state: a snapshot, then each command and its outcome, a line of JSON each, and at the
//! end the versions of schema and topology. Files are kept for ever. A new version gets its own by `UPDATE=1 cargo test -p cluster history`.

use std::path::PathBuf;

use cluster::own_schema;
use cluster::state::{ClusterState, Outcome, Proposal, STATE_VERSION, encode_outcome};
use proptest::strategy::Strategy;
use testkit::fuzz::Random;

use crate::commands::{self, encode_checked};
use crate::fuzz::{command, founded, id};

/// Commands of a file that is made, and the bytes that one may have there.
const COMMANDS: usize = 400;
const COMMAND_MAX: usize = 2_000;

fn path(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/history-{version}.txt"))
}

/// The JSON behind the version byte.
fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes[1..].to_vec()).expect("JSON")
}

/// The bytes of a line.
fn bytes(line: &str) -> Vec<u8> {
    [&[1], line.as_bytes()].concat()
}

fn end(state: &ClusterState) -> String {
    format!("{:02x?} {}", state.schema.version(), state.topology_version)
}

/// A history of this version, with all kinds of commands.
fn history() -> String {
    let (edits, mut random) = (commands::edit().boxed(), Random(u64::from(STATE_VERSION)));
    let mut state = founded();
    let mut lines = vec![text(&state.encode())];
    while lines.len() < 2 * COMMANDS {
        let proposal = Proposal { id: id(&mut random), command: command(&mut random, &state, &edits) };
        let Ok(bytes) = encode_checked(&proposal).0 else { continue };
        if bytes.len() > COMMAND_MAX {
            continue;
        }
        let (next, outcome) = state.apply(proposal);
        lines.extend([text(&bytes), text(&encode_outcome(&outcome))]);
        state = next;
    }
    lines.push(end(&state));
    lines.join("\n") + "\n"
}

#[test]
fn commands_of_earlier_versions_have_the_outcomes_that_they_had() {
    if std::env::var_os("UPDATE").is_some() && !path(STATE_VERSION).exists() {
        std::fs::write(path(STATE_VERSION), history()).expect("the folder is there");
    }
    for version in 4..=STATE_VERSION {
        let history = std::fs::read_to_string(path(version));
        let history = history.unwrap_or_else(|error| panic!("history of version {version}: {error}"));
        let mut lines = history.lines();
        let snapshot = bytes(lines.next().expect("it begins with a snapshot"));
        let blank = ClusterState::unknown("test", own_schema());
        let mut state = blank.decode_after(&snapshot).expect("a snapshot that was written");
        let (mut done, mut at) = (0, 0);
        let last = loop {
            let line = lines.next().expect("it ends with the versions");
            let Some(expected) = lines.next() else { break line };
            let proposal = Proposal::decode(&bytes(line));
            let proposal =
                proposal.unwrap_or_else(|error| panic!("version {version}, command {at}: {error}"));
            let (next, outcome) = state.apply(proposal);
            assert_eq!(text(&encode_outcome(&outcome)), expected, "version {version}, command {at}: {line}");
            done += usize::from(!matches!(outcome, Outcome::Refused(_)));
            (state, at) = (next, at + 1);
        };
        assert_eq!(end(&state), last, "version {version}");
        assert!(done >= 30, "version {version}: {done} of {at} commands changed something");
    }
}
