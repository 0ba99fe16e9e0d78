//! An entry as a message of syslog (RFC 5424).

use std::net::SocketAddr;

use types::CqlType;

use super::AuditEntry;

/// Facility 13 (log audit) times 8, and severity 5 (notice): RFC 5424, section 6.2.1.
const PRIORITY: u8 = 13 * 8 + 5;
/// Bytes of a message, which a datagram of any transport holds (RFC 5424, section 6.1, asks for 2,048).
const MESSAGE_BYTES_MAX: usize = 8 << 10;

impl AuditEntry {
    /// The entry as a message of the node that listens on `host`, without a line's end; a long one is cut.
    pub fn syslog(&self, host: SocketAddr) -> String {
        let time = CqlType::Timestamp.to_text(&self.millis.to_be_bytes());
        let line = self.line(host);
        let mut message = format!("<{PRIORITY}>1 {time} {} torc - AUDIT - {}", host.ip(), line.trim_end());
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX - 3));
            message.push_str("...");
        }
        message
    }
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
        };
        let host = "127.0.0.1:7000".parse().unwrap();
        let expected = "<109>1 2025-11-24T16:00:00.123Z 127.0.0.1 torc - AUDIT - user:ann|host:127.0.0.1:7000|source:/10.0.0.9|\
                        port:4711|timestamp:1764000000123|type:SELECT|category:QUERY|operation:SELECT 1";
        assert_eq!(entry.syslog(host), expected);
        entry.operation = "é\n".repeat(20_000);
        let long = entry.syslog(host);
        assert!(long.len() <= MESSAGE_BYTES_MAX && long.ends_with("...") && !long.contains('\n'));
    }
}
