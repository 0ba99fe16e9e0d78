//! The load generator against a small server of our own, which can be made to answer wrongly.

mod server;

use std::sync::Arc;
use std::time::Duration;

use bench::load::{Options, command, measure};

use crate::server::{Fault, Server};

/// Options for a server, from a line of the command line. Runs are as long as their number of operations, so that a
/// busy machine makes them slower and nothing else.
fn options(server: &Server, line: &str) -> Arc<Options> {
    let (workload, rest) = line.split_once(' ').unwrap_or((line, ""));
    let usual = "--quiet --warmup 50ms --ops 1500 --keys 2k";
    let line = format!("load {workload} --host {} {usual} {rest}", server.address());
    let matches = command().get_matches_from(line.split_ascii_whitespace());
    Arc::new(Options::from_matches(&matches).expect("good options"))
}

/// The same, as long as the line's `--duration`.
fn by_time(server: &Server, line: &str) -> Arc<Options> {
    let options = options(server, line);
    Arc::new(Options { operations: None, ..Options::clone(&options) })
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
        let mut client_micros = 0;
        for workload in WORKLOADS {
            // Scans count the keys of the table that reads use, so every table is as wide as its workload says.
            let line = format!("{workload} --protocol {protocol} --connections 3 --in-flight 20");
            let outcome = measure(&options(&server, &line)).expect(&line);
            assert_eq!(outcome.errors, Default::default(), "{line}");
            assert_eq!(outcome.operations, 1500, "{line}");
            assert!(outcome.latency_nanos(0.99) > 1_000, "{line}");
            client_micros += outcome.client.total();
        }
        // The kernel counts in hundredths of a second; one run may be shorter.
        assert!(client_micros > 0, "a client without CPU, {protocol}");
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
        // The load itself meets the fault too: its error is checked below.
        let _ = measure(&options(&server, &loading));
        let outcome = measure(&options(&server, workload)).expect(workload);
        assert!(outcome.wrong() > 0, "{fault:?} was not noticed by {workload}: {:?}", outcome.errors);
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_waiting() {
    let server = Server::start(None);
    let line = "write --rate 5000 --duration 400ms --connections 4 --in-flight 4";
    let outcome = measure(&by_time(&server, line)).expect("a run");
    // With any other load of the machine every scheduled operation was sent and counted, or reported as unsent.
    let due = outcome.counted() + outcome.unsent;
    assert!((1990..=2010).contains(&due), "{due} operations were due, not 2000");
    // A server that pauses: operations that were due meanwhile are counted from when they were due.
    let server = Server::start(Some(Fault::Pause(Duration::from_millis(100))));
    let line = "write --rate 2000 --duration 400ms --connections 1 --in-flight 1";
    let outcome = measure(&by_time(&server, line)).expect("a run");
    assert!(outcome.latency_nanos(0.5) > 20_000_000, "{} ns at the median", outcome.latency_nanos(0.5));
}

#[test]
fn a_server_that_falls_silent_ends_the_run() {
    let server = Server::start(Some(Fault::Silence));
    let error = measure(&options(&server, "write --stall 1s")).err().expect("no figures");
    assert!(error.contains("answered nothing"), "{error}");
}

#[test]
fn a_server_that_takes_connections_and_does_not_answer_ends_the_run() {
    for let_in in [0, 1, 3] {
        let server = Server::start(Some(Fault::DeafAfter(let_in)));
        let error =
            measure(&options(&server, "write --stall 300ms --connections 4")).err().expect("no figures");
        assert!(error.contains("has not answered for 0.3 s (--stall)"), "{let_in}: {error}");
    }
}

#[test]
fn a_number_of_operations_is_that_number() {
    let server = Server::start(None);
    // Threads that do not end together, with and without operations of a warm-up in flight when the counting begins.
    for line in [
        "write --ops 1234 --warmup 0s --threads 2",
        "write --ops 1235 --warmup 30ms --threads 3 --connections 3 --in-flight 50",
        "write --ops 7 --warmup 0s --threads 4 --connections 9",
        "write --ops 1 --warmup 0s --threads 1",
    ] {
        let outcome = measure(&options(&server, line)).expect("a run");
        let (_, rest) = line.split_once("--ops ").expect("it has operations");
        assert_eq!(rest.split(' ').next(), Some(outcome.operations.to_string().as_str()), "{line}");
    }
}

#[test]
fn a_time_is_measured_for_that_time() {
    let server = Server::start(None);
    let line = "write --warmup 0s --duration 300ms --threads 2";
    let outcome = measure(&by_time(&server, line)).expect("a run");
    assert!(outcome.operations > 0 && outcome.errors.is_empty(), "{:?}", outcome.errors);
    // An operation in flight at the end has a latency, and does not count for the rate.
    assert!(outcome.counted() >= outcome.operations, "{} of {}", outcome.counted(), outcome.operations);
}

#[test]
fn threads_that_find_nobody_do_not_wait_for_each_other() {
    // The first connection makes the tables; of the two of the run one is let in.
    let server = Server::start(Some(Fault::RefuseAfter(2)));
    let error = measure(&options(&server, "write --threads 2 --connections 2")).err().expect("no figures");
    assert!(error.contains(&server.address().to_string()), "the system's error: {error}");
}

#[test]
fn a_load_that_a_cold_server_refuses_in_part_is_loaded_again() {
    let server = Server::start(Some(Fault::SlowStart(40)));
    let outcome = measure(&options(&server, "read --keys 300")).expect("a run");
    assert_eq!(outcome.errors, Default::default());
    // One that never gets better is not taken for one.
    let server = Server::start(Some(Fault::SlowStart(u64::MAX)));
    let error = measure(&options(&server, "read --keys 300")).err().expect("no figures");
    assert!(error.contains("300 rows were not loaded: WriteTimeout"), "{error}");
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
