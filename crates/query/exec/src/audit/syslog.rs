//! An entry as a message of syslog (RFC 5424).

use std::net::SocketAddr;

use types::CqlType;

use super::{ANONYMOUS, AuditEntry, AuditStyle, StatementCategory};

/// Facility 13 (log audit) times 8, and severity 5 (notice): RFC 5424, section 6.2.1.
const PRIORITY: u8 = 13 * 8 + 5;
/// Facility 1 (user) times 8, and severity 5 (notice), as ScyllaDB's.
const SCYLLA_PRIORITY: u8 = 8 + 5;
/// Bytes of a statement in a message of ScyllaDB's form, whose later fields are not cut.
const QUERY_BYTES_MAX: usize = 3 << 10;
/// Bytes of a message of ScyllaDB's form: escapes make a statement six times as long at most.
const SCYLLA_BYTES_MAX: usize = 32 << 10;
/// Bytes of a message, which a datagram of any transport holds (RFC 5424, section 6.1, asks for 2,048).
const MESSAGE_BYTES_MAX: usize = 8 << 10;

impl AuditEntry {
    /// The entry as a message of the node that listens on `host`, without a line's end; a long one is cut.
    pub fn syslog(&self, host: SocketAddr, style: AuditStyle) -> String {
        let time = CqlType::Timestamp.to_text(&self.millis.to_be_bytes());
        if style == AuditStyle::Scylla {
            return self.scylla_message(host, &time);
        }
        let line = self.line(host);
        let mut message = format!("<{PRIORITY}>1 {time} {} torc - AUDIT - {}", host.ip(), line.trim_end());
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX - 3));
            message.push_str("...");
        }
        message
    }

    /// The message of ScyllaDB: a header of RFC 3164, and quoted fields. The time is that of UTC, and nodes and clients have port 0, as there.
    fn scylla_message(&self, host: SocketAddr, time: &str) -> String {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        // From 2025-11-24T16:00:00.123Z.
        let number = |from: usize| time.get(from..from + 2).and_then(|digits| digits.parse::<usize>().ok());
        let month = number(5).and_then(|month| MONTHS.get(month.wrapping_sub(1))).unwrap_or(&"Jan");
        let (day, clock) = (number(8).unwrap_or(1), time.get(11..19).unwrap_or("00:00:00"));
        let event = &self.event;
        let category = event.statement.map_or("", StatementCategory::name);
        let is_login = event.statement == Some(StatementCategory::Auth);
        let query = if is_login { "" } else { self.operation.as_str() };
        let query = &query[..query.floor_char_boundary(QUERY_BYTES_MAX)];
        let text = |text: &Option<String>| quoted(text.as_deref().unwrap_or_default());
        let mut message = format!(
            "<{SCYLLA_PRIORITY}>{month} {day:2} {clock} scylla-audit: node=\"{}:0\", category=\"{category}\", cl=\"{}\", \
             error=\"{}\", keyspace={}, query={}, client_ip=\"{}:0\", table={}, username={}",
            host.ip(),
            event.consistency.unwrap_or_default(),
            self.is_failure(),
            text(&event.keyspace),
            quoted(query),
            self.source.ip().to_canonical(),
            text(&event.scope),
            quoted(self.user.as_deref().unwrap_or(ANONYMOUS)),
        );
        message.truncate(message.floor_char_boundary(SCYLLA_BYTES_MAX));
        message
    }
}

/// A text within quotes, with the escapes of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    types::json::write_string(text, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::super::{AuditCategory, AuditEvent};
    use super::*;

    #[test]
    fn a_message_has_the_header_of_rfc_5424_and_a_bounded_length() {
        let mut entry = AuditEntry {
            event: AuditEvent::new("SELECT", AuditCategory::Query),
            user: Some("ann".to_owned()),
            source: "10.0.0.9:4711".parse().unwrap(),
            millis: 1_764_000_000_123,
            operation: "SELECT 1".to_owned(),
            failure: None,
        };
        let host = "127.0.0.1:7000".parse().unwrap();
        let expected = "<109>1 2025-11-24T16:00:00.123Z 127.0.0.1 torc - AUDIT - user:ann|host:127.0.0.1:7000|source:/10.0.0.9|\
                        port:4711|timestamp:1764000000123|type:SELECT|category:QUERY|operation:SELECT 1";
        assert_eq!(entry.syslog(host, AuditStyle::Cassandra), expected);
        entry.operation = "é\n".repeat(20_000);
        let long = entry.syslog(host, AuditStyle::Cassandra);
        assert!(long.len() <= MESSAGE_BYTES_MAX && long.ends_with("...") && !long.contains('\n'));
    }

    #[test]
    fn a_message_in_the_form_of_scylladb_has_quoted_fields_that_stay_apart() {
        let mut entry = AuditEntry {
            event: AuditEvent {
                keyspace: Some("ks".to_owned()),
                scope: Some("t".to_owned()),
                consistency: Some("ONE"),
                ..AuditEvent::new("UPDATE", AuditCategory::Dml)
            },
            user: Some("a\"b".to_owned()),
            source: "[::ffff:10.0.0.9]:4711".parse().unwrap(),
            millis: 1_765_000_000_123,
            operation: "UPDATE ks.t SET v = '\u{1}\n' WHERE k = 1".to_owned(),
            failure: Some("no".to_owned()),
        };
        // The category stays that of the statement.
        entry.event.category = AuditCategory::Error;
        let host = "127.0.0.1:7000".parse().unwrap();
        let expected = "<13>Dec  6 05:46:40 scylla-audit: node=\"127.0.0.1:0\", category=\"DML\", cl=\"ONE\", error=\"true\", \
                        keyspace=\"ks\", query=\"UPDATE ks.t SET v = '\\u0001\\n' WHERE k = 1\", client_ip=\"10.0.0.9:0\", \
                        table=\"t\", username=\"a\\\"b\"";
        assert_eq!(entry.syslog(host, AuditStyle::Scylla), expected);
        entry.operation = "\u{1}".repeat(1 << 20);
        let long = entry.syslog(host, AuditStyle::Scylla);
        assert!(long.len() <= SCYLLA_BYTES_MAX && long.ends_with("username=\"a\\\"b\""), "{}", long.len());
        let event = AuditEvent::new("LOGIN_SUCCESS", AuditCategory::Auth);
        let login = AuditEntry { event, failure: None, ..entry };
        assert!(
            login
                .syslog(host, AuditStyle::Scylla)
                .contains("category=\"AUTH\", cl=\"\", error=\"false\", keyspace=\"\", query=\"\"")
        );
    }
}
