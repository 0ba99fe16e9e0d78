//! Requests and answers (RFC 4511, section 4).

use crate::ber::{
    self, BOOLEAN, Begun, ENUMERATED, INTEGER, OCTET_STRING, Reader, SEQUENCE, SET, group, number, value,
};
use crate::{Filter, LdapError};

/// The longest message of a directory, in bytes.
pub const MESSAGE_LEN_MAX: usize = 1 << 20;
/// Values of an entry that are read; those behind them are left out.
const VALUES_MAX: usize = 4096;

const BIND_REQUEST: u8 = 0x60;
const BIND_RESPONSE: u8 = 0x61;
const UNBIND_REQUEST: u8 = 0x42;
const SEARCH_REQUEST: u8 = 0x63;
const SEARCH_ENTRY: u8 = 0x64;
const SEARCH_DONE: u8 = 0x65;
const SEARCH_REFERENCE: u8 = 0x73;
const EXTENDED_REQUEST: u8 = 0x77;
const EXTENDED_RESPONSE: u8 = 0x78;
/// The request for TLS (RFC 4511, section 4.14.1).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// How far below its base a search looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The base alone.
    #[default]
    Base,
    /// Its children.
    One,
    /// It and all below.
    Subtree,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Authenticates the connection by name and password.
    Bind {
        /// The distinguished name.
        name: &'a str,
        /// The password. A directory takes an empty one for an anonymous bind, which succeeds: callers refuse it.
        password: &'a str,
    },
    /// Looks for entries.
    Search {
        /// The name of the entry where it begins.
        base: &'a str,
        /// How far it goes.
        scope: Scope,
        /// The condition.
        filter: &'a Filter,
        /// The attribute that is wanted; none for names alone.
        attribute: Option<&'a str>,
        /// The most entries.
        entries_max: u32,
        /// The most time of the directory, in seconds.
        seconds_max: u32,
    },
    /// Asks for TLS on this connection.
    StartTls,
    /// Ends the connection; has no answer.
    Unbind,
}

/// An answer's code (RFC 4511, section 4.1.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultCode(pub u32);

impl ResultCode {
    /// Done.
    pub const SUCCESS: Self = Self(0);
    /// A search has more entries than were allowed.
    pub const SIZE_LIMIT_EXCEEDED: Self = Self(4);
    /// There is no such entry.
    pub const NO_SUCH_OBJECT: Self = Self(32);
    /// The entry has no password.
    pub const INAPPROPRIATE_AUTHENTICATION: Self = Self(48);
    /// The name or the password is wrong.
    pub const INVALID_CREDENTIALS: Self = Self(49);
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The code.
    pub code: ResultCode,
    /// The directory's words.
    pub message: String,
}

/// An entry that a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its distinguished name.
    pub name: String,
    /// The values of its attributes that are text: attribute and value.
    pub values: Vec<(String, String)>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To a bind.
    Bind(Outcome),
    /// An entry of a search.
    Entry(Entry),
    /// Another directory that a search could go on in.
    Reference,
    /// The end of a search.
    SearchDone(Outcome),
    /// To StartTLS; with the message number 0 the announcement that the directory ends the connection.
    Extended(Outcome),
}

/// The bytes of a request; `id` is not 0 and not that of another request of the connection.
pub fn encode(id: u32, request: &Request<'_>) -> Vec<u8> {
    let body = match request {
        Request::Bind { name, password } => group(
            BIND_REQUEST,
            &[number(INTEGER, 3), value(OCTET_STRING, name.as_bytes()), value(0x80, password.as_bytes())],
        ),
        Request::Search { base, scope, filter, attribute, entries_max, seconds_max } => {
            let scope = match scope {
                Scope::Base => 0,
                Scope::One => 1,
                Scope::Subtree => 2,
            };
            // `1.1` stands for no attribute.
            let attribute = value(OCTET_STRING, attribute.unwrap_or("1.1").as_bytes());
            group(
                SEARCH_REQUEST,
                &[
                    value(OCTET_STRING, base.as_bytes()),
                    number(ENUMERATED, scope),
                    // Aliases are not followed: the base is searched.
                    number(ENUMERATED, 0),
                    number(INTEGER, *entries_max),
                    number(INTEGER, *seconds_max),
                    value(BOOLEAN, &[0]),
                    filter.encoded(),
                    value(SEQUENCE, &attribute),
                ],
            )
        }
        Request::StartTls => value(EXTENDED_REQUEST, &value(0x80, START_TLS)),
        Request::Unbind => value(UNBIND_REQUEST, &[]),
    };
    group(SEQUENCE, &[number(INTEGER, id), body])
}

/// Reads an answer: how many bytes it had, the number of its request, and the answer. None when more bytes are needed.
///
/// # Errors
/// [`LdapError::Message`] and [`LdapError::TooLong`], after which the connection is of no use.
pub fn decode(bytes: &[u8]) -> Result<Option<(usize, u32, Response)>, LdapError> {
    let bad = LdapError::Message;
    let (content, rest) = match ber::begin(bytes) {
        Begun::Whole(SEQUENCE, content, rest) => (content, rest),
        Begun::Needs(len) if len > MESSAGE_LEN_MAX => return Err(LdapError::TooLong(len)),
        Begun::Incomplete | Begun::Needs(_) if bytes.first().is_none_or(|tag| *tag == SEQUENCE) => {
            return Ok(None);
        }
        _ => return Err(bad("it begins otherwise")),
    };
    let len = bytes.len() - rest.len();
    if len > MESSAGE_LEN_MAX {
        return Err(LdapError::TooLong(len));
    }
    let mut fields = Reader(content);
    let id = fields.number(INTEGER).ok_or(bad("it has no number"))?;
    let (tag, body) = fields.next().ok_or(bad("it has no content"))?;
    let response = match tag {
        BIND_RESPONSE => Response::Bind(outcome(body).ok_or(bad("an answer to a bind lacks its code"))?),
        SEARCH_DONE => Response::SearchDone(outcome(body).ok_or(bad("the end of a search lacks its code"))?),
        EXTENDED_RESPONSE => Response::Extended(outcome(body).ok_or(bad("an answer lacks its code"))?),
        SEARCH_ENTRY => Response::Entry(entry(body).ok_or(bad("an entry has another form"))?),
        SEARCH_REFERENCE => Response::Reference,
        _ => return Err(bad("its kind is unknown")),
    };
    Ok(Some((len, id, response)))
}

fn outcome(body: &[u8]) -> Option<Outcome> {
    let mut fields = Reader(body);
    let code = ResultCode(fields.number(ENUMERATED)?);
    let _matched = fields.expect(OCTET_STRING)?;
    Some(Outcome { code, message: fields.text()? })
}

fn entry(body: &[u8]) -> Option<Entry> {
    let mut fields = Reader(body);
    let mut entry = Entry { name: fields.text()?, values: Vec::new() };
    let mut attributes = Reader(fields.expect(SEQUENCE)?);
    while !attributes.is_empty() {
        let mut attribute = Reader(attributes.expect(SEQUENCE)?);
        let name = attribute.text()?;
        let mut values = Reader(attribute.expect(SET)?);
        while !values.is_empty() {
            let value = values.expect(OCTET_STRING)?;
            if let Ok(text) = std::str::from_utf8(value)
                && entry.values.len() < VALUES_MAX
            {
                entry.values.push((name.clone(), text.to_owned()));
            }
        }
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn answer(id: u32, tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
        group(SEQUENCE, &[number(INTEGER, id), group(tag, parts)])
    }

    fn ended(code: u32, message: &str) -> Vec<Vec<u8>> {
        vec![number(ENUMERATED, code), value(OCTET_STRING, b""), value(OCTET_STRING, message.as_bytes())]
    }

    #[test]
    fn requests_have_the_form_of_the_specification() {
        let bind = Request::Bind { name: "cn=a", password: "pw" };
        assert_eq!(hex(&encode(1, &bind)), "3012020101600d0201030404636e3d6180027077");
        assert_eq!(hex(&encode(300, &Request::Unbind)), "30060202012c4200");
        let tls = hex(&encode(2, &Request::StartTls));
        assert_eq!(tls, "301d02010277188016312e332e362e312e342e312e313436362e3230303337");
        let filter = Filter::parse("(a=b)").expect("a filter");
        let search = Request::Search {
            base: "dc=x",
            scope: Scope::Subtree,
            filter: &filter,
            attribute: Some("cn"),
            entries_max: 2,
            seconds_max: 5,
        };
        assert_eq!(
            hex(&encode(3, &search)),
            "3028020103632304 0464633d78 0a0102 0a0100 020102 020105 010100 a306040161040162 30040402636e"
                .replace(' ', "")
        );
    }

    #[test]
    fn answers_are_read_as_they_come() {
        let bytes = answer(7, BIND_RESPONSE, &ended(49, "no"));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), Ok(None), "{len} bytes");
        }
        let outcome = Outcome { code: ResultCode::INVALID_CREDENTIALS, message: "no".to_owned() };
        let more = [&bytes[..], b"rest"].concat();
        assert_eq!(decode(&more), Ok(Some((bytes.len(), 7, Response::Bind(outcome)))));

        let text = |text: &str| value(OCTET_STRING, text.as_bytes());
        let attribute = |name: &str, values: &[Vec<u8>]| group(SEQUENCE, &[text(name), group(SET, values)]);
        let attributes =
            [attribute("cn", &[text("r1"), text("r2"), value(OCTET_STRING, &[0xff])]), attribute("sn", &[])];
        let bytes = answer(2, SEARCH_ENTRY, &[text("cn=r1"), group(SEQUENCE, &attributes)]);
        let pair = |value: &str| ("cn".to_owned(), value.to_owned());
        let entry = Entry { name: "cn=r1".to_owned(), values: vec![pair("r1"), pair("r2")] };
        assert_eq!(decode(&bytes), Ok(Some((bytes.len(), 2, Response::Entry(entry)))));
        let reference = answer(2, SEARCH_REFERENCE, &[text("ldap://x")]);
        assert_eq!(decode(&reference).map(|found| found.map(|found| found.2)), Ok(Some(Response::Reference)));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        assert!(decode(b"HTTP/1.1 400").is_err());
        assert_eq!(decode(&[0x30, 0x84, 0, 0x20, 0, 0]), Err(LdapError::TooLong((2 << 20) + 6)));
        assert!(decode(&answer(1, 0x7f, &[])).is_err(), "an unknown kind");
        assert!(decode(&answer(1, BIND_RESPONSE, &[])).is_err(), "no code");
        assert!(decode(&group(SEQUENCE, &[])).is_err());
    }
}
