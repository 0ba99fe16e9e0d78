//! The few HTTP requests that a run sends to the administration port.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use rt::{ConnectOptions, Rt};

const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Gets a page; an error unless the answer is 200.
pub(crate) async fn get(rt: &Rt, server: SocketAddr, path: &str) -> Result<String, String> {
    call(rt, server, "GET", path).await
}

/// Sends a POST without a body; an error unless the answer is 200.
pub(crate) async fn post(rt: &Rt, server: SocketAddr, path: &str) -> Result<(), String> {
    call(rt, server, "POST", path).await.map(drop).map_err(|answer| answer.replace("\r\n", " "))
}

/// The body of an answer.
pub(crate) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or(answer, |(_, body)| body).trim()
}

/// The body of the answer to a request without a body; an error for another status than 200.
pub(crate) async fn call(rt: &Rt, server: SocketAddr, method: &str, path: &str) -> Result<String, String> {
    let exchange = async {
        let stream =
            rt.net().connect(server, ConnectOptions::default()).await.map_err(|error| error.to_string())?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = BytesMut::new();
        loop {
            answer.reserve(4096);
            if stream.read_buf(&mut answer).await.map_err(|error| error.to_string())? == 0 {
                let text = String::from_utf8_lossy(&answer).into_owned();
                return if text.starts_with("HTTP/1.1 200") { Ok(text) } else { Err(text) };
            }
        }
    };
    rt.timeout(ANSWER_TIME_MAX, exchange).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}
