//! The names in the certificate that a client has shown, after it was verified: its subject and alternative names (RFC 5280, section 4).
//! Only the structure that leads to them is read.

use std::fmt::Write as _;
use std::net::IpAddr;

/// The names of a verified certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject in the form of RFC 4514, last part first (`CN=ann,O=Torc`). Inside a value, `=` and the characters that have to be
    /// escaped are written in hexadecimal, so that no value looks like another attribute.
    pub subject: String,
    /// The alternative names, in the certificate's order; those of other kinds are left out.
    pub alternative_names: Vec<AlternativeName>,
}

/// One of a certificate's alternative names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    /// A host name.
    Dns(String),
    /// A URI, such as a SPIFFE ID.
    Uri(String),
    /// A mail address.
    Email(String),
    /// An address.
    Address(IpAddr),
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
/// The explicit tags of a certificate's version and of its extensions.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The object identifier of the extension: 2.5.29.17.
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const MAIL_NAME: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI_NAME: u8 = 0x86;
const ADDRESS_NAME: u8 = 0x87;

/// A value of DER: its tag, its content, and the bytes behind it. None where the bytes are no such value.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// The content of a value with this tag, and the bytes behind it.
fn expect(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    value(bytes).filter(|found| found.0 == tag).map(|(_, content, rest)| (content, rest))
}

/// The values in a row.
fn values(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = value(bytes)?;
        bytes = rest;
        Some((tag, content))
    })
}

impl PeerCertificate {
    /// The names in a certificate in DER; none when its structure is another.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let (certificate, _) = expect(SEQUENCE, der)?;
        let (fields, _) = expect(SEQUENCE, certificate)?;
        let fields = expect(VERSION, fields).map_or(fields, |(_, rest)| rest);
        // Serial number, algorithm, issuer and validity come first.
        let mut fields = values(fields).skip(4);
        let (_, subject) = fields.next().filter(|(tag, _)| *tag == SEQUENCE)?;
        let extensions = fields.find(|(tag, _)| *tag == EXTENSIONS).map(|(_, content)| content);
        let alternative_names = match extensions {
            Some(extensions) => alternative_names(expect(SEQUENCE, extensions)?.0)?,
            None => Vec::new(),
        };
        Some(Self { subject: distinguished_name(subject)?, alternative_names })
    }

    /// The alternative names as one text in the manner of a subject: `DNS=…,URI=…`.
    pub fn alternative_names_text(&self) -> String {
        let shown = self.alternative_names.iter().map(|name| match name {
            AlternativeName::Dns(name) => format!("DNS={}", escaped(name)),
            AlternativeName::Uri(uri) => format!("URI={}", escaped(uri)),
            AlternativeName::Email(address) => format!("EMAIL={}", escaped(address)),
            AlternativeName::Address(address) => format!("IP={address}"),
        });
        shown.collect::<Vec<_>>().join(",")
    }

    /// The first URI that begins so.
    pub fn uri(&self, prefix: &str) -> Option<&str> {
        self.alternative_names.iter().find_map(|name| match name {
            AlternativeName::Uri(uri) if uri.starts_with(prefix) => Some(uri.as_str()),
            _ => None,
        })
    }
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<AlternativeName>> {
    for (_, extension) in values(extensions) {
        let (id, rest) = expect(OBJECT_IDENTIFIER, extension)?;
        if id != SUBJECT_ALTERNATIVE_NAME {
            continue;
        }
        let rest = expect(BOOLEAN, rest).map_or(rest, |(_, rest)| rest);
        let (names, _) = expect(SEQUENCE, expect(OCTET_STRING, rest)?.0)?;
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        let names = values(names).filter_map(|(tag, content)| match tag {
            MAIL_NAME => text(content).map(AlternativeName::Email),
            DNS_NAME => text(content).map(AlternativeName::Dns),
            URI_NAME => text(content).map(AlternativeName::Uri),
            ADDRESS_NAME => address(content).map(AlternativeName::Address),
            _ => None,
        });
        return Some(names.collect());
    }
    Some(Vec::new())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// A sequence of sets of attributes as text.
fn distinguished_name(subject: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    for (tag, set) in values(subject) {
        if tag != SET {
            return None;
        }
        let attributes: Option<Vec<String>> = values(set).map(|(_, pair)| attribute(pair)).collect();
        parts.push(attributes?.join("+"));
    }
    parts.reverse();
    Some(parts.join(","))
}

fn attribute(pair: &[u8]) -> Option<String> {
    let (id, rest) = expect(OBJECT_IDENTIFIER, pair)?;
    let (tag, content, _) = value(rest)?;
    let name = attribute_name(id);
    // UTF8String, PrintableString and IA5String have text.
    let text = matches!(tag, 0x0c | 0x13 | 0x16).then(|| std::str::from_utf8(content).ok()).flatten();
    let value = match text {
        Some(text) => escaped(text),
        None => content.iter().fold("#".to_owned(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }),
    };
    Some(format!("{name}={value}"))
}

/// The short names of RFC 4514, section 3, and that of mail addresses; numbers for others.
fn attribute_name(id: &[u8]) -> String {
    let name = match id {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "EMAIL",
        id => return id.iter().fold("OID".to_owned(), |name, byte| format!("{name}.{byte}")),
    };
    name.to_owned()
}

/// A value in which nothing looks like the begin of another: RFC 4514, section 2.4, always in hexadecimal.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, found) in text.char_indices() {
        let begins = at == 0 && matches!(found, ' ' | '#');
        let ends = found == ' ' && at + 1 == text.len();
        if begins
            || ends
            || matches!(found, ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' | '\0'..='\x1f' | '\x7f')
        {
            let _ = write!(out, "\\{:02X}", u32::from(found));
        } else {
            out.push(found);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use testkit::certificates::{ANN, NODE};

    use super::*;

    fn der(pem: &[u8]) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem).expect("a certificate")
    }

    #[test]
    fn the_names_of_a_certificate_are_found() {
        let ann = PeerCertificate::read(&der(ANN.certificate)).expect("its names");
        assert_eq!(ann.subject, "UID=ann,CN=ann,O=Torc\\2C CN\\3Droot");
        assert_eq!(
            ann.alternative_names_text(),
            "DNS=ann.example,EMAIL=ann@example.org,IP=10.0.0.7,IP=::1,URI=https://ann.example,URI=spiffe://torc/ann"
        );
        assert_eq!(ann.uri("spiffe://"), Some("spiffe://torc/ann"));
        assert_eq!(ann.uri("ftp://"), None);
        assert_eq!(PeerCertificate::read(&der(NODE.certificate)).expect("its names").uri("spiffe://"), None);
    }

    #[test]
    fn a_value_looks_like_no_other_attribute() {
        assert_eq!(escaped(" a,CN=b+c\\\n "), "\\20a\\2CCN\\3Db\\2Bc\\5C\\0A\\20");
        assert_eq!(escaped("#a b#é"), "\\23a b#é");
        assert_eq!(attribute_name(&[0x55, 4, 99]), "OID.85.4.99");
    }

    /// Cut anywhere or with any byte changed, it is read or refused.
    #[test]
    fn changed_certificates_do_no_harm() {
        let whole = der(ANN.certificate);
        for at in 0..whole.len() {
            assert_eq!(PeerCertificate::read(&whole[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut changed = whole.to_vec();
                changed[at] ^= 1 << bit;
                PeerCertificate::read(&changed);
            }
        }
        for bytes in
            [&[][..], &[0x30], &[0x30, 0x80], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x83, 1]]
        {
            assert_eq!(PeerCertificate::read(bytes), None);
        }
    }
}
