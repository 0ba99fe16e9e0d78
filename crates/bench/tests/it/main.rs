//! The load generator against a small server of our own, which can be made to answer wrongly.

mod server;

use std::sync::Arc;
use std::time::Duration;

use bench::load::{Options, command, measure};

use crate::server::{Fault, Server};

/// Options for a server, from a line of the command line.
fn options(server: &Server, line: &str) -> Arc<Options> {
    let (workload, rest) = line.split_once(' ').unwrap_or((line, ""));
    let usual = "--quiet --warmup 100ms --duration 400ms --keys 2k";
    let line = format!("load {workload} --host {} {usual} {rest}", server.address());
    let matches = command().get_matches_from(line.split_ascii_whitespace());
    Arc::new(Options::from_matches(&matches).expect("good options"))
}

const WORKLOADS: [&str; 7] = [
    "write",
    "read --columns 5 --value-size 34",
    "mixed --distribution zipfian",
    "time-series --keys 20 --partition-rows 150",
    "wide-partition --keys 3 --partition-rows 1k",
    "scan --page-size 100",
    "counter --read-percent 50",
];

#[test]
fn every_workload_runs_without_a_wrong_answer() {
    for protocol in ["v4", "v5 --lz4", "v3 --lz4", "v5 --threads 2"] {
        let server = Server::start(None);
        for workload in WORKLOADS {
            // Scans count the keys of the table that reads use, so every table is as wide as its workload says.
            let line = format!("{workload} --protocol {protocol} --connections 3 --in-flight 20");
            let outcome = measure(&options(&server, &line)).expect(&line);
            assert_eq!(outcome.errors, Default::default(), "{line}");
            assert!(outcome.operations > 100, "{line}: {} operations", outcome.operations);
            assert!(outcome.client.total() > 0, "{line}: a client without CPU");
            assert!(outcome.latency_nanos(0.99) > 1_000, "{line}");
        }
    }
}

#[test]
fn wrong_answers_are_noticed() {
    for (fault, workload) in [
        (Fault::LostWrite, "read --no-load"),
        (Fault::ChangedValue, "read --no-load"),
        (Fault::LostWrite, "scan --no-load"),
        (Fault::DoubleCount, "counter"),
        (Fault::MissingRow, "wide-partition --keys 3 --partition-rows 1k --no-load"),
        (Fault::MissingRow, "time-series --keys 20 --partition-rows 150 --no-load"),
    ] {
        let server = Server::start(Some(fault));
        let loading = workload.replace("--no-load", "");
        // The load itself meets the fault too: what it says is seen below.
        let _ = measure(&options(&server, &loading));
        let outcome = measure(&options(&server, workload)).expect(workload);
        assert!(outcome.wrong() > 0, "{fault:?} was not noticed by {workload}: {:?}", outcome.errors);
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_waiting() {
    let server = Server::start(None);
    let outcome =
        measure(&options(&server, "write --rate 5000 --connections 4 --in-flight 4")).expect("a run");
    assert!((outcome.rate() - 5000.0).abs() < 500.0, "{} operations a second", outcome.rate());
    // A server that pauses: operations that were due meanwhile are counted from when they were due.
    let server = Server::start(Some(Fault::Pause(Duration::from_millis(100))));
    let outcome =
        measure(&options(&server, "write --rate 2000 --connections 1 --in-flight 1")).expect("a run");
    assert!(outcome.latency_nanos(0.5) > 20_000_000, "{} ns at the median", outcome.latency_nanos(0.5));
}

#[test]
fn a_server_that_falls_silent_ends_the_run() {
    let server = Server::start(Some(Fault::Silence));
    let error = measure(&options(&server, "write --stall 1s")).err().expect("no figures");
    assert!(error.contains("answered nothing"), "{error}");
}

#[test]
fn a_number_of_operations_is_that_number() {
    let server = Server::start(None);
    let outcome = measure(&options(&server, "write --ops 1234 --warmup 0s --threads 2")).expect("a run");
    assert_eq!(outcome.operations, 1234);
}

#[test]
fn nobody_there_is_said_so() {
    let server = Server::start(None);
    let mut gone = Options::clone(&options(&server, "write"));
    drop(server);
    gone.servers = vec!["127.0.9.1:1".parse().expect("an address")];
    let error = measure(&gone).err().expect("no figures");
    assert!(error.contains("is a server running there?"), "{error}");
}
