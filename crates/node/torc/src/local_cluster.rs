//! Several nodes in one process: started one after the other, stopped in the opposite order.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rt_uring::StopHandle;
use server::{Config, NodeError, ReadyReport};

use crate::node;

/// Events of the nodes and of the terminal.
enum Happening {
    Ready(ReadyReport),
    Ended(usize, Result<(), String>),
    StopAsked,
}

/// One node of the cluster.
struct Member {
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

/// The nodes that have been started.
struct Cluster {
    members: Vec<Member>,
    happened: Sender<Happening>,
    happenings: Receiver<Happening>,
}

/// Runs a cluster of nodes with these configurations until a stop signal, until a node fails, or until all have exited.
///
/// # Errors
/// A sentence for the user when a node's configuration is wrong, or the first node that fails to start or to run.
pub fn run(mut configs: Vec<Config>) -> Result<(), String> {
    crate::log::start(&configs[0].log_level, true)?;
    for config in &mut configs {
        node::resolve_seeds(config)?;
        config.check().map_err(|error| error.to_string())?;
        config.check_reach().map_err(|error| error.to_string())?;
    }
    let begun = Instant::now();
    let (happened, happenings) = mpsc::channel();
    let asked = happened.clone();
    rt_uring::on_stop_signal(move || drop(asked.send(Happening::StopAsked)))
        .map_err(|error| format!("cannot watch for signals: {error}"))?;
    let mut cluster = Cluster { members: Vec::new(), happened, happenings };
    let result = match cluster.start(configs) {
        Ok(Some(reports)) => {
            let _ = writeln!(std::io::stdout(), "{}", ready_line(&reports, begun.elapsed()));
            node::print_example(&reports[0]);
            cluster.wait()
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    let stopped = cluster.stop();
    result.and(stopped)
}

impl Cluster {
    /// Starts the nodes, each when the one before is ready. `None` after a stop signal meanwhile.
    fn start(&mut self, configs: Vec<Config>) -> Result<Option<Vec<ReadyReport>>, String> {
        let mut reports = Vec::new();
        for config in configs {
            self.begin(config)?;
            match self.next() {
                Happening::Ready(report) => reports.push(report),
                Happening::Ended(at, result) => {
                    result?;
                    return Err(format!("{} ended while the others were started", name(at)));
                }
                Happening::StopAsked => return Ok(None),
            }
        }
        Ok(Some(reports))
    }

    fn begin(&mut self, config: Config) -> Result<(), String> {
        let at = self.members.len();
        let stop = StopHandle::default();
        let machine = rt_uring::Config {
            files: node::files(&config),
            // The nodes share the cores.
            pin: false,
            stop: Some(stop.clone()),
            name: name(at),
            ..rt_uring::Config::default()
        };
        let (ready, ended) = (self.happened.clone(), self.happened.clone());
        let address = config.rpc_address;
        let hook = move |report: &ReadyReport| drop(ready.send(Happening::Ready(report.clone())));
        let shards = config.shards;
        let mains = server::mains(config, shards, Arc::new(hook));
        let run = move || {
            let result =
                rt_uring::run(&machine, mains).map_err(|error| error.to_string()).and_then(|results| {
                    let all: Result<(), NodeError> = results.into_iter().collect();
                    all.map_err(|error| explain(&error, address))
                });
            let result = result.map_err(|error| format!("{}: {error}", name(at)));
            drop(ended.send(Happening::Ended(at, result)));
        };
        let thread = std::thread::Builder::new().name(name(at)).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start a thread for {}: {error}", name(at)))?;
        self.members.push(Member { stop, thread: Some(thread) });
        Ok(())
    }

    /// The next thing that happens.
    fn next(&mut self) -> Happening {
        let happening = self.happenings.recv().expect("this end sends too");
        if let Happening::Ended(at, _) = &happening
            && let Some(thread) = self.members[*at].thread.take()
        {
            thread.join().expect("a panic of a node ends the process");
        }
        happening
    }

    /// Waits until there is a reason to stop.
    fn wait(&mut self) -> Result<(), String> {
        while self.members.iter().any(|member| member.thread.is_some()) {
            match self.next() {
                Happening::StopAsked => break,
                Happening::Ended(_, result) => result?,
                Happening::Ready(_) => panic!("a node is ready once"),
            }
        }
        Ok(())
    }

    /// Stops the nodes that run, the last one first; the first failure when all have ended.
    fn stop(&mut self) -> Result<(), String> {
        let mut first = Ok(());
        for at in (0..self.members.len()).rev() {
            self.members[at].stop.request();
            while self.members[at].thread.is_some() {
                if let Happening::Ended(_, result) = self.next() {
                    first = first.and(result);
                }
            }
        }
        first
    }
}

fn name(at: usize) -> String {
    format!("node{}", at + 1)
}

/// An error with its remedy.
fn explain(error: &NodeError, address: IpAddr) -> String {
    match error {
        NodeError::Listen { error: net, .. }
            if cfg!(target_os = "macos") && net.source.kind() == std::io::ErrorKind::AddrNotAvailable =>
        {
            format!(
                "{error}; on macOS give the address to the loopback first: sudo ifconfig lo0 alias {address}"
            )
        }
        _ => error.to_string(),
    }
}

/// The one line that says that clients may come.
fn ready_line(reports: &[ReadyReport], elapsed: Duration) -> String {
    let addresses: Vec<String> = reports.iter().map(|report| report.cql.to_string()).collect();
    let shards = reports[0].shards;
    format!(
        "torc is ready after {} ms: {} nodes with {shards} shard{} each, CQL on {}",
        elapsed.as_millis(),
        reports.len(),
        if shards == 1 { "" } else { "s" },
        addresses.join(" ")
    )
}
