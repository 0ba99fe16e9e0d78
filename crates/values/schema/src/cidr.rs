//! Ranges of addresses, and named groups of them, from which roles may be allowed to log in (`ACCESS FROM CIDRS`).

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses: all that begin with the same bits (RFC 4632; RFC 4291, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// The bits before an address of version 4 in one of version 6 (RFC 4291, section 2.5.5.2).
const MAPPED_BITS: u8 = 96;

/// The bits of an address that count, the others 0.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

impl Cidr {
    /// The range of an address's first bits; none when it has not so many.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        (bits <= bits_max).then(|| Self { address: masked(address, bits), bits })
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits of an address count.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether an address is in it; one of version 4 that is written in version 6 counts as that of version 4, and so does a range of those.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let (own, bits) = match self.bits.checked_sub(MAPPED_BITS) {
            Some(bits) if self.address.to_canonical().is_ipv4() && self.address.is_ipv6() => {
                (self.address.to_canonical(), bits)
            }
            _ => (self.address, self.bits),
        };
        address.is_ipv4() == own.is_ipv4() && masked(address, bits) == own
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCidr(String);

impl fmt::Display for BadCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Invalid CIDR {:?}: expected an address and a number of bits, as 10.0.0.0/8 or fd00::/8",
            self.0
        )
    }
}

impl std::error::Error for BadCidr {}

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let bad = || BadCidr(text.chars().take(64).collect());
        let (address, bits) = text.split_once('/').ok_or_else(bad)?;
        let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let address = address.parse().map_err(|_| bad())?;
        let bits = bits.parse().ok().filter(|_| is_number).ok_or_else(bad)?;
        Self::new(address, bits).ok_or_else(bad)
    }
}

/// A named group of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CidrGroup {
    /// Its name.
    pub name: String,
    /// Its ranges.
    pub cidrs: BTreeSet<Cidr>,
}

impl CidrGroup {
    /// The bits of its smallest range that has an address; none when it is in no range.
    pub fn bits_of(&self, address: IpAddr) -> Option<u8> {
        self.cidrs.iter().filter(|cidr| cidr.contains(address)).map(Cidr::bits).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn ranges_contain_what_begins_alike() {
        let has = |range: &str, address: &str| cidr(range).contains(address.parse().expect("an address"));
        assert!(has("10.1.2.3/8", "10.255.0.1") && !has("10.1.2.3/8", "11.0.0.0"));
        assert!(has("0.0.0.0/0", "255.255.255.255") && !has("0.0.0.0/0", "::1"));
        assert!(has("1.2.3.4/32", "1.2.3.4") && !has("1.2.3.4/32", "1.2.3.5"));
        assert!(has("1.2.3.4/31", "::ffff:1.2.3.5"), "a socket of version 6 has clients of version 4");
        assert!(has("fd00::/8", "fdff::1") && !has("fd00::/8", "fe00::1"));
        assert!(has("::/0", "fe80::1") && has("fe80::1/128", "fe80::1") && !has("fe80::1/128", "fe80::2"));
        assert!(has("::ffff:10.0.0.0/104", "10.1.2.3") && has("::ffff:10.0.0.0/104", "::ffff:10.1.2.3"));
        assert!(!has("::ffff:10.0.0.0/104", "11.0.0.0"));
        assert!(has("::ffff:1.2.3.4/128", "1.2.3.4") && has("::ffff:0.0.0.0/96", "9.9.9.9"));
        assert_eq!(cidr("10.1.2.3/8").to_string(), "10.0.0.0/8");
        assert_eq!(cidr("FD00:0::1/16").to_string(), "fd00::/16");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "::ffff:10.0.0.0/129",
            "10.0.0/8",
            "x/8",
            "10.0.0.0/+8",
            "1.1.1.1/8/8",
        ] {
            assert!(text.parse::<Cidr>().unwrap_err().to_string().contains("Invalid CIDR"), "{text}");
        }
    }
}
