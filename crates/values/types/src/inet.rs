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
    match address(bare)? {
        IpAddr::V4(v4) => Some(v4.octets().to_vec()),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => Some(v4.octets().to_vec()),
            None => Some(v6.octets().to_vec()),
        },
    }
}

/// An address in numbers, as Java takes it: an IPv6 address may name a zone by its number, which is no part of it.
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Some((address, zone)) = text.split_once('%') {
        let is_number = !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_digit());
        return address.parse().ok().filter(|_| is_number).map(IpAddr::V6);
    }
    ipv4(text).map(IpAddr::V4)
}

/// An IPv4 address of which the numbers may begin with zeros. One of fewer than four numbers has in its last one all other bytes.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let number =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u32>().ok())?;
    let numbers = text.split('.').map(number).collect::<Option<Vec<u32>>>()?;
    let (last, first) = numbers.split_last()?;
    let bits = 32_u32.checked_sub(8 * u32::try_from(first.len()).ok()?).filter(|bits| *bits > 0)?;
    if first.iter().any(|byte| *byte > 255) || u64::from(*last) >> bits > 0 {
        return None;
    }
    let high = first.iter().fold(0, |address, byte| address << 8 | u64::from(*byte)) << bits;
    u32::try_from(high | u64::from(*last)).ok().map(Ipv4Addr::from)
}
