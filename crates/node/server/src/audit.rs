//! The audit log of a shard: the lines of its entries in files of its own, which are rotated by size (docs/design/audit.md).
//!
//! An entry waits for room in a bounded buffer and is written by one task. Lines that cannot be written are counted, reported in the log and
//! dropped: a node whose disk is full serves on.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::Coordinator;
use exec::Executor;
use exec::audit::{
    AuditCategory, AuditEntry, AuditEvent, AuditFilter, AuditLog, AuditStyle, StatementFilter,
};
use futures_util::future::LocalBoxFuture;
use rt::sync::Notify;
use rt::{DiskError, File, Group, IoBuf, OpenOptions, Rt, Task};

use crate::Config;

mod table;

use table::TableSink;

/// Between two reports of entries that syslog lost, or of rotations that failed.
const LOSS_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of lines that wait to be written; requests wait when there are more.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// A file is rotated at a share of the bytes that the shard may keep, within these bounds.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=256 << 20;
/// The share.
const FILES_KEPT: u64 = 8;

/// Messages of syslog that wait to be sent; more are lost, for nobody waits for a server of logs.
const MESSAGES_MAX: usize = 4_096;

/// Opens the way to a server of syslog: a socket's path, or an address for UDP. The error is the operator's sentence.
pub type SyslogHook = Arc<dyn Fn(&SyslogTarget, usize) -> Result<SyslogSender, String> + Send + Sync>;
/// Sends a message without waiting; false when so many wait already that it is lost.
pub type SyslogSender = Arc<dyn Fn(String) -> bool + Send + Sync>;

/// Where messages of syslog go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogTarget {
    /// A socket for datagrams on this machine.
    Socket(PathBuf),
    /// UDP.
    Udp(SocketAddr),
}

impl SyslogTarget {
    /// An absolute path, or an address with its port.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.starts_with('/') {
            true => Some(Self::Socket(text.into())),
            false => text.parse().ok().map(Self::Udp),
        }
    }
}

/// Where the entries of a shard go: to files where there is neither of the others.
struct Sinks {
    /// A server of syslog.
    syslog: Option<SyslogSender>,
    /// A table.
    table: Option<Rc<TableSink>>,
}

/// Decides which entries are wanted.
enum Filter {
    /// By the lists of `audit_logging_options`.
    Cassandra(AuditFilter),
    /// By `audit_categories`, `audit_keyspaces` and `audit_tables`.
    Scylla(StatementFilter),
}

/// The audit log of one shard, of which there is none while it is disabled.
#[derive(Clone)]
pub(crate) struct ShardAudit(Rc<Inner>);

struct Inner {
    rt: Rt,
    directory: PathBuf,
    host: SocketAddr,
    filter: RefCell<Filter>,
    style: AuditStyle,
    is_enabled: Cell<bool>,
    /// Bytes that the shard's files may have together.
    bytes_max: Cell<u64>,
    pending: RefCell<String>,
    wake: Notify,
    room: Notify,
    is_stopping: Cell<bool>,
    /// Entries that could not be written.
    lost: Cell<u64>,
    sinks: Sinks,
    /// Entries that syslog lost, or a rotation that failed, were reported then.
    loss_reported: Cell<Option<rt::Instant>>,
    writer: RefCell<Option<Task<()>>>,
}

impl ShardAudit {
    /// The log in a directory or to a server of syslog, or none, as the configuration says.
    ///
    /// # Errors
    /// The operator's sentence when the way to the server of syslog cannot be opened.
    pub(crate) fn new(
        rt: &Rt,
        config: &Config,
        directory: &Path,
        syslog: Option<&SyslogHook>,
        executor: Option<&Rc<Executor<Coordinator>>>,
    ) -> Result<Self, String> {
        let style = config.audit_style();
        let syslog = match (config.audit_syslog_target(), syslog) {
            (None, _) => None,
            (Some(target), Some(open)) => Some(open(&target, MESSAGES_MAX)?),
            (Some(_), None) => return Err("this process has no way to syslog".to_owned()),
        };
        let table = executor.filter(|_| config.audits_to_table());
        let start = |executor: &Rc<Executor<Coordinator>>| {
            TableSink::start(rt, (config.listen_address, style), executor.clone())
        };
        let sinks = Sinks { syslog, table: table.map(start) };
        let audit = Self(Rc::new(Inner {
            rt: rt.clone(),
            directory: directory.to_owned(),
            host: (config.listen_address, config.storage_port).into(),
            filter: RefCell::new(Filter::Cassandra(AuditFilter::default())),
            style,
            is_enabled: Cell::new(false),
            bytes_max: Cell::new(0),
            pending: RefCell::default(),
            wake: Notify::new(),
            room: Notify::new(),
            is_stopping: Cell::new(false),
            lost: Cell::new(0),
            sinks,
            loss_reported: Cell::new(None),
            writer: RefCell::default(),
        }));
        audit.configure(config);
        Ok(audit)
    }

    /// Uses changed settings for the entries from now on.
    pub(crate) fn configure(&self, config: &Config) {
        let inner = &self.0;
        let scylla = config.scylla_audit().expect("it was checked with the configuration");
        let is_scylla = scylla.is_some();
        inner.filter.replace(match scylla {
            Some(filter) => Filter::Scylla(filter),
            None => Filter::Cassandra(config.audit_filter().expect("it was checked with the configuration")),
        });
        let shards = u64::from(inner.rt.shard_count());
        inner.bytes_max.set(config.audit_logging_options_max_log_size.0 / shards);
        inner.is_enabled.set(is_scylla || config.audit_logging_options_enabled);
        let writes_files = inner.sinks.syslog.is_none() && inner.sinks.table.is_none();
        if writes_files && inner.is_enabled.get() && inner.writer.borrow().is_none() {
            let writer = inner.clone();
            let task = inner.rt.spawn(Group::Maintenance, async move { writer.write().await });
            inner.writer.replace(Some(task));
        }
    }

    /// The log for requests; none while it is disabled.
    pub(crate) fn log(&self) -> Option<Rc<dyn AuditLog>> {
        self.0.is_enabled.get().then(|| Rc::new(self.clone()) as Rc<dyn AuditLog>)
    }

    /// Adds a login, or an attempt at one.
    pub(crate) async fn login(&self, user: Option<&str>, source: SocketAddr, failure: Option<&str>) {
        let (kind, operation) = match failure {
            None => ("LOGIN_SUCCESS", "LOGIN SUCCESSFUL"),
            Some(_) => ("LOGIN_ERROR", "LOGIN FAILURE"),
        };
        let event = AuditEvent::new(kind, AuditCategory::Auth);
        if !self.0.is_enabled.get() || !self.admits(&event, user) {
            return;
        }
        let entry = AuditEntry {
            event,
            user: user.map(str::to_owned),
            source,
            millis: self.0.rt.wall_micros() / 1_000,
            operation: operation.to_owned(),
            failure: failure.map(str::to_owned),
        };
        self.record(entry).await;
    }

    /// Writes the entries so far and ends.
    pub(crate) async fn stop(&self) {
        self.0.is_enabled.set(false);
        self.0.is_stopping.set(true);
        self.0.wake.notify_all();
        if let Some(table) = &self.0.sinks.table {
            table.stop().await;
        }
        let writer = self.0.writer.borrow_mut().take();
        if let Some(writer) = writer {
            writer.await;
        }
    }
}

impl AuditLog for ShardAudit {
    fn admits(&self, event: &AuditEvent, user: Option<&str>) -> bool {
        match &*self.0.filter.borrow() {
            Filter::Cassandra(filter) => filter.admits(event, user),
            Filter::Scylla(filter) => filter.admits(event),
        }
    }

    fn record(&self, entry: AuditEntry) -> LocalBoxFuture<'static, ()> {
        let inner = self.0.clone();
        if let Some(send) = &inner.sinks.syslog {
            if !send(entry.syslog(inner.host, inner.style)) {
                inner.message_lost();
            }
            if inner.sinks.table.is_none() {
                return Box::pin(std::future::ready(()));
            }
        }
        if let Some(table) = &inner.sinks.table {
            let table = table.clone();
            return Box::pin(async move { table.record(entry).await });
        }
        let line = entry.line(inner.host);
        Box::pin(async move {
            loop {
                // After the end nothing is written: a request that is cut then was not answered either.
                if inner.is_stopping.get() {
                    return;
                }
                {
                    let mut pending = inner.pending.borrow_mut();
                    if pending.is_empty() || pending.len() + line.len() <= PENDING_BYTES_MAX {
                        pending.push_str(&line);
                        break;
                    }
                }
                inner.room.notified().await;
            }
            inner.wake.notify_all();
        })
    }
}

/// The file that is written, and how long it is.
struct Current {
    file: File,
    end: u64,
}

impl Inner {
    async fn write(&self) {
        let mut current = None;
        loop {
            let lines = std::mem::take(&mut *self.pending.borrow_mut());
            self.room.notify_all();
            if !lines.is_empty() {
                if let Err(error) = self.append(&mut current, &lines).await {
                    self.report_loss(&lines, &error);
                    // It is opened again, and an incomplete line is ended.
                    current = None;
                }
                self.rotate_long(&mut current).await;
            } else if self.is_stopping.get() {
                break;
            } else {
                self.wake.notified().await;
            }
        }
        if let Some(current) = current
            && let Err(error) = current.file.sync_data().await
        {
            tracing::warn!("the audit log cannot be synced: {error}");
        }
    }

    /// Counts a message that syslog lost; the log of the node reports it at most every ten seconds.
    fn message_lost(&self) {
        self.lost.set(self.lost.get() + 1);
        if self.is_report_due() {
            tracing::error!(
                "the audit log cannot be sent to syslog fast enough: {} entries are lost since the start",
                self.lost.get()
            );
        }
    }

    /// Whether the next failure is to be reported; others follow it for [`LOSS_INTERVAL`] in silence.
    fn is_report_due(&self) -> bool {
        let now = self.rt.now();
        let is_due = self.loss_reported.get().is_none_or(|at| now.duration_since(at) >= LOSS_INTERVAL);
        if is_due {
            self.loss_reported.set(Some(now));
        }
        is_due
    }

    fn report_loss(&self, lines: &str, error: &DiskError) {
        let lost = lines.matches('\n').count() as u64;
        self.lost.set(self.lost.get() + lost);
        tracing::error!(
            "the audit log cannot be written, {lost} entries are lost ({} since the start): {error}",
            self.lost.get()
        );
    }

    fn path(&self) -> PathBuf {
        self.directory.join(format!("audit-{}.log", self.rt.shard().0))
    }

    /// Writes lines at the end of the file.
    async fn append(&self, current: &mut Option<Current>, lines: &str) -> Result<(), DiskError> {
        if current.is_none() {
            *current = Some(self.open().await?);
        }
        let Some(open) = current else { return Ok(()) };
        open.file.write_at(open.end, IoBuf::copy_of(lines.as_bytes())).await?;
        open.end += lines.len() as u64;
        Ok(())
    }

    /// Rotates the file when it is long. Its lines are written: none is lost when this fails, and it is tried again with the next lines.
    async fn rotate_long(&self, current: &mut Option<Current>) {
        let file_bytes = (self.bytes_max.get() / FILES_KEPT).clamp(*FILE_BYTES.start(), *FILE_BYTES.end());
        let Some(long) = current.take_if(|open| open.end >= file_bytes) else { return };
        let synced = long.file.sync_data().await;
        drop(long);
        let rotated = match synced {
            Ok(()) => self.rotate().await,
            Err(error) => Err(error),
        };
        if let Err(error) = rotated
            && self.is_report_due()
        {
            tracing::error!("the audit log cannot be rotated, and grows until it can: {error}");
        }
    }

    /// The file of before, or a new one. A line that a crash has cut is ended.
    async fn open(&self) -> Result<Current, DiskError> {
        self.rt.disk().create_dir_durably(&self.directory).await?;
        let file = self.rt.disk().open(self.path(), OpenOptions::READ_WRITE).await?;
        let mut end = file.len().await?;
        let is_cut = end > 0 && file.read_exact_at(end - 1, 1).await?.first() != Some(&b'\n');
        if is_cut {
            file.write_at(end, IoBuf::copy_of(b"\n")).await?;
            end += 1;
        }
        Ok(Current { file, end })
    }

    /// Names the file by the time, and removes the oldest of such files while all are larger together than they may be.
    async fn rotate(&self) -> Result<(), DiskError> {
        let prefix = format!("audit-{}.", self.rt.shard().0);
        let name = format!("{prefix}{:015}.log", self.rt.wall_micros() / 1_000);
        self.rt.disk().rename(self.path(), self.directory.join(name)).await?;
        let listed = self.rt.disk().list(&self.directory).await?;
        let mut rotated: Vec<PathBuf> = listed
            .into_iter()
            .filter(|entry| entry.name.starts_with(&prefix) && entry.name != format!("{prefix}log"))
            .map(|entry| self.directory.join(entry.name))
            .collect();
        rotated.sort();
        let mut sizes = Vec::new();
        for path in &rotated {
            sizes.push(self.rt.disk().len(path).await?);
        }
        let mut total: u64 = sizes.iter().sum();
        for (path, size) in rotated.iter().zip(sizes) {
            if total <= self.bytes_max.get() {
                break;
            }
            self.rt.disk().remove(path).await?;
            total -= size;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rt::shard_mains;
    use rt_sim::{NodeConfig, Simulation};

    use super::*;

    fn entry(n: usize, bytes: usize) -> AuditEntry {
        AuditEntry {
            event: AuditEvent::new("SELECT", AuditCategory::Query),
            user: None,
            source: "10.0.0.9:4711".parse().unwrap(),
            millis: 1_764_000_000_000,
            operation: format!("{n} {}", "x".repeat(bytes)),
            failure: None,
        }
    }

    /// Runs `work` with a shard's audit log on a disk of its own.
    fn with_log(max_log_size: u64, work: impl AsyncFn(Rt, ShardAudit) + Clone + Send + Sync + 'static) {
        let sim = Simulation::new(1, rt_sim::Config::default());
        let node = sim.add_node(NodeConfig { shards: 1, ..NodeConfig::default() }, move |_| {
            let work = work.clone();
            shard_mains(1, move |rt| {
                let work = work.clone();
                async move {
                    let config = Config {
                        audit_logging_options_enabled: true,
                        audit_logging_options_max_log_size: crate::Size(max_log_size),
                        ..Config::default()
                    };
                    let audit =
                        ShardAudit::new(&rt, &config, Path::new("/audit"), None, None).expect("files");
                    work(rt.clone(), audit).await;
                }
            })
        });
        sim.start(node);
        sim.run_until(|| !sim.is_running(node)).expect("it ends");
    }

    async fn text(rt: &Rt, name: &str) -> String {
        let bytes = rt.disk().read_to_end(Path::new("/audit").join(name), 1 << 30).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn entries_are_lines_in_order_and_go_on_after_a_cut_one() {
        with_log(1 << 30, async |rt: Rt, audit: ShardAudit| {
            for n in 0..100 {
                audit.record(entry(n, 10)).await;
            }
            audit.stop().await;
            let lines = text(&rt, "audit-0.log").await;
            assert_eq!(lines.lines().count(), 100);
            assert!(lines.lines().enumerate().all(|(n, line)| line.contains(&format!("|operation:{n} x"))));

            let file = rt.disk().open("/audit/audit-0.log", OpenOptions::READ_WRITE).await.unwrap();
            file.set_len(lines.len() as u64 - 5).await.unwrap();
            let config = Config { audit_logging_options_enabled: true, ..Config::default() };
            let again = ShardAudit::new(&rt, &config, Path::new("/audit"), None, None).expect("files");
            again.record(entry(7, 1)).await;
            again.stop().await;
            let lines = text(&rt, "audit-0.log").await;
            assert_eq!(lines.lines().count(), 101);
            assert!(lines.ends_with("|operation:7 x\n"));
        });
    }

    #[test]
    fn files_are_rotated_and_the_oldest_are_removed() {
        with_log(8 << 20, async |rt: Rt, audit: ShardAudit| {
            for n in 0..400 {
                audit.record(entry(n, 50_000)).await;
                if n % 20 == 0 {
                    // Names have the time in them.
                    rt.sleep(Duration::from_millis(5)).await;
                }
            }
            audit.stop().await;
            let listed = rt.disk().list("/audit").await.unwrap();
            let mut total = 0;
            for entry in &listed {
                total += rt.disk().len(Path::new("/audit").join(&entry.name)).await.unwrap();
            }
            assert!(listed.len() > 3, "{listed:?}");
            assert!((4 << 20..11 << 20).contains(&total), "{total} bytes");
            assert!(text(&rt, "audit-0.log").await.contains("|operation:399 x"));
        });
    }

    #[test]
    fn a_rotation_that_fails_loses_no_entries() {
        with_log(8 << 20, async |rt: Rt, audit: ShardAudit| {
            // The names of the rotated files are taken by directories.
            let until = rt.wall_micros() / 1_000 + 200;
            let names =
                (rt.wall_micros() / 1_000..until).map(|millis| format!("/audit/audit-0.{millis:015}.log"));
            for name in names {
                rt.disk().create_dir_durably(Path::new(&name)).await.unwrap();
            }
            for n in 0..50 {
                audit.record(entry(n, 50_000)).await;
            }
            while !audit.0.pending.borrow().is_empty() {
                rt.sleep(Duration::from_millis(1)).await;
            }
            assert!(rt.wall_micros() / 1_000 < until, "the rotations so far failed");
            let lines = text(&rt, "audit-0.log").await;
            assert!(lines.len() > 1 << 20 && audit.0.loss_reported.get().is_some(), "a rotation failed");
            assert_eq!((lines.lines().count(), audit.0.lost.get()), (50, 0));
            rt.sleep(Duration::from_millis(200)).await;
            audit.record(entry(50, 1)).await;
            audit.stop().await;
            let is_there = rt.disk().exists("/audit/audit-0.log").await.unwrap();
            assert!(!is_there && audit.0.lost.get() == 0, "the next lines have it rotated");
        });
    }

    #[test]
    fn entries_for_syslog_are_sent_or_counted_as_lost() {
        with_log(8 << 20, async |rt: Rt, _: ShardAudit| {
            let sent: Arc<Mutex<Vec<String>>> = Arc::default();
            let seen = sent.clone();
            let hook: SyslogHook = Arc::new(move |target, max| {
                assert_eq!((target, max), (&SyslogTarget::Udp(([10, 0, 0, 5], 514).into()), MESSAGES_MAX));
                let seen = seen.clone();
                Ok(Arc::new(move |message| {
                    let mut seen = seen.lock().unwrap();
                    seen.push(message);
                    // The queue holds three.
                    seen.len() <= 3
                }))
            });
            let config = Config {
                audit_logging_options_enabled: true,
                audit_logging_options_logger: "SyslogAuditLogger".to_owned(),
                audit_logging_options_syslog_target: "10.0.0.5:514".to_owned(),
                ..Config::default()
            };
            let none = ShardAudit::new(&rt, &config, Path::new("/audit"), None, None);
            assert!(none.is_err_and(|error| error.contains("no way to syslog")));
            let audit =
                ShardAudit::new(&rt, &config, Path::new("/audit"), Some(&hook), None).expect("a target");
            for n in 0..5 {
                audit.record(entry(n, 1)).await;
            }
            audit.stop().await;
            let sent = sent.lock().unwrap().clone();
            assert!(sent[2].starts_with("<109>1 ") && sent[2].ends_with("|operation:2 x"), "{sent:?}");
            assert_eq!((sent.len(), audit.0.lost.get()), (5, 2));
            assert!(rt.disk().list("/audit").await.is_err(), "there are no files");
        });
    }
}
