//! Text of internet addresses as Java writes and reads it: IPv6 without compression of zeros.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The text of 4 or 16 bytes; `None` for other lengths.
pub(crate) fn format(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).to_string());
    }
    let groups = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).segments();
    Some(groups.map(|group| format!("{group:x}")).join(":"))
}

/// Reads an address in numbers. Host names, which Cassandra would look up, are refused. An IPv6 address that holds an
/// IPv4 one becomes that, as in Java.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    match bare.parse().ok()? {
        IpAddr::V4(v4) => Some(v4.octets().to_vec()),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => Some(v4.octets().to_vec()),
            None => Some(v6.octets().to_vec()),
        },
    }
}
