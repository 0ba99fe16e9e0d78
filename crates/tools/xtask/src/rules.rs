//! The rules for one Rust file: the calls that it may make, the content of its comments, its begin.

use crate::source::Source;

/// Crates that are values and state machines: `now` is an argument, and nothing else comes from outside.
pub const PURE: &[&str] = &[
    "stdx", "types", "schema", "mutation", "cql", "wire", "topology", "raft", "gossip", "paxos", "views",
    "cdc", "model",
];

/// Crates that may touch the machine directly: the production backend, the binary, and tools that are clients.
const FREE: &[&str] = &["rt-uring", "torc", "bench", "testkit", "xtask"];

/// The files that may hold `unsafe`, or folders that end with `/`.
const UNSAFE_FILES: &[&str] = &[
    "crates/runtime/rt-uring/",
    "crates/test/bench/src/allocations.rs",
    "crates/query/udf/src/lua/resume.rs",
];

/// Calls that are forbidden outside of [`FREE`] crates and of tests, and their replacement.
const CALLS: &[(&str, &str)] = &[
    ("Instant::now", "take `now` as an argument, or the clock from `rt`"),
    ("SystemTime::now", "take `now` as an argument, or the wall clock from `rt`"),
    ("std::fs", "files come through `rt`, so that the simulator can fail them"),
    ("std::thread", "shards and tasks come through `rt`"),
    ("std::process", "nothing below the binary ends or starts a process"),
    ("tokio::", "sockets, timers and tasks come through `rt`"),
    ("rand::", "random numbers come from `rt`, so that a seed decides them"),
    ("thread_rng", "random numbers come from `rt`, so that a seed decides them"),
    ("RandomState", "a hasher with a random seed leaks it into iteration order: use `stdx::HashMap`"),
    ("TcpStream", "sockets come through `rt`"),
    ("TcpListener", "sockets come through `rt`"),
    ("UdpSocket", "sockets come through `rt`"),
    ("ToSocketAddrs", "name resolution comes through `rt`"),
    ("lazy_static!", "no globals: pass it to `new`"),
    ("static mut", "no globals: pass it to `new`"),
];

/// Forbidden everywhere outside tests, the free crates included.
const NEVER: &[(&str, &str)] = &[
    ("todo!", "finish it, or answer with an error that names the feature"),
    ("unimplemented!", "finish it, or answer with an error that names the feature"),
    ("dbg!", "remove it, or use `tracing`"),
];

/// The names of files that read bytes from disk or network, beside those that end with `_codec`.
const DECODERS: &[&str] = &["codec", "decode", "decoder", "frame", "hello", "log_format", "replay"];

/// Files with other names that read bytes from disk, network or clients; a `lib.rs` or `mod.rs` stands for its crate or folder.
const READERS: &[&str] = &[
    "crates/cluster/cluster/src/cdc.rs",
    "crates/cluster/cluster/src/dropped.rs",
    "crates/cluster/cluster/src/group/stopped.rs",
    "crates/cluster/cluster/src/group/wire.rs",
    "crates/cluster/cluster/src/identity.rs",
    "crates/cluster/cluster/src/objects.rs",
    "crates/cluster/cluster/src/rollback/progress.rs",
    "crates/cluster/cluster/src/store.rs",
    "crates/cluster/coordinator/src/batch_row.rs",
    "crates/cluster/coordinator/src/forward.rs",
    "crates/cluster/coordinator/src/paxos/store.rs",
    "crates/cluster/coordinator/src/serve/mod.rs",
    "crates/cluster/repair/src/history.rs",
    "crates/cluster/repair/src/message.rs",
    "crates/cluster/repair/src/wire.rs",
    "crates/cluster/replica/src/message.rs",
    "crates/cluster/streaming/src/lib.rs",
    "crates/front/dynamo/src/lib.rs",
    "crates/network/http1/src/lib.rs",
    "crates/network/rpc/src/inbound.rs",
    "crates/network/rpc/src/inbound_task.rs",
    "crates/network/rpc/src/link.rs",
    "crates/network/rpc/src/packing.rs",
    "crates/network/rpc/src/pipe.rs",
    "crates/network/tls/src/lib.rs",
    "crates/protocol/cql/src/lib.rs",
    "crates/protocol/gossip/src/lib.rs",
    "crates/protocol/items/src/lib.rs",
    "crates/protocol/ldap/src/lib.rs",
    "crates/protocol/raft/src/lib.rs",
    "crates/protocol/wire/src/lib.rs",
    "crates/query/auth/src/password.rs",
    "crates/query/exec/src/expr/value.rs",
    "crates/query/exec/src/native/mod.rs",
    "crates/storage/commitlog/src/lib.rs",
    "crates/storage/engine/src/counter_id.rs",
    "crates/storage/engine/src/edit.rs",
    "crates/storage/engine/src/generation.rs",
    "crates/storage/engine/src/marks.rs",
    "crates/storage/engine/src/open.rs",
    "crates/storage/engine/src/quarantine.rs",
    "crates/storage/engine/src/truncation_record.rs",
    "crates/storage/hints/src/lib.rs",
    "crates/storage/index/src/file.rs",
    "crates/storage/index/src/vectors/file.rs",
    "crates/storage/sstable/src/big/check.rs",
    "crates/storage/sstable/src/big/entry.rs",
    "crates/storage/sstable/src/big/partition_index.rs",
    "crates/storage/sstable/src/big/row_index.rs",
    "crates/storage/sstable/src/big/summary.rs",
    "crates/storage/sstable/src/checksums.rs",
    "crates/storage/sstable/src/component.rs",
    "crates/storage/sstable/src/compress.rs",
    "crates/storage/sstable/src/compression_info.rs",
    "crates/storage/sstable/src/deletion.rs",
    "crates/storage/sstable/src/descriptor.rs",
    "crates/storage/sstable/src/filter.rs",
    "crates/storage/sstable/src/format.rs",
    "crates/storage/sstable/src/header.rs",
    "crates/storage/sstable/src/integrity.rs",
    "crates/storage/sstable/src/io/blocks.rs",
    "crates/storage/sstable/src/io/cursor.rs",
    "crates/storage/sstable/src/large.rs",
    "crates/storage/sstable/src/metadata/mod.rs",
    "crates/storage/sstable/src/prefix.rs",
    "crates/storage/sstable/src/reader/mod.rs",
    "crates/storage/sstable/src/toc.rs",
    "crates/storage/sstable/src/verify.rs",
    "crates/values/mutation/src/codec/mod.rs",
    "crates/values/mutation/src/counter.rs",
    "crates/values/mutation/src/key.rs",
    "crates/values/stdx/src/reader.rs",
    "crates/values/stdx/src/vint.rs",
    "crates/values/types/src/lib.rs",
];

/// The text that they, their folder's `mod.rs` or their crate's `lib.rs` begin with: damaged bytes are errors and never panics.
pub const DECODERS_DENY: &str =
    "#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]";

/// Whether a file reads bytes from disk, network or clients.
pub fn is_decoder(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    DECODERS.contains(&stem) || stem.ends_with("_codec") || READERS.contains(&path)
}

/// The files whose attributes hold for a file of a crate: itself, the modules that it lies in, and the crate's root.
pub fn with_attributes_for(path: &str) -> Vec<String> {
    let mut holders = vec![path.to_string()];
    let mut folder = path;
    while let Some((above, name)) = folder.rsplit_once('/') {
        if name == "src" {
            holders.push(format!("{folder}/lib.rs"));
            break;
        }
        holders.extend([format!("{above}/mod.rs"), format!("{above}.rs")]);
        folder = above;
    }
    holders
}

/// A broken rule at a line.
pub struct Broken {
    /// From 1.
    pub line: usize,
    /// The error and its remedy.
    pub message: String,
}

/// Checks one file. `krate` is the folder under `crates/`, or "" elsewhere; `is_test` says that the whole file is
/// a test.
pub fn check(path: &str, krate: &str, text: &str, source: &Source, is_test: bool) -> Vec<Broken> {
    let mut broken = Vec::new();
    header(text, &mut broken);
    comments(source, &mut broken);
    never(source, &mut broken);
    unsafety(path, source, &mut broken);
    if !is_test {
        calls(krate, source, &mut broken);
    }
    fuzzers(path, krate, source, &mut broken);
    broken.sort_by_key(|found| found.line);
    broken
}

fn header(text: &str, broken: &mut Vec<Broken>) {
    let first = text.lines().next().unwrap_or("");
    if !first.starts_with("//! ") {
        let message = "the file begins with `//!` that says what it is and why it exists".to_string();
        broken.push(Broken { line: 1, message });
    }
}

fn comments(source: &Source, broken: &mut Vec<Broken>) {
    for comment in &source.comments {
        for mark in ["FIXME", "XXX"] {
            if comment.text.split(|ch: char| !ch.is_alphanumeric()).any(|word| word == mark) {
                let message = format!("`{mark}`: fix it now, or write an issue and remove the mark");
                broken.push(Broken { line: comment.line, message });
            }
        }
        if !comment.is_doc && looks_like_code(&comment.text) {
            let message = format!("commented-out code (`{}`): remove it, git remembers", comment.text);
            broken.push(Broken { line: comment.line, message });
        }
    }
}

/// Whether a comment reads as a statement rather than as a sentence.
fn looks_like_code(text: &str) -> bool {
    let statement = text.strip_suffix(';');
    let opens = text.strip_suffix('{');
    if let Some(head) = opens {
        let keyword = head.split_whitespace().next().unwrap_or("");
        return [
            "if", "for", "while", "match", "fn", "pub", "impl", "struct", "enum", "loop", "mod", "unsafe",
        ]
        .contains(&keyword);
    }
    let Some(body) = statement else { return false };
    if ["let ", "use ", "return ", "pub ", "const "].iter().any(|word| body.starts_with(word)) {
        return body.starts_with("let ") && body.contains('=')
            || body.contains("::")
            || body.starts_with("return ") && body.contains('(');
    }
    let name_length = body.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    if name_length == 0 || !body.is_char_boundary(name_length) {
        return false;
    }
    let rest = &body[name_length..];
    let call = rest.starts_with('(') || rest.starts_with("!(") || rest.starts_with("::");
    let method = rest.starts_with('.') && rest.as_bytes().get(1).is_some_and(u8::is_ascii_lowercase);
    let assignment = [" = ", " += ", " -= "].iter().any(|sign| rest.starts_with(sign));
    (call && body.ends_with(')')) || (method && body.ends_with(')')) || assignment
}

fn never(source: &Source, broken: &mut Vec<Broken>) {
    for (call, instead) in NEVER {
        for at in source.words(call) {
            broken.push(Broken { line: source.line_of(at), message: format!("`{call}`: {instead}") });
        }
    }
    for at in source.code.match_indices("#[ignore]").map(|(at, _)| at) {
        let message = "`#[ignore]` without a reason: a test that never runs shows nothing".to_string();
        broken.push(Broken { line: source.line_of(at), message });
    }
}

fn unsafety(path: &str, source: &Source, broken: &mut Vec<Broken>) {
    let listed = UNSAFE_FILES
        .iter()
        .any(|entry| if entry.ends_with('/') { path.starts_with(entry) } else { path == *entry });
    if listed {
        return;
    }
    for at in source.words("unsafe") {
        let message =
            "`unsafe` outside of the listed files (`UNSAFE_FILES` in crates/tools/xtask/src/rules.rs)"
                .to_string();
        broken.push(Broken { line: source.line_of(at), message });
    }
}

/// Fuzzers run under `testkit::fuzz::hunt`, which has the seeds, the time and the bounds of memory, in the files whose tests `./dev fuzz` lists.
fn fuzzers(path: &str, krate: &str, source: &Source, broken: &mut Vec<Broken>) {
    let calls: Vec<usize> = source.words("hunt(").map(|at| source.line_of(at)).collect();
    let is_listed = path.ends_with("/tests/it/fuzz.rs");
    if is_listed && calls.is_empty() {
        let message = "a fuzzer runs its rounds under `testkit::fuzz::hunt`, or `./dev fuzz` gives it no seed and no time";
        broken.push(Broken { line: 1, message: message.to_string() });
    }
    if is_listed || krate == "testkit" || krate == "xtask" {
        return;
    }
    for line in calls {
        let message =
            "`./dev fuzz` looks for `hunt` in tests/it/fuzz.rs only: move this fuzzer there".to_string();
        broken.push(Broken { line, message });
    }
}

fn calls(krate: &str, source: &Source, broken: &mut Vec<Broken>) {
    if !["rt", "rt-sim", "xtask"].contains(&krate) {
        for at in source.words("by_simulator") {
            let message = "bugs are injected by the simulator: `rt_sim::injected`".to_owned();
            broken.push(Broken { line: source.line_of(at), message });
        }
    }
    if FREE.contains(&krate) || krate.is_empty() {
        return;
    }
    let mut forbid = |at: usize, call: &str, instead: &str| {
        let line = source.line_of(at);
        if !source.is_test(line) {
            broken.push(Broken { line, message: format!("`{call}` in crate `{krate}`: {instead}") });
        }
    };
    for (call, instead) in CALLS {
        for at in source.words(call) {
            // Whether this thread is unwinding is no capability.
            if !source.code[at..].starts_with("std::thread::panicking") {
                forbid(at, call, instead);
            }
        }
    }
    for (at, name) in default_hashed(source) {
        // The crate that gives them their fixed hasher has to name them.
        if krate != "stdx" {
            forbid(
                at,
                name,
                "iteration order must not be random: use `stdx::HashMap`, `stdx::HashSet` or a BTreeMap",
            );
        }
    }
    for word in ["std::env", "thread_local!", "Mutex", "RwLock"] {
        for at in source.words(word) {
            if krate != "rt" && krate != "rt-sim" {
                forbid(
                    at,
                    word,
                    "state is owned by one shard and passed in, never found in the surroundings",
                );
            }
        }
    }
    if PURE.contains(&krate) {
        for word in ["async", "rt::", "std::io::stdin", "std::io::stdout"] {
            for at in source.words(word) {
                forbid(at, word, "this crate is pure: a function of its arguments");
            }
        }
    }
}

/// The places where `std::collections::{HashMap, HashSet}` is named, alone or inside a group.
fn default_hashed(source: &Source) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for at in source.words("std::collections::") {
        let rest = &source.code[at + "std::collections::".len()..];
        let end = if rest.starts_with('{') {
            rest.find('}').unwrap_or(rest.len())
        } else {
            rest.find(|ch: char| !ch.is_alphanumeric() && ch != '_').unwrap_or(rest.len())
        };
        for name in ["HashMap", "HashSet"] {
            if rest[..end].split(|ch: char| !ch.is_alphanumeric() && ch != '_').any(|word| word == name) {
                found.push((at, name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages for a file of crate `engine`.
    fn broken(text: &str) -> Vec<String> {
        let text = format!("//! A file.\n{text}\n");
        let found = check("crates/storage/engine/src/x.rs", "engine", &text, &Source::new(&text), false);
        found.into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn forbidden_calls_are_found_outside_tests_only() {
        for text in [
            "fn f() { Instant::now(); }",
            "use std::fs;",
            "use tokio::task;",
            "use std::collections::HashMap;",
            "use std::collections::{BTreeMap, HashSet};",
            "fn f(m: std::collections::HashMap<u8, u8>) {}",
            "static LOCK: Mutex<u8> = todo();",
            "fn f() { unsafe { g() } }",
            "fn f() { todo!() }",
            "fn f() { Injected::by_simulator(bugs) }",
            "#[ignore]\nfn f() {}",
        ] {
            assert_eq!(broken(text).len(), 1, "{text} gives {:?}", broken(text));
        }
        for text in [
            "use std::net::IpAddr;",
            "use std::collections::BTreeMap;",
            "// Instant::now is not for us",
            "#[cfg(test)]\nmod tests { fn f() { Instant::now(); } }",
            "#[ignore = \"takes an hour\"]\nfn f() {}",
            "fn f() { if std::thread::panicking() {} }",
            "fn f(rt: stdx::HashMap<u8, u8>) { rt.strand::x(); }",
        ] {
            assert_eq!(broken(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn sentences_are_not_code() {
        for code in [
            "let x = 1;",
            "self.flush();",
            "use std::fmt::Debug;",
            "if x {",
            "drop(x);",
            "count += 1;",
            "assert!(x > 1);",
        ] {
            assert!(looks_like_code(code), "{code}");
        }
        for sentence in [
            "The frame is dropped (see above);",
            "let the caller decide;",
            "use with care;",
            "returns {",
            "a = b when they are the same",
            "e.g. this one;",
            "flush() comes later",
        ] {
            assert!(!looks_like_code(sentence), "{sentence}");
        }
    }

    #[test]
    fn fuzzers_are_where_they_are_looked_for_and_hunt() {
        let broken = |path: &str, text: &str| {
            let text = format!("//! A file.\n{text}\n");
            check(path, "engine", &text, &Source::new(&text), true).len()
        };
        let (fuzz, other) =
            ("crates/storage/engine/tests/it/fuzz.rs", "crates/storage/engine/tests/it/other.rs");
        let hunts = "#[test]\nfn f() { hunt(\"it\", |random| read(random)); }";
        assert_eq!((broken(fuzz, hunts), broken(other, hunts)), (0, 1));
        assert_eq!(broken(fuzz, "#[test]\nfn f() { for seed in 0..9 { read(seed); } } // hunt(it)"), 1);
        assert_eq!(broken(other, "fn f() {}"), 0);
    }

    #[test]
    fn decoders_are_known_by_their_names() {
        assert!(is_decoder("crates/a/b/src/codec.rs") && is_decoder("crates/a/b/src/read_codec.rs"));
        assert!(is_decoder("crates/protocol/items/src/lib.rs"));
        assert!(!is_decoder("crates/a/b/src/codecs.rs") && !is_decoder("crates/a/b/src/codec/list.rs"));
        let holders = with_attributes_for("crates/a/b/src/codec/decode.rs");
        for holder in ["src/codec/decode.rs", "src/codec/mod.rs", "src/codec.rs", "src/lib.rs"] {
            assert!(holders.contains(&format!("crates/a/b/{holder}")), "{holder}");
        }
    }

    #[test]
    fn a_file_needs_its_first_line() {
        let text = "fn f() {}\n";
        assert_eq!(
            check("crates/storage/engine/src/x.rs", "engine", text, &Source::new(text), false).len(),
            1
        );
    }
}
