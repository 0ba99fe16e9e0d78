//! HTTP/1.1 over the shard's sockets, with hyper.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use hyper::service::service_fn;
use hyper::{Request, Response};
use rt::{Group, ListenOptions, Listener, NetError, Rt, Stream, Task};

use crate::{Answer, Call, Service};

/// Limits of an HTTP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpServerConfig {
    /// Connections at once; more are closed at once.
    pub connections_max: usize,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// How long a connection may live.
    pub connection_lifetime_max: Duration,
}

impl Default for HttpServerConfig {
    fn default() -> Self {
        Self {
            connections_max: 256,
            body_bytes_max: 1 << 20,
            connection_lifetime_max: Duration::from_secs(3600),
        }
    }
}

/// A port that answers HTTP requests until it is stopped or dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    accepting: Task<()>,
}

impl HttpServer {
    /// Opens the port and serves it from a task of its own.
    pub async fn start(
        rt: &Rt,
        address: SocketAddr,
        config: HttpServerConfig,
        service: Rc<dyn Service>,
    ) -> Result<Self, NetError> {
        let listener = rt.net().listen(address, ListenOptions::default()).await?;
        let address = listener.local_addr().unwrap_or(address);
        let accepting = rt.spawn(Group::Maintenance, accept(rt.clone(), listener, config, service));
        Ok(Self { address, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting; connections end with their present request.
    pub async fn stop(self) {
        self.accepting.cancel().await;
    }
}

async fn accept(rt: Rt, listener: Listener, config: HttpServerConfig, service: Rc<dyn Service>) {
    let open = Rc::new(Cell::new(0usize));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("accepting an HTTP connection failed: {error}");
                rt.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if open.get() >= config.connections_max {
            continue;
        }
        open.set(open.get() + 1);
        let (open, service, timer) = (open.clone(), service.clone(), rt.clone());
        let serve = async move {
            let ended =
                timer.timeout(config.connection_lifetime_max, connection(stream, config, service)).await;
            if let Ok(Err(error)) = ended {
                tracing::debug!("an HTTP connection ended: {error}");
            }
            open.set(open.get() - 1);
        };
        rt.spawn(Group::Maintenance, serve).detach();
    }
}

async fn connection(stream: Stream, config: HttpServerConfig, service: Rc<dyn Service>) -> hyper::Result<()> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(respond(request, config, service).await) }
    });
    // hyper would take the date from the system's clock, past the simulation.
    hyper::server::conn::http1::Builder::new()
        .auto_date_header(false)
        .serve_connection(Io(stream), answer)
        .await
}

async fn respond(
    request: Request<Incoming>,
    config: HttpServerConfig,
    service: Rc<dyn Service>,
) -> Response<Full<Bytes>> {
    let call = Call {
        method: request.method().as_str().to_owned(),
        path: percent_decode(request.uri().path()),
        query: parse_query(request.uri().query().unwrap_or_default()),
    };
    let answer = match Limited::new(request.into_body(), config.body_bytes_max).collect().await {
        Ok(_) => service.call(call).await,
        Err(error) => Answer::error(400, format!("the request's body cannot be read: {error}")),
    };
    Response::builder()
        .status(answer.status)
        .header(hyper::header::CONTENT_TYPE, answer.content_type)
        .body(Full::new(Bytes::from(answer.body)))
        .expect("status and content type are valid")
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(&name.replace('+', " ")), percent_decode(&value.replace('+', " ")))
        })
        .collect()
}

/// `%41` to `A`; what is not a valid escape stays as it is.
fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = (*byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A shard's socket as hyper wants it.
struct Io(Stream);

impl hyper::rt::Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0u8; 4096];
        let room = bytes.len().min(buf.remaining());
        let len = ready!(self.0.poll_read(cx, &mut bytes[..room]))?;
        buf.put_slice(&bytes[..len]);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(parse_query("cf=a%2Cb&tag=x+y&z"), [pair("cf", "a,b"), pair("tag", "x y"), pair("z", "")]);
        assert_eq!(percent_decode("100%"), "100%");
        assert_eq!(percent_decode("%zz%41"), "%zzA");
    }
}
