//! The requests of the HTTP port of feeds: one for each connection.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::io::Read;
use std::time::Instant;

use crate::feed::connection::Credentials;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// A request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// HTTP status.
    pub status: u16,
    /// The fault and the remedy.
    pub message: String,
}

/// A refusal.
pub fn refused(status: u16, message: impl Into<String>) -> Refused {
    Refused { status, message: message.into() }
}

/// A request for a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The table's name.
    pub table: String,
    /// Where to begin.
    pub from: Option<String>,
    /// The name of `Host`.
    pub host: String,
    /// The role with which the log is read.
    pub credentials: Option<Login>,
}

/// A name with a password, which no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Login(pub String, pub String);

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Login {
    /// For a connection.
    pub fn credentials(&self) -> Credentials {
        Credentials { user: self.0.clone(), password: self.1.clone() }
    }
}

/// Reads the head of a request, which is to arrive before a time.
///
/// # Errors
/// 400 when it is not HTTP or is not whole, 408 when it is late, 431 when it is too long.
pub fn read_head(stream: &mut impl Read, deadline: Instant) -> Result<String, Refused> {
    let mut head = Vec::new();
    let mut stream = stream.take(HEAD_BYTES_MAX);
    let mut buffer = [0; 1024];
    loop {
        if Instant::now() >= deadline {
            return Err(refused(408, "the request did not arrive in time"));
        }
        let len = match stream.read(&mut buffer) {
            Ok(0) if stream.limit() == 0 => {
                return Err(refused(431, format!("a request's head may have {HEAD_BYTES_MAX} bytes")));
            }
            Ok(0) => return Err(refused(400, "the request is not whole")),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(refused(408, "the request did not arrive in time")),
            Ok(len) => len,
        };
        // The end may lie across two reads.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(buffer.get(..len).unwrap_or_default());
        let tail = head.get(from..).unwrap_or_default();
        if let Some(end) = tail.windows(4).position(|window| window == b"\r\n\r\n") {
            head.truncate(from + end);
            return String::from_utf8(head).map_err(|_| refused(400, "the request's head is not text"));
        }
    }
}

/// The request of a head.
///
/// # Errors
/// 400 for an invalid request, 404 for another path, 405 for another method than GET, 403 for the requests of web pages of other sites.
pub fn parse(head: &str) -> Result<Request, Refused> {
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(refused(400, "the request is not HTTP/1.1"));
    };
    let mut request = Request::default();
    let (mut hosts, mut last_event, mut origin, mut site) = (Vec::new(), None, None, None);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return Err(refused(400, "a line of the request's head has no colon"));
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts.push(value.to_owned()),
            "last-event-id" if !value.is_empty() => last_event = Some(value.to_owned()),
            "origin" => origin = Some(value.to_owned()),
            "sec-fetch-site" => site = Some(value.to_owned()),
            "authorization" => request.credentials = Some(basic(value)?),
            _ => {}
        }
    }
    let [host] = hosts.as_slice() else { return Err(refused(400, "a request has exactly one Host")) };
    request.host.clone_from(host);
    if origin.is_some_and(|origin| origin != format!("http://{host}"))
        || site.is_some_and(|site| site != "same-origin" && site != "none")
    {
        return Err(refused(403, "the request comes from a page of another site"));
    }
    if method != "GET" {
        return Err(refused(405, "this port answers GET only"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let table = path.strip_prefix("/cdc/").filter(|table| !table.is_empty() && !table.contains('/'));
    let Some(table) = table else { return Err(refused(404, "a feed is under /cdc/KEYSPACE.TABLE")) };
    request.table = decoded(table)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "from" => request.from = Some(decoded(value)?),
            _ => {
                return Err(refused(
                    400,
                    format!("there is no parameter '{}', but 'from'", name.escape_default()),
                ));
            }
        }
    }
    // A client that comes back repeats its address: the later place counts.
    if last_event.is_some() {
        request.from = last_event;
    }
    Ok(request)
}

/// A part of an address without its escapes.
fn decoded(text: &str) -> Result<String, Refused> {
    let malformed = || refused(400, "the address has an invalid escape");
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(malformed());
        };
        bytes.push(u8::try_from(high << 4 | low).map_err(|_| malformed())?);
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

/// User and password of `Authorization` (RFC 7617).
fn basic(value: &str) -> Result<Login, Refused> {
    let malformed = || refused(400, "Authorization is not 'Basic' with the base64 of user:password");
    let (scheme, code) = value.split_once(' ').ok_or_else(malformed)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(malformed());
    }
    let bytes = stdx::base64::decode(code.trim()).ok_or_else(malformed)?;
    let text = String::from_utf8(bytes).map_err(|_| malformed())?;
    let (user, password) = text.split_once(':').ok_or_else(malformed)?;
    Ok(Login(user.to_owned(), password.to_owned()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn status(head: &str) -> u16 {
        parse(head).map_or_else(|refused| refused.status, |_| 200)
    }

    #[test]
    fn requests_are_understood() {
        let head = "GET /cdc/%22K%22.t?from=oldest HTTP/1.1\r\nhost: localhost:9043\r\nAuthorization: basic YTpiOmM=";
        let wanted = Request {
            table: "\"K\".t".to_owned(),
            from: Some("oldest".to_owned()),
            host: "localhost:9043".to_owned(),
            credentials: Some(Login("a".to_owned(), "b:c".to_owned())),
        };
        assert_eq!(parse(head), Ok(wanted.clone()));
        let resumed = parse(&format!("{head}\r\nLast-Event-ID: 01ab")).unwrap();
        assert_eq!(resumed, Request { from: Some("01ab".to_owned()), ..wanted });
        assert!(!format!("{resumed:?}").contains("b:c"), "passwords are not shown");
    }

    #[test]
    fn other_requests_are_refused() {
        let get = "GET /cdc/ks.t HTTP/1.1\r\nHost: localhost";
        assert_eq!(status(get), 200);
        for (head, wanted) in [
            ("", 400),
            ("GET /cdc/ks.t", 400),
            ("GET /cdc/ks.t HTTP/2\r\nHost: x", 400),
            ("GET /cdc/ks.t HTTP/1.1", 400),
            ("POST /cdc/ks.t HTTP/1.1\r\nHost: x", 405),
            ("GET / HTTP/1.1\r\nHost: x", 404),
            ("GET /cdc/ HTTP/1.1\r\nHost: x", 404),
            ("GET /cdc/a/b HTTP/1.1\r\nHost: x", 404),
            ("GET /cdc/%zz HTTP/1.1\r\nHost: x", 400),
            ("GET /cdc/%ff HTTP/1.1\r\nHost: x", 400),
            ("GET /cdc/ks.t?window=3 HTTP/1.1\r\nHost: x", 400),
        ] {
            assert_eq!(status(head), wanted, "{head}");
        }
        for (line, wanted) in [
            ("Host: localhost", 400),
            ("nonsense", 400),
            ("Authorization: Bearer x", 400),
            ("Authorization: Basic !", 400),
            ("Authorization: Basic YWI=", 400),
            ("Origin: http://evil.example", 403),
            ("Origin: http://localhost", 200),
            ("Sec-Fetch-Site: cross-site", 403),
            ("Sec-Fetch-Site: same-origin", 200),
        ] {
            assert_eq!(status(&format!("{get}\r\n{line}")), wanted, "{line}");
        }
    }

    #[test]
    fn heads_end_with_an_empty_line() {
        let soon = || Instant::now() + std::time::Duration::from_secs(60);
        let late = read_head(&mut std::io::repeat(b'x'), Instant::now()).unwrap_err();
        assert_eq!(late.status, 408);
        let mut whole: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nrest";
        assert_eq!(read_head(&mut whole, soon()).unwrap(), "GET / HTTP/1.1\r\nHost: x");
        let mut cut: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n";
        assert_eq!(read_head(&mut cut, soon()).unwrap_err().status, 400);
        assert_eq!(read_head(&mut std::io::repeat(b'x'), soon()).unwrap_err().status, 431);
    }
}
