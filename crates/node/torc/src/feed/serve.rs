//! Feeds over HTTP: server-sent events (WHATWG HTML, section 9.2).
//!
//! A feed has a thread of its own that reads the log and writes to its client: while the client takes nothing, nothing is read.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use http1::origin::is_own_name;

use crate::feed::cql_log::CqlLog;
use crate::feed::http::{Refused, Request, parse, read_head, refused};
use crate::feed::reader::{Failure, From, Reader};
use crate::feed::{POLL_INTERVAL, Retry, Source};

/// How long a request may take to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take nothing before its feed ends; it can come back with the last token.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of events without data while nothing changes: by them an ended connection is noticed, and a client gets later tokens.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// After this a browser connects again.
const RETRY_MILLIS: u32 = 3_000;
/// The pause of the acceptor when the system has no more sockets or threads.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections beside those of feeds, which are answered with 503; a further one is closed.
const REFUSED_MAX: u64 = 64;

/// A port of feeds.
struct Port {
    source: Source,
    names: Vec<String>,
    /// Connections, those of feeds among them.
    connections: Arc<AtomicU64>,
    feeds: Arc<AtomicU64>,
    feeds_max: u64,
}

/// One of so many, until it is dropped.
struct Place(Arc<AtomicU64>);

impl Place {
    /// One more; none when there are so many.
    fn take(count: &Arc<AtomicU64>, max: u64) -> Option<Self> {
        let next = |taken: u64| (taken < max).then_some(taken + 1);
        let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.is_ok().then(|| Self(count.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves feeds until the process ends.
pub(super) fn run(arguments: &ArgMatches) -> Result<(), String> {
    let source = Source::new(arguments)?;
    let address: SocketAddr = *arguments.get_one("listen").expect("it has a default");
    if !address.ip().is_loopback() && !arguments.get_flag("allow-remote") {
        return Err(format!(
            "{address} is not loopback, and this port does not encrypt: put a proxy with TLS before it, or say --allow-remote"
        ));
    }
    let port = Arc::new(Port {
        source,
        names: arguments.get_many::<String>("host-name").into_iter().flatten().cloned().collect(),
        connections: Arc::default(),
        feeds: Arc::default(),
        feeds_max: *arguments.get_one("feeds").expect("it has a default"),
    });
    let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    let bound = listener.local_addr().map_err(|error| error.to_string())?;
    println!("feeds are under http://{bound}/cdc/KEYSPACE.TABLE");
    loop {
        let Ok((stream, _)) = listener.accept() else {
            sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(place) = Place::take(&port.connections, port.feeds_max + REFUSED_MAX) else { continue };
        let port = port.clone();
        let answer = move || {
            port.answer(stream);
            drop(place);
        };
        let begun = std::thread::Builder::new().name("feed".to_owned()).spawn(answer);
        if let Err(error) = begun {
            eprintln!("torc cdc: no thread for a feed: {error}");
            sleep(ACCEPT_PAUSE);
        }
    }
}

impl Port {
    /// Answers the one request of a connection.
    fn answer(&self, mut stream: TcpStream) {
        if let Err(Refused { status, message }) = self.feed(&mut stream) {
            let body = serde_json::json!({ "message": message, "code": status }).to_string();
            let login = if status == 401 { "WWW-Authenticate: Basic realm=\"torc\"\r\n" } else { "" };
            let len = body.len();
            let text = format!(
                "HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n{login}Content-Length: {len}\r\nConnection: close\r\n\r\n{body}"
            );
            // The client may be gone.
            drop(stream.write_all(text.as_bytes()));
        }
    }

    fn feed(&self, stream: &mut TcpStream) -> Result<(), Refused> {
        let set = stream.set_read_timeout(Some(REQUEST_TIMEOUT));
        set.and_then(|()| stream.set_write_timeout(Some(WRITE_TIMEOUT)))
            .map_err(|error| refused(500, error.to_string()))?;
        let head = read_head(stream, Instant::now() + REQUEST_TIMEOUT)?;
        let request = parse(&head)?;
        if !is_own_name(&request.host, &self.names) {
            return Err(refused(403, "Host is neither an address nor localhost nor a --host-name"));
        }
        let Some(_place) = Place::take(&self.feeds, self.feeds_max) else {
            return Err(refused(503, format!("there are {} feeds already", self.feeds_max)));
        };
        let (mut log, mut reader) = self.open(&request)?;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nretry: {RETRY_MILLIS}\nid: {}\n\n",
            reader.token()
        );
        // From here on an error is an event, or the end of the connection.
        if stream.write_all(head.as_bytes()).is_ok() {
            send(stream, &mut log, &mut reader);
        }
        Ok(())
    }

    fn open(&self, request: &Request) -> Result<(CqlLog, Reader), Refused> {
        let from = request.from.as_deref().unwrap_or("now");
        let from: From = from.parse().map_err(|message: String| refused(400, message))?;
        let credentials = request.credentials.as_ref().map(|login| login.credentials());
        let Source { target, consistency, limits } = self.source.clone();
        let hosts = target.hosts.len();
        let mut log = CqlLog::new(target, credentials, consistency, &request.table)
            .map_err(|message| refused(400, message))?;
        let mut opened = Reader::open(&mut log, &from, limits);
        for _ in 1..hosts {
            if !matches!(opened, Err(Failure::Transient(_))) {
                break;
            }
            // At the next host.
            opened = Reader::open(&mut log, &from, limits);
        }
        match opened {
            Ok(reader) => Ok((log, reader)),
            Err(Failure::Transient(message)) => Err(refused(503, message)),
            Err(Failure::NoLogin(message)) => Err(refused(401, message)),
            Err(Failure::Denied(message)) => Err(refused(403, message)),
            Err(Failure::Final(message)) => Err(refused(400, message)),
        }
    }
}

/// Sends events until the client is gone or the log cannot be read.
fn send(stream: &mut TcpStream, log: &mut CqlLog, reader: &mut Reader) {
    let mut retry = Retry { failing_since: None };
    let mut sent = Instant::now();
    loop {
        let event = match retry.take(reader.next(log)) {
            Err(message) => {
                let data = serde_json::json!({ "message": message });
                drop(stream.write_all(format!("event: error\ndata: {data}\n\n").as_bytes()));
                return;
            }
            Ok(Some(Some(change))) => format!("id: {}\ndata: {}\n\n", change.token, change.json),
            _ if sent.elapsed() >= PROGRESS_INTERVAL => format!(": progress\nid: {}\n\n", reader.token()),
            _ => {
                sleep(POLL_INTERVAL);
                continue;
            }
        };
        if stream.write_all(event.as_bytes()).is_err() {
            return;
        }
        sent = Instant::now();
    }
}
