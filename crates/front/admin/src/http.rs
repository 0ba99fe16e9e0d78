//! HTTP/1.1 over the shard's sockets, with hyper.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use http1::Io;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response};
use rt::{Group, ListenOptions, Listener, NetError, Rt, Stream, Task};

use crate::entrance::{Entrance, Peer, is_local};
use crate::escapes::percent_decode;
use crate::http_connections::{Connections, Progress, watch};
use crate::{Answer, Call, HttpServerConfig, Service, guard};

/// Bytes of a request's header, and hyper's buffer of a connection.
const HEADER_BYTES_MAX: usize = 32 << 10;
/// Lines of a request's header.
const HEADERS_MAX: usize = 64;

/// How long the acceptor waits when the system has no more sockets, and the interval of its warnings.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const ACCEPT_WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A port that answers HTTP requests until it is stopped or dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    accepting: Task<()>,
}

impl HttpServer {
    /// Opens the port and serves it from a task of its own.
    ///
    /// # Errors
    /// A [`NetError`] when the address is in use, is none of this machine, or needs a privilege.
    pub async fn start(
        rt: &Rt,
        address: SocketAddr,
        config: HttpServerConfig,
        entrance: Entrance,
        service: Rc<dyn Service>,
    ) -> Result<Self, NetError> {
        let listener = rt.net().listen(address, ListenOptions::default()).await?;
        let address = listener.local_addr().unwrap_or(address);
        let accepting = rt.spawn(Group::Maintenance, accept(rt.clone(), listener, config, entrance, service));
        Ok(Self { address, accepting })
    }

    /// Its listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting; connections end with their present request.
    pub async fn stop(self) {
        self.accepting.cancel().await;
    }
}

/// The common state of all connections of a port.
struct Port {
    rt: Rt,
    config: HttpServerConfig,
    entrance: Entrance,
    service: Rc<dyn Service>,
    connections: Rc<Connections>,
}

async fn accept(
    rt: Rt,
    listener: Listener,
    config: HttpServerConfig,
    entrance: Entrance,
    service: Rc<dyn Service>,
) {
    let connections = Rc::new(Connections::default());
    let port = Rc::new(Port { rt: rt.clone(), config, entrance, service, connections: connections.clone() });
    let config = &port.config;
    let mut warned = None;
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if warned.is_none_or(|last| rt.now() >= last + ACCEPT_WARNING_INTERVAL) {
                    warned = Some(rt.now());
                    tracing::warn!("accepting an HTTP connection failed: {error}");
                }
                rt.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(admitted) = connections.admit(rt.now(), &config) else { continue };
        let port = Rc::clone(&port);
        let serve = async move {
            let progress = admitted.progress.clone();
            let connection = connection(port.clone(), (stream, address), progress.clone());
            let ended = watch(&port.rt, &port.config, &progress, connection).await;
            if let Some(Err(error)) = ended {
                tracing::debug!("an HTTP connection of {address} ended: {error}");
            }
            drop(admitted);
        };
        rt.spawn(Group::Maintenance, serve).detach();
    }
}

async fn connection(
    port: Rc<Port>,
    accepted: (Stream, SocketAddr),
    progress: Rc<Progress>,
) -> Result<(), ConnectionError> {
    let (stream, peer) = secured(&port, accepted).await?;
    let io = Io::new(port.rt.clone(), stream, progress.clone());
    let answer = service_fn(move |request: Request<Incoming>| {
        let (port, progress) = (port.clone(), progress.clone());
        async move {
            progress.serving(port.rt.now());
            let mut response = respond(&port, &peer, request).await;
            let now = port.rt.now();
            if progress.is_over(now) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            progress.answered(now);
            Ok::<_, Infallible>(response)
        }
    });
    // hyper would take the date from the system's clock, past the simulation.
    hyper::server::conn::http1::Builder::new()
        .auto_date_header(false)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, answer)
        .await?;
    Ok(())
}

/// Why a connection ended that was not let in, or was broken off.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// The connection after its handshake, where the port has TLS: clients on loopback may do without.
async fn secured(
    port: &Port,
    (stream, address): (Stream, SocketAddr),
) -> Result<(Stream, Peer), tls::TlsError> {
    let Some(credentials) = &port.entrance.tls else {
        return Ok((stream, Peer { address, is_encrypted: false, is_certified: false }));
    };
    let (optional, limit) = (is_local(address), port.config.header_timeout);
    let accepted = tls::accept(&port.rt, stream, credentials, optional, limit).await?;
    let is_certified = accepted.certificate.is_some();
    Ok((accepted.stream, Peer { address, is_encrypted: accepted.encrypted, is_certified }))
}

/// Refuses a request that may come from a web page, or from a client that may not make it.
async fn allow(port: &Port, peer: &Peer, request: &Parts) -> Result<(), Answer> {
    let scheme = if peer.is_encrypted { "https" } else { "http" };
    let changes = guard::check(&port.config.access, scheme, request)?;
    port.entrance.admit(peer, changes, &request.headers).await
}

async fn respond(port: &Port, peer: &Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let Port { rt, config, .. } = port;
    let (request, body) = request.into_parts();
    let allowed = allow(port, peer, &request).await;
    let uri = &request.uri;
    let call = Call {
        method: request.method.as_str().to_owned(),
        path: percent_decode(uri.path()),
        query: parse_query(uri.query().unwrap_or_default()),
    };
    let answer = match allowed {
        Err(refused) => refused,
        Ok(()) => {
            let body = discard(body, config.body_bytes_max);
            match rt.timeout(config.header_timeout, body).await {
                Ok(Ok(())) => carry_out(port, call).await,
                Ok(Err(refused)) => refused,
                Err(_) => Answer::error(408, "the request's body did not arrive in time"),
            }
        }
    };
    // After a request that was not read to its end, the next one cannot be found.
    let closes = matches!(answer.status, 400 | 401 | 403 | 408 | 413);
    let mut response = Response::builder()
        .status(answer.status)
        .header(CONTENT_TYPE, answer.content_type)
        .header(X_CONTENT_TYPE_OPTIONS, "nosniff");
    if answer.status == 401 {
        response = response.header(WWW_AUTHENTICATE, "Basic realm=\"torc\", charset=\"UTF-8\"");
    }
    if closes {
        response = response.header(CONNECTION, "close");
    }
    response.body(Full::new(Bytes::from(answer.body))).expect("status and content type are valid")
}

/// The answer of the service. A client that goes, or a connection that is closed, ends a question and no operation.
async fn carry_out(port: &Port, call: Call) -> Answer {
    if !port.service.outlives_client(&call) {
        return port.service.call(call).await;
    }
    let operations_max = port.config.operations_max;
    let Some(operation) = port.connections.begin_operation(operations_max) else {
        return Answer::error(503, format!("{operations_max} operations are under way: wait for one to end"));
    };
    let work = port.service.call(call);
    let counted = async move {
        let answer = work.await;
        drop(operation);
        answer
    };
    port.rt.uncancelled(Group::Maintenance, counted).await
}

/// Reads a body and discards it.
async fn discard(mut body: Incoming, bytes_max: usize) -> Result<(), Answer> {
    let mut bytes = 0usize;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Answer::error(400, format!("the request's body cannot be read: {error}")))?;
        bytes = bytes.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        if bytes > bytes_max {
            return Err(Answer::error(413, format!("a request's body may have {bytes_max} bytes")));
        }
    }
    Ok(())
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
