//! The audit log as front ends know it (docs/design/audit.md): entries, the filter, and the line of an entry, which
//! is that of Cassandra's `FileAuditLogger`. The node stores the lines.

mod event;
mod filter;
mod scylla;
mod syslog;
pub mod table;

use std::borrow::Cow;
use std::net::SocketAddr;

use coordinator::Consistency;
use futures_util::future::LocalBoxFuture;

use crate::error::ExecError;

pub(crate) use event::batched;
pub use filter::{AuditFilter, AuditLists};
pub use scylla::{StatementCategory, StatementFilter};

/// Bytes of an operation that an entry has at most; of a longer one the begin.
pub const OPERATION_BYTES_MAX: usize = 64 << 10;
/// The name of clients that have not authenticated.
const ANONYMOUS: &str = "anonymous";

/// Defines the categories with Cassandra's names.
macro_rules! categories {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// The category of an entry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum AuditCategory {
            $($(#[doc = $doc])* $variant,)*
        }

        impl AuditCategory {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

categories! {
    /// SELECT, and reads by the DynamoDB API.
    Query = "QUERY",
    /// INSERT, UPDATE, DELETE and BATCH, and writes by the DynamoDB API.
    Dml = "DML",
    /// Changes of the schema, and TRUNCATE.
    Ddl = "DDL",
    /// Roles and permissions.
    Dcl = "DCL",
    /// USE and DESCRIBE, and descriptions by the DynamoDB API.
    Other = "OTHER",
    /// Logins, and requests without a permission.
    Auth = "AUTH",
    /// Requests that failed.
    Error = "ERROR",
    /// Statements that are prepared.
    Prepare = "PREPARE",
}

impl AuditCategory {
    /// The category of that name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.name().eq_ignore_ascii_case(name))
    }
}

/// The action of a request, as the log names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// The type, such as `CREATE_TABLE`.
    pub kind: String,
    /// The category.
    pub category: AuditCategory,
    /// The keyspace.
    pub keyspace: Option<String>,
    /// The table or other object.
    pub scope: Option<String>,
    /// The consistency level, of requests that have one.
    pub consistency: Option<&'static str>,
    /// ScyllaDB's category, which stays when the request fails; none for events that ScyllaDB does not audit.
    pub statement: Option<StatementCategory>,
    /// Keyspaces and tables of the statements of a batch.
    pub batched: Vec<(String, String)>,
}

impl AuditEvent {
    /// One that is about no object.
    pub fn new(kind: &str, category: AuditCategory) -> Self {
        Self {
            kind: kind.to_owned(),
            category,
            keyspace: None,
            scope: None,
            consistency: None,
            statement: StatementCategory::of(kind, category),
            batched: Vec::new(),
        }
    }

    /// That of a request at this consistency level.
    pub fn at(self, consistency: Consistency) -> Self {
        Self { consistency: Some(consistency.name()), ..self }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The action.
    pub event: AuditEvent,
    /// By which role; none on a node that asks nobody.
    pub user: Option<String>,
    /// From where.
    pub source: SocketAddr,
    /// When it ended, milliseconds since the epoch.
    pub millis: i64,
    /// The statement without passwords, or the operation.
    pub operation: String,
    /// Why it failed.
    pub failure: Option<String>,
}

/// The peer whose form entries in syslog and in the table have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditStyle {
    /// The fields of Cassandra's lines.
    #[default]
    Cassandra,
    /// The categories and fields of ScyllaDB.
    Scylla,
}

impl AuditEntry {
    /// Whether the request failed.
    fn is_failure(&self) -> bool {
        let is_named = matches!(self.event.kind.as_str(), "LOGIN_ERROR" | "UNAUTHORIZED_ATTEMPT");
        self.failure.is_some() || is_named || self.event.category == AuditCategory::Error
    }

    /// The operation, and the reason of a failure.
    fn operation_and_failure(&self) -> Cow<'_, str> {
        match &self.failure {
            None => Cow::Borrowed(&self.operation),
            Some(failure) => Cow::Owned(format!("{}; {failure}", self.operation)),
        }
    }

    /// The entry as a line of the log of the node that listens on `host`. It has no line break but the one at its end.
    pub fn line(&self, host: SocketAddr) -> String {
        let user = self.user.as_deref().unwrap_or(ANONYMOUS);
        let event = &self.event;
        let mut line = format!(
            "user:{}|host:{host}|source:/{}|port:{}|timestamp:{}|type:{}|category:{}",
            Plain(user),
            self.source.ip(),
            self.source.port(),
            self.millis,
            event.kind,
            event.category.name(),
        );
        for (name, value) in [("ks", &event.keyspace), ("scope", &event.scope)] {
            if let Some(value) = value {
                line.push_str(&format!("|{name}:{}", Plain(value)));
            }
        }
        let operation = self.operation_and_failure();
        let cut = operation.floor_char_boundary(OPERATION_BYTES_MAX);
        line.push_str("|operation:");
        line.extend(operation[..cut].chars().map(|c| if c.is_control() { ' ' } else { c }));
        if cut < operation.len() {
            line.push_str("...");
        }
        line.push('\n');
        line
    }
}

/// A name that cannot pass for another field of its line.
struct Plain<'a>(&'a str);

impl std::fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write;
        self.0.chars().try_for_each(|c| f.write_char(if c == '|' || c.is_control() { ' ' } else { c }))
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// The request was carried out.
    Succeeded,
    /// Its role may not do that.
    Unauthorized(String),
    /// It failed with this error.
    Failed(String),
}

impl AuditOutcome {
    /// That of a statement.
    pub fn of<T>(result: &Result<T, ExecError>) -> Self {
        match result {
            Ok(_) => Self::Succeeded,
            Err(ExecError::Unauthorized(text)) => Self::Unauthorized(text.clone()),
            // It may quote a part of the statement that is a password.
            Err(ExecError::Syntax(_)) => Self::Failed("a syntax error".to_owned()),
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

/// Where entries go.
pub trait AuditLog {
    /// Whether an entry of that event by that role is wanted.
    fn admits(&self, event: &AuditEvent, user: Option<&str>) -> bool;

    /// Adds an entry; ready when there is room for it.
    fn record(&self, entry: AuditEntry) -> LocalBoxFuture<'static, ()>;
}

/// The name that lists of users have for clients without a role.
pub(crate) fn shown_user(user: Option<&str>) -> &str {
    user.unwrap_or(ANONYMOUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(operation: &str) -> AuditEntry {
        AuditEntry {
            event: AuditEvent {
                keyspace: Some("ks".to_owned()),
                scope: Some("t".to_owned()),
                ..AuditEvent::new("SELECT", AuditCategory::Query)
            },
            user: Some("ann".to_owned()),
            source: "10.0.0.9:4711".parse().unwrap(),
            millis: 1_764_000_000_123,
            operation: operation.to_owned(),
            failure: None,
        }
    }

    #[test]
    fn a_line_is_that_of_cassandras_file_logger() {
        let host = "127.0.0.1:7000".parse().unwrap();
        assert_eq!(
            entry("SELECT *\nFROM ks.t").line(host),
            "user:ann|host:127.0.0.1:7000|source:/10.0.0.9|port:4711|timestamp:1764000000123|type:SELECT|category:QUERY|\
             ks:ks|scope:t|operation:SELECT * FROM ks.t\n"
        );
        let failed = AuditEntry { failure: Some("no table".to_owned()), ..entry("SELECT x") };
        assert!(failed.line(host).ends_with("|operation:SELECT x; no table\n"));
    }

    #[test]
    fn nothing_that_a_client_sends_makes_another_line_or_field() {
        let mut one = entry("x\r\n\u{85}user:root|\0");
        one.user = Some("a|host:b\nc".to_owned());
        one.event.scope = Some("t|operation:DROP".to_owned());
        let line = one.line("127.0.0.1:7000".parse().unwrap());
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.starts_with("user:a host:b c|host:127.0.0.1:7000|"), "{line}");
        assert_eq!(line.find("|operation:"), line.rfind("|operation:"));
        let long = entry(&"é".repeat(OPERATION_BYTES_MAX)).line("127.0.0.1:7000".parse().unwrap());
        assert!(long.len() < OPERATION_BYTES_MAX + 300 && long.ends_with("...\n"));
    }
}
