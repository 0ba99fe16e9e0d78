//! One connection: HTTP/1.1 with hyper over the shard's stream, requests one after the other, within limits of bytes and time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use exec::backend::Coordinator;
use http_body_util::{BodyExt, Full};
use http1::{Activity, Io};
use hyper::body::{Body, Incoming};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use rt::{Instant, Rt, Stream};

use crate::encoding::{Encoding, packed};
use crate::operations::names::of_target;
use crate::secure::Transport;
use crate::signature::Signed;
use crate::{Answer, ApiError, Dynamo, ErrorKind};

/// Bytes of a request's header, and hyper's buffer of a connection.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Lines of a request's header.
const HEADERS_MAX: usize = 100;

/// The content type of answers.
const JSON: &str = "application/x-amz-json-1.0";

/// Limits of the ports, each of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Connections at once; beyond them idle ones are closed for new ones.
    pub connections_max: usize,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Bytes of the bodies of all requests under way; one client address may have half.
    pub bytes_in_flight_max: usize,
    /// How long the handshake of TLS may take.
    pub handshake_timeout: Duration,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long a connection may stand still: without a request, with a part of a header, or with an answer that its client does not
    /// take.
    pub idle_timeout: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            body_bytes_max: 16 << 20,
            bytes_in_flight_max: 64 << 20,
            handshake_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// The bytes of requests under way on this shard, in all and of each client address.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    total: Cell<usize>,
    of_address: RefCell<BTreeMap<IpAddr, usize>>,
}

impl InFlight {
    pub(crate) fn bytes(&self) -> usize {
        self.total.get()
    }

    /// Bytes that a request of this client may take, of which it has none yet.
    fn book(&self, address: IpAddr) -> Booking<'_> {
        Booking { of: self, address, bytes: 0 }
    }
}

/// Bytes that a request has of them.
struct Booking<'a> {
    of: &'a InFlight,
    address: IpAddr,
    bytes: usize,
}

impl Booking<'_> {
    /// Takes so many bytes in all, unless there are too many. One address may have a half: bodies that do not end would keep all other
    /// clients out.
    fn raise(&mut self, bytes: usize, max: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let mut of_address = self.of.of_address.borrow_mut();
        let own = of_address.get(&self.address).copied().unwrap_or(0);
        // A single request of the largest size is always possible.
        let exceeds = |held: usize, max: usize| held > self.bytes && held.saturating_add(more) > max;
        if exceeds(self.of.total.get(), max) || exceeds(own, max / 2) {
            return false;
        }
        of_address.insert(self.address, own + more);
        self.of.total.set(self.of.total.get() + more);
        self.bytes += more;
        true
    }
}

impl Drop for Booking<'_> {
    fn drop(&mut self) {
        self.of.total.set(self.of.total.get() - self.bytes);
        let mut of_address = self.of.of_address.borrow_mut();
        if let Some(own) = of_address.get_mut(&self.address) {
            *own -= self.bytes;
            if *own == 0 {
                of_address.remove(&self.address);
            }
        }
    }
}

/// When a connection moved last, and whether it carries out a request.
pub(crate) struct Progress {
    since: Cell<Instant>,
    serving: Cell<bool>,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: Cell::new(now), serving: Cell::new(false) }
    }

    /// When it moved last.
    pub(crate) fn since(&self) -> Instant {
        self.since.get()
    }

    /// Whether a request is being carried out.
    pub(crate) fn is_serving(&self) -> bool {
        self.serving.get()
    }
}

impl Activity for Progress {
    /// A request that arrives byte by byte does not keep its connection.
    fn read(&self, _: Instant) {}

    fn wrote(&self, now: Instant) {
        self.since.set(now);
    }
}

/// The state that all connections of a shard share.
pub(crate) struct Service<C> {
    pub(crate) rt: Rt,
    pub(crate) dynamo: Dynamo<C>,
    pub(crate) limits: HttpLimits,
    pub(crate) in_flight: InFlight,
}

/// Serves a connection to its end, or until it stands still for too long.
pub(crate) async fn serve<C: Coordinator>(
    service: Rc<Service<C>>,
    (stream, transport): (Stream, Transport),
    progress: Rc<Progress>,
) {
    let rt = service.rt.clone();
    progress.since.set(rt.now());
    let idle = service.limits.idle_timeout;
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let address = stream.peer_addr().unwrap_or(nowhere);
    let io = Io::new(rt.clone(), stream, progress.clone());
    let counted = progress.clone();
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, progress) = (service.clone(), counted.clone());
        async move {
            progress.serving.set(true);
            let response = respond(&service, request, (transport, address)).await;
            progress.serving.set(false);
            progress.since.set(service.rt.now());
            Ok::<_, Infallible>(response)
        }
    });
    // hyper would take the date from the system's clock, past the simulation.
    let connection = hyper::server::conn::http1::Builder::new()
        .auto_date_header(false)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, answer);
    let mut connection = pin!(connection);
    let mut timer = rt.sleep_until(progress.since.get() + idle);
    poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            if let Err(error) = ended {
                tracing::debug!("a connection of the DynamoDB API ended: {error}");
            }
            return Poll::Ready(());
        }
        while Pin::new(&mut timer).poll(cx).is_ready() {
            let deadline = progress.since.get() + idle;
            if !progress.is_serving() && rt.now() >= deadline {
                return Poll::Ready(());
            }
            timer = rt.sleep_until(deadline.max(rt.now() + Duration::from_secs(1)));
        }
        Poll::Pending
    })
    .await;
}

async fn respond<C: Coordinator>(
    service: &Service<C>,
    request: Request<Incoming>,
    (transport, address): (Transport, SocketAddr),
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    if transport == Transport::Misdirected {
        let text = "This port takes TLS and nothing else: the endpoint's URL has to begin with https://";
        service.dynamo.metrics().count(|figures| figures.total_operations += 1);
        let answer = service.dynamo.refused(&ApiError::validation(text));
        return response(service, (answer.status, JSON), answer.body.into_bytes(), false, true);
    }
    if let Err(error) = service.dynamo.check_page(&head) {
        service.dynamo.metrics().count(|figures| figures.total_operations += 1);
        let answer = service.dynamo.refused(&error);
        return response(service, (403, JSON), answer.body.into_bytes(), false, true);
    }
    if head.method == Method::GET && matches!(head.uri.path(), "/" | "/healthz") {
        // The health check of load balancers.
        let host = header(&head.headers, "host").unwrap_or_default();
        let body = format!("healthy: {host}").into_bytes();
        return response(service, (200, "text/plain"), body, false, false);
    }
    service.dynamo.metrics().count(|figures| figures.total_operations += 1);
    let mut booking = service.in_flight.book(address.ip());
    let read = read_body(service, body, &mut booking);
    let (answer, closes) = match service.rt.timeout(service.limits.body_timeout, read).await {
        Ok(Ok(body)) => (carry_out(service, &head, (body, address), &mut booking).await, false),
        Ok(Err(error)) => (service.dynamo.refused(&error), true),
        Err(_) => (
            service.dynamo.refused(&ApiError::new(
                ErrorKind::Serialization,
                "The request's body did not arrive in time",
            )),
            true,
        ),
    };
    let body = answer.body.into_bytes();
    let kind = (answer.status, JSON);
    match packed(&body, header(&head.headers, "accept-encoding")).await {
        Some(packed) => response(service, kind, packed, true, closes),
        None => response(service, kind, body, false, closes),
    }
}

async fn carry_out<C: Coordinator>(
    service: &Service<C>,
    head: &Parts,
    (body, address): (Bytes, SocketAddr),
    booking: &mut Booking<'_>,
) -> Answer {
    let headers = &head.headers;
    let target = header(headers, "x-amz-target").and_then(of_target);
    match target {
        Some(operation) if head.method == Method::POST => {
            let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
            let signed = Signed { method: head.method.as_str(), path, query, headers, body: &body };
            // A body is signed as it was sent, and unpacked for its signer.
            let role = match service.dynamo.signer(&signed, address) {
                Ok(role) => role,
                Err(refused) => {
                    Box::pin(service.dynamo.audit_refused(operation, address, &refused)).await;
                    return service.dynamo.refused(&refused.error);
                }
            };
            match unpacked(service, headers, body, booking).await {
                Ok(body) => {
                    let host = header(headers, "host").unwrap_or_default();
                    let from = (host, Some(address));
                    service.dynamo.answer(operation, &body, from, role.as_deref()).await
                }
                Err(error) => service.dynamo.refused(&error),
            }
        }
        _ => {
            service.dynamo.metrics().count(|figures| figures.unsupported_operations += 1);
            service.dynamo.refused(&ApiError::new(ErrorKind::UnknownOperation, ""))
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn too_large(limits: &HttpLimits) -> ApiError {
    ApiError::validation(format!("The request's body has more than {} bytes", limits.body_bytes_max))
}

fn busy<C: Coordinator>(service: &Service<C>) -> ApiError {
    service.dynamo.metrics().count(|figures| figures.requests_shed += 1);
    let text = "Too many bytes of requests are under way on this node; try again";
    ApiError::new(ErrorKind::RequestLimitExceeded, text)
}

/// The body without its `Content-Encoding`.
async fn unpacked<C: Coordinator>(
    service: &Service<C>,
    headers: &HeaderMap,
    body: Bytes,
    booking: &mut Booking<'_>,
) -> Result<Bytes, ApiError> {
    let (limits, packed) = (&service.limits, body.len());
    let encoding = Encoding::of_request(header(headers, "content-encoding"))?;
    let grow = |len: usize| {
        if len > limits.body_bytes_max {
            return Err(too_large(limits));
        }
        match booking.raise(packed + len, limits.bytes_in_flight_max) {
            true => Ok(()),
            false => Err(busy(service)),
        }
    };
    encoding.unpack(body, grow).await
}

async fn read_body<C: Coordinator>(
    service: &Service<C>,
    mut body: Incoming,
    booking: &mut Booking<'_>,
) -> Result<Bytes, ApiError> {
    let limits = &service.limits;
    let too_large = || too_large(limits);
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limits.body_bytes_max {
        return Err(too_large());
    }
    // A body is paid for as it arrives: an announcement costs a client nothing.
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| ApiError::new(ErrorKind::Serialization, "The request's body cannot be read"))?;
        let Some(data) = frame.data_ref() else { continue };
        let bytes = read.len() + data.len();
        if bytes > limits.body_bytes_max {
            return Err(too_large());
        }
        if !booking.raise(bytes, limits.bytes_in_flight_max) {
            return Err(busy(service));
        }
        read.extend_from_slice(data);
    }
    Ok(read.freeze())
}

#[expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "the index has five bits, and this node makes the headers"
)]
fn response<C>(
    service: &Service<C>,
    (status, content_type): (u16, &'static str),
    body: Vec<u8>,
    is_packed: bool,
    closes: bool,
) -> Response<Full<Bytes>> {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";
    let mut random = [0; 52];
    service.rt.fill_random(&mut random);
    let id: String = random.iter().map(|byte| char::from(DIGITS[usize::from(byte & 31)])).collect();
    let mut response = Response::builder()
        .status(status)
        .header(hyper::header::CONTENT_TYPE, content_type)
        .header("x-amzn-RequestId", id)
        // Of the bytes that are sent, packed or not.
        .header("x-amz-crc32", crc32fast::hash(&body).to_string());
    if is_packed {
        response = response.header(hyper::header::CONTENT_ENCODING, "gzip");
    }
    if closes {
        response = response.header(hyper::header::CONNECTION, "close");
    }
    response.body(Full::new(Bytes::from(body))).expect("status and headers are valid")
}
