//! Hostile directories and users: random bytes and changed answers are read or refused, and no name of a user changes a filter.

use ldap::{Filter, Request, Scope, UrlTemplate, decode, encode};
use testkit::fuzz::{Random, change, hunt};

/// Answers to a bind and a search, and an entry with two values.
const SAMPLES: [&[u8]; 4] = [
    b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
    b"\x30\x0c\x02\x01\x02\x65\x07\x0a\x01\x04\x04\x00\x04\x00",
    b"\x30\x1d\x02\x01\x02\x64\x18\x04\x04cn=a\x30\x10\x30\x0e\x04\x02cn\x31\x08\x04\x02r1\x04\x02r2",
    b"\x30\x0c\x02\x01\x00\x78\x07\x0a\x01\x34\x04\x00\x04\x00",
];

/// A search with a filter.
fn search(filter: &Filter) -> Vec<u8> {
    let (scope, attribute) = (Scope::Subtree, Some("cn"));
    encode(1, &Request::Search { base: "dc=x", scope, filter, attribute, entries_max: 2, seconds_max: 5 })
}

/// The tags of a message in their order, without the values.
fn shape(mut bytes: &[u8]) -> Vec<u8> {
    let mut tags = Vec::new();
    while let [tag, first, rest @ ..] = bytes {
        let (len, rest) = match first {
            0x84 => (u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize, &rest[4..]),
            len => (usize::from(*len), rest),
        };
        tags.push(*tag);
        if tag & 0x20 != 0 {
            tags.extend(shape(&rest[..len]));
        }
        bytes = &rest[len..];
    }
    tags
}

#[test]
fn answers() {
    assert!(SAMPLES.iter().all(|bytes| matches!(decode(bytes), Ok(Some((len, _, _))) if len == bytes.len())));
    let corpus: Vec<Vec<u8>> = SAMPLES.iter().map(|bytes| bytes.to_vec()).collect();
    hunt("ldap_answers", |random| {
        let mut bytes = random.of(&corpus).clone();
        change(random, &mut bytes, &corpus);
        if let Ok(Some((len, _, _))) = decode(&bytes) {
            assert!(len <= bytes.len());
            assert_eq!(decode(&bytes[..len]), decode(&bytes), "bytes behind an answer do not change it");
        }
    });
}

/// A user's name never makes another condition of a filter, nor another part of a name.
#[test]
fn users() {
    let url =
        UrlTemplate::parse("ldap://h/uid={USER},dc=x??sub?(&(a=b)(member=uid={USER},dc=x)(uid={USER}))");
    let url = url.expect("a URL");
    let text = |random: &mut Random| -> String {
        let parts = [
            "a", ",", "=", "(", ")", "*", "\\", "2a", "\0", " ", "#", "+", "{USER}", "é", "\"", ";", "<", "&",
        ];
        (0..random.below(8)).map(|_| *random.of(&parts)).collect()
    };
    let expected = shape(&search(&url.filter("x").expect("a filter")));
    assert!(expected.len() > 15, "{expected:02x?}");
    hunt("ldap_users", |random| {
        let user = text(random);
        let filter = url.filter(&user).expect("any user fits");
        assert_eq!(shape(&search(&filter)), expected, "{user:?}");
        let name = url.name(&user);
        let inside =
            name.strip_prefix("uid=").and_then(|rest| rest.strip_suffix(",dc=x")).expect("the frame stays");
        assert!(!inside.contains([',', '=', '+', ';', '"', '<', '>', '\0']), "{name}");
    });
}
