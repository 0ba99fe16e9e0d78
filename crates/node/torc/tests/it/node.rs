//! Starts and stops nodes: each test gets an address and a directory of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wire::Version;

use crate::client::Client;

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A loopback address that no other test has, in this process or another one.
pub fn address() -> IpAddr {
    addresses(1)
}

/// The first of so many loopback addresses one after the other.
pub fn addresses(count: u8) -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let pid = std::process::id();
    let last = NEXT.fetch_add(count, Ordering::Relaxed);
    Ipv4Addr::new(127, 64 + (pid % 128) as u8, (pid / 128 % 250) as u8, last).into()
}

/// The binary with a subcommand.
pub fn torc(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torc"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The output of a process that ended.
pub struct Ended {
    pub status: ExitStatus,
    pub err: String,
}

/// Runs a command that is expected to end by itself.
pub fn run(mut command: Command) -> Ended {
    let mut child = command.spawn().expect("the binary is there");
    let status = wait(&mut child);
    let mut err = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
    Ended { status, err }
}

fn wait(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().expect("a child");
            panic!("the process did not end in {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A node that runs; killed when dropped.
pub struct Node {
    child: Child,
    pub address: IpAddr,
    pub ready_line: String,
    log: Arc<Mutex<String>>,
}

/// How to start a node.
pub struct Setup {
    pub address: IpAddr,
    pub dir: PathBuf,
    pub shards: u16,
    pub options: Vec<String>,
}

impl Setup {
    /// In this directory, with an address of its own and two shards.
    pub fn new(dir: &Path) -> Self {
        Self { address: address(), dir: dir.to_owned(), shards: 2, options: Vec::new() }
    }

    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push(format!("--{name}={value}"));
        self
    }

    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = shards;
        self
    }

    pub fn command(&self) -> Command {
        let mut command = torc(&["dev"]);
        command.args(["--address", &self.address.to_string(), "--shards", &self.shards.to_string(), "--dir"]);
        command.arg(&self.dir).args(&self.options);
        command
    }

    /// Starts it and waits until clients may come.
    pub fn start(&self) -> Node {
        self.try_start().unwrap_or_else(|ended| panic!("the node did not start: {}", ended.err))
    }

    /// Starts `torc server` with this file and waits until clients may come.
    pub fn start_server(&self, config: &Path) -> Node {
        let mut command = torc(&["server", "--config"]);
        command.arg(config);
        self.try_run(command).unwrap_or_else(|ended| panic!("the node did not start: {}", ended.err))
    }

    /// Starts it; returns its output if it ended instead.
    pub fn try_start(&self) -> Result<Node, Ended> {
        self.try_run(self.command())
    }

    fn try_run(&self, mut command: Command) -> Result<Node, Ended> {
        let mut child = command.spawn().expect("the binary is there");
        let log = Arc::new(Mutex::new(String::new()));
        let (mut errors, keep) = (child.stderr.take().expect("piped"), log.clone());
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = errors.read(&mut bytes) {
                keep.lock().expect("alive").push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("text");
        if line.is_empty() {
            let status = wait(&mut child);
            reader.join().expect("alive");
            let err = log.lock().expect("alive").clone();
            return Err(Ended { status, err });
        }
        Ok(Node { child, address: self.address, ready_line: line, log })
    }
}

impl Node {
    /// A connection to a shard.
    pub fn client(&self, shard: u16, version: Version) -> Client {
        Client::connect_to_shard(SocketAddr::new(self.address, 9042), shard, version)
    }

    /// A connection to any shard.
    pub fn any_client(&self) -> Client {
        Client::connect(SocketAddr::new(self.address, 9042), Version::V4)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("alive").clone()
    }

    /// Waits until it has logged something.
    pub fn says(&self, text: &str) {
        let begun = Instant::now();
        while !self.log().contains(text) {
            assert!(begun.elapsed() < PATIENCE, "the log does not say '{text}'");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// SIGTERM, and waits.
    pub fn stop(mut self) -> ExitStatus {
        self.signal("-TERM");
        wait(&mut self.child)
    }

    /// kill -9, and waits.
    pub fn kill(mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }

    /// Waits until it has ended.
    pub fn ended(mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// An HTTP request; the body of the answer, which must be good.
    pub fn http(&self, port: u16, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect((self.address, port)).expect("the port is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("the node reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
        body.to_owned()
    }

    /// One figure of the metrics, summed over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.http(9180, "GET", "/metrics");
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        });
        let values: Vec<f64> =
            samples.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(!values.is_empty(), "there is no metric {name}");
        values.iter().sum()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the node\n{}---", self.log());
        }
    }
}
