//! A connection of a simulated client to the DynamoDB API: one request at a time over HTTP/1.1, with a time limit, and nothing assumed about the
//! answer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use rt::{ConnectOptions, Rt, Stream};
use serde_json::Value as Json;

/// The port of the API.
pub(crate) const API_PORT: u16 = 8000;
/// Longer than the agreements of a transaction on all its items may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
const HEADER_LEN_MAX: usize = 16 << 10;
const BODY_LEN_MAX: usize = 16 << 20;

/// Why there is no result.
#[derive(Clone, Debug)]
pub(crate) enum ApiFailure {
    /// The server answered with an error.
    Error {
        /// Status of HTTP.
        status: u16,
        /// The error's type, without its namespace.
        kind: String,
        /// The whole body.
        body: Json,
    },
    /// The connection broke or never came up: the request may have been executed.
    Connection(String),
    /// No answer came in time.
    Timeout,
    /// The answer breaks the protocol: a bug.
    Protocol(String),
}

impl fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error { status, body, .. } => write!(f, "status {status}: {body}"),
            Self::Connection(text) => write!(f, "connection: {text}"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Protocol(text) => write!(f, "protocol: {text}"),
        }
    }
}

impl ApiFailure {
    /// The type of the server's error; nothing where there is no answer.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Error { kind, .. } => kind,
            _ => "",
        }
    }
}

/// An open connection.
pub(crate) struct Api {
    rt: Rt,
    stream: Stream,
    host: SocketAddr,
    input: BytesMut,
}

impl Api {
    /// Connects to the API of a node.
    pub(crate) async fn open(rt: &Rt, address: IpAddr) -> Result<Self, ApiFailure> {
        let host = SocketAddr::new(address, API_PORT);
        let connecting = rt.net().connect(host, ConnectOptions::default());
        match rt.timeout(ANSWER_TIME_MAX, connecting).await {
            Ok(Ok(stream)) => Ok(Self { rt: rt.clone(), stream, host, input: BytesMut::new() }),
            Ok(Err(error)) => Err(ApiFailure::Connection(error.to_string())),
            Err(_) => Err(ApiFailure::Timeout),
        }
    }

    /// Sends a request of an operation.
    pub(crate) async fn call(&mut self, operation: &str, request: &Json) -> Result<Json, ApiFailure> {
        let rt = self.rt.clone();
        let request = request.to_string();
        let answer = rt.timeout(ANSWER_TIME_MAX, self.exchange(operation, &request)).await;
        let (status, body) = answer.unwrap_or(Err(ApiFailure::Timeout))?;
        let body: Json = serde_json::from_slice(&body)
            .map_err(|error| ApiFailure::Protocol(format!("a body that is no JSON: {error}")))?;
        if status == 200 {
            return Ok(body);
        }
        let kind = body["__type"].as_str().unwrap_or_default();
        let kind = kind.rsplit('#').next().unwrap_or_default().to_owned();
        Err(ApiFailure::Error { status, kind, body })
    }

    async fn exchange(&mut self, operation: &str, body: &str) -> Result<(u16, BytesMut), ApiFailure> {
        let broken = |error: std::io::Error| ApiFailure::Connection(error.to_string());
        let service = match operation {
            "DescribeStream" | "GetRecords" | "GetShardIterator" | "ListStreams" => "DynamoDBStreams",
            _ => "DynamoDB",
        };
        let head = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nX-Amz-Target: {service}_20120810.{operation}\r\n\
             Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream.write_all(head.as_bytes()).await.map_err(broken)?;
        loop {
            if let Some((status, header_len, body_len)) = answer_head(&self.input)? {
                if self.input.len() >= header_len + body_len {
                    let mut answer = self.input.split_to(header_len + body_len);
                    return Ok((status, answer.split_off(header_len)));
                }
            } else if self.input.len() > HEADER_LEN_MAX {
                return Err(ApiFailure::Protocol("a header without an end".to_owned()));
            }
            self.input.reserve(4096);
            if self.stream.read_buf(&mut self.input).await.map_err(broken)? == 0 {
                return Err(ApiFailure::Connection("closed by the server".to_owned()));
            }
        }
    }
}

/// The status of an answer, the bytes of its header and of its body; none while the header is not here.
fn answer_head(input: &[u8]) -> Result<Option<(u16, usize, usize)>, ApiFailure> {
    let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let wrong = |text: &str| ApiFailure::Protocol(format!("{text}: {}", String::from_utf8_lossy(input)));
    let head = std::str::from_utf8(&input[..end]).map_err(|_| wrong("a header that is no text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
    let status = status.and_then(|rest| rest.split(' ').next()).and_then(|status| status.parse().ok());
    let lengths = lines.filter_map(|line| line.split_once(':'));
    let mut lengths = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = lengths.next().and_then(|(_, length)| length.trim().parse().ok());
    match (status, length) {
        (Some(status), Some(length)) if length <= BODY_LEN_MAX => Ok(Some((status, end + 4, length))),
        _ => Err(wrong("no status, or no length of at most 16 MiB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_answers() {
        let head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: x\r\ncontent-length: 12\r\n\r\n{";
        assert_eq!(answer_head(head).ok().flatten(), Some((400, head.len() - 1, 12)));
        assert_eq!(answer_head(&head[..40]).ok().flatten(), None);
        assert!(matches!(answer_head(b"HTTP/1.1 200 OK\r\n\r\n"), Err(ApiFailure::Protocol(_))));
        assert!(matches!(
            answer_head(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"),
            Err(ApiFailure::Protocol(_))
        ));
    }
}
