//! One connection: HTTP/1.1 with hyper over the shard's stream, requests one after the other, within limits of bytes and time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use exec::backend::Coordinator;
use http_body_util::BodyExt;
use http1::{Activity, Io};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, DATE, EXPECT, HOST, HeaderName, HeaderValue,
};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use rt::{Instant, Rt, Stream};

use crate::cors;
use crate::encoding::{Encoding, packed};
use crate::http_date::DateHeader;
use crate::operations::names::of_target;
use crate::secure::Transport;
use crate::signature::Signed;
use crate::{Answer, ApiError, Dynamo, ErrorKind};

/// Bytes of a request's header, and hyper's buffer of a connection.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Lines of an answer's header at most, but for those that pages get.
const HEADERS_OF_ANSWERS: usize = 6;
/// Lines of a request's header.
const HEADERS_MAX: usize = 100;

/// Bytes of an answer that are given to hyper at once.
const SENT_AT_ONCE: usize = 64 << 10;
/// Answers of at most so many bytes are given however many bytes of others are not taken yet.
pub(crate) const SMALL_ANSWER_BYTES: usize = 1 << 20;

/// The header with the operation.
const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
/// Headers of answers.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-crc32");

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
    /// Bytes of the answers that their clients have not taken yet; one client address may have half. Answers up to
    /// [`SMALL_ANSWER_BYTES`] are always given: those of writes, which are carried out.
    pub answer_bytes_max: usize,
    /// The bytes of an answer that its client takes in a second, at least: it has the idle timeout and so long for the whole of it.
    pub answer_bytes_a_second_min: usize,
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
            answer_bytes_max: 256 << 20,
            answer_bytes_a_second_min: 64 << 10,
            handshake_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// The bytes of requests under way on this shard, or of answers, in all and of each client address.
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
    fn book(self: &Rc<Self>, address: IpAddr) -> Booking {
        Booking { of: self.clone(), address, bytes: 0 }
    }
}

/// Bytes that a request or an answer has of them.
struct Booking {
    of: Rc<InFlight>,
    address: IpAddr,
    bytes: usize,
}

impl Booking {
    /// Takes so many bytes in all, unless there are too many. One address may have a half: bodies that do not end would keep all other
    /// clients out.
    fn raise(&mut self, bytes: usize, max: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let own = self.of.of_address.borrow().get(&self.address).copied().unwrap_or(0);
        // A single request of the largest size is always possible.
        let exceeds = |held: usize, max: usize| held > self.bytes && held.saturating_add(more) > max;
        if exceeds(self.of.total.get(), max) || exceeds(own, max / 2) {
            return false;
        }
        self.add(more);
        true
    }

    /// Gives back the bytes beyond so many.
    fn lower(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.of.total.set(self.of.total.get() - less);
        self.bytes -= less;
        let mut of_address = self.of.of_address.borrow_mut();
        if let Some(own) = of_address.get_mut(&self.address) {
            *own -= less;
            if *own == 0 {
                of_address.remove(&self.address);
            }
        }
    }

    /// Takes so many bytes more, however many there are.
    fn add(&mut self, more: usize) {
        *self.of.of_address.borrow_mut().entry(self.address).or_default() += more;
        self.of.total.set(self.of.total.get() + more);
        self.bytes += more;
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.lower(0);
    }
}

/// The body of an answer that is being sent. Its bytes are booked until the last of them are on their way.
struct Sent {
    left: Bytes,
    _booking: Booking,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(match self.left.len() {
            0 => None,
            1..=SENT_AT_ONCE => Some(Ok(Frame::data(std::mem::take(&mut self.left)))),
            _ => {
                // A copy: a part of the whole would keep all of it in memory for as long as the client does not take this part.
                let part = self.left.split_to(SENT_AT_ONCE);
                Some(Ok(Frame::data(Bytes::copy_from_slice(&part))))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

/// When a connection moved last, and whether it carries out a request.
pub(crate) struct Progress {
    since: Cell<Instant>,
    serving: Cell<bool>,
    /// When the client has to have taken the whole of the last answer.
    taken_by: Cell<Option<Instant>>,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: Cell::new(now), serving: Cell::new(false), taken_by: Cell::new(None) }
    }

    /// When it moved last.
    pub(crate) fn since(&self) -> Instant {
        self.since.get()
    }

    /// When the connection ends unless it moves, with this timeout. A client that takes an answer byte by byte does not keep it for long.
    fn deadline(&self, idle: Duration) -> Instant {
        let idle = self.since.get() + idle;
        self.taken_by.get().map_or(idle, |taken_by| taken_by.min(idle))
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
    pub(crate) in_flight: Rc<InFlight>,
    pub(crate) answers: Rc<InFlight>,
    pub(crate) date: DateHeader,
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
            progress.taken_by.set(None);
            let response = respond(&service, request, (transport, address)).await;
            progress.serving.set(false);
            let (now, limits) = (service.rt.now(), &service.limits);
            let seconds = response.body().left.len() / limits.answer_bytes_a_second_min.max(1);
            progress.since.set(now);
            progress.taken_by.set(Some(now + limits.idle_timeout + Duration::from_secs(seconds as u64)));
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
            let deadline = progress.deadline(idle);
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
    from: (Transport, SocketAddr),
) -> Response<Sent> {
    // A page that can sign may be of any origin.
    let granted = match service.dynamo.settings().enforces_authorization {
        true => cors::granted(request.method(), request.headers()),
        false => HeaderMap::new(),
    };
    let mut response = answered(service, request, from).await;
    if !granted.is_empty() {
        response.headers_mut().extend(granted);
    }
    response
}

async fn answered<C: Coordinator>(
    service: &Service<C>,
    request: Request<Incoming>,
    (transport, address): (Transport, SocketAddr),
) -> Response<Sent> {
    let (head, body) = request.into_parts();
    if transport == Transport::Misdirected {
        let text = "This port takes TLS and nothing else: the endpoint's URL has to begin with https://";
        service.dynamo.metrics().count(|figures| figures.total_operations += 1);
        let answer = service.dynamo.refused(&ApiError::validation(text));
        let body = (answer.body.into_bytes(), service.answers.book(address.ip()));
        return response(service, (answer.status, JSON), body, Encoding::Identity, true);
    }
    if let Err(error) = service.dynamo.check_page(&head) {
        service.dynamo.metrics().count(|figures| figures.total_operations += 1);
        let answer = service.dynamo.refused(&error);
        let body = (answer.body.into_bytes(), service.answers.book(address.ip()));
        return response(service, (403, JSON), body, Encoding::Identity, true);
    }
    if let Some((content_type, text)) = of_no_operation(service, &head) {
        let body = (text.into_bytes(), service.answers.book(address.ip()));
        return response(service, (200, content_type), body, Encoding::Identity, false);
    }
    service.dynamo.metrics().count(|figures| figures.total_operations += 1);
    let mut booking = service.in_flight.book(address.ip());
    let read = read_body(service, &head.headers, body, &mut booking);
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
    drop(booking);
    // Before it is packed, which may take several turns.
    let mut booking = service.answers.book(address.ip());
    let len = answer.body.len();
    let is_booked = booking.raise(len, service.limits.answer_bytes_max);
    let answer = match is_booked || len <= SMALL_ANSWER_BYTES {
        true => answer,
        false => service.dynamo.refused(&busy(service)),
    };
    let body = answer.body.into_bytes();
    let kind = (answer.status, JSON);
    let compression = service.dynamo.settings().compression;
    match packed(&body, header(&head.headers, ACCEPT_ENCODING), compression).await {
        Some((packed, encoding)) => response(service, kind, (packed, booking), encoding, closes),
        None => response(service, kind, (body, booking), Encoding::Identity, closes),
    }
}

/// The content type and text of the answer to a request that is of no operation and needs no signature.
fn of_no_operation<C: Coordinator>(service: &Service<C>, head: &Parts) -> Option<(&'static str, String)> {
    match (&head.method, head.uri.path()) {
        // The health check of load balancers.
        (&Method::GET, "/" | "/healthz") => {
            let host = header(&head.headers, HOST).unwrap_or_default();
            Some(("text/plain", format!("healthy: {host}")))
        }
        (&Method::GET, "/localnodes") => {
            let query = head.uri.query().unwrap_or_default();
            Some(("application/json", service.dynamo.local_nodes(query)))
        }
        // A preflight, whose answer is its headers; and load balancers that ask whether the node is there.
        (&Method::OPTIONS | &Method::HEAD, "/") => Some(("text/plain", String::new())),
        _ => None,
    }
}

async fn carry_out<C: Coordinator>(
    service: &Service<C>,
    head: &Parts,
    (body, address): (Bytes, SocketAddr),
    booking: &mut Booking,
) -> Answer {
    let headers = &head.headers;
    let target = header(headers, TARGET).and_then(of_target);
    match target {
        Some(operation) if head.method == Method::POST => {
            let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
            let signed = Signed { method: head.method.as_str(), path, query, headers, body: &body };
            // A body is signed as it was sent, and unpacked for its signer.
            let role = match service.dynamo.signer(&signed, address).await {
                Ok(role) => role,
                Err(refused) => {
                    Box::pin(service.dynamo.audit_refused(operation, address, &refused)).await;
                    return service.dynamo.refused(&refused.error);
                }
            };
            match unpacked(service, headers, body, booking).await {
                Ok(body) => {
                    let host = header(headers, HOST).unwrap_or_default();
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

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn too_large(limits: &HttpLimits) -> ApiError {
    let text = format!("Request content length limit of {} bytes exceeded", limits.body_bytes_max);
    ApiError::new(ErrorKind::PayloadTooLarge, text)
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
    booking: &mut Booking,
) -> Result<Bytes, ApiError> {
    let (limits, packed) = (&service.limits, body.len());
    let encoding = Encoding::of_request(header(headers, CONTENT_ENCODING))?;
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
    headers: &HeaderMap,
    mut body: Incoming,
    booking: &mut Booking,
) -> Result<Bytes, ApiError> {
    let max = service.limits.body_bytes_max;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let discarded_max = max.saturating_mul(2);
    if announced > max && (announced > discarded_max || headers.contains_key(EXPECT)) {
        return Err(too_large(&service.limits));
    }
    let read = collected(service, &mut body, booking).await;
    if read.as_ref().is_err_and(|error| error.kind == ErrorKind::PayloadTooLarge) {
        booking.lower(0);
        let discard = discard(&mut body, discarded_max);
        let _ = service.rt.timeout(DISCARD_TIME.min(service.limits.body_timeout), discard).await;
    }
    read
}

/// How long a body that is too large is read so that its client sees the answer.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// Reads at most so many bytes: a client that sends all of its request before it reads would not see an answer that comes earlier.
async fn discard(body: &mut Incoming, mut left: usize) {
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(fewer) => left = fewer,
            None => return,
        }
    }
}

async fn collected<C: Coordinator>(
    service: &Service<C>,
    body: &mut Incoming,
    booking: &mut Booking,
) -> Result<Bytes, ApiError> {
    let limits = &service.limits;
    if usize::try_from(body.size_hint().lower()).is_ok_and(|announced| announced > limits.body_bytes_max) {
        return Err(too_large(limits));
    }
    // A body is paid for as it arrives: an announcement costs a client nothing.
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| ApiError::new(ErrorKind::Serialization, "The request's body cannot be read"))?;
        let Some(data) = frame.data_ref() else { continue };
        let bytes = read.len() + data.len();
        if bytes > limits.body_bytes_max {
            return Err(too_large(limits));
        }
        if !booking.raise(bytes, limits.bytes_in_flight_max) {
            return Err(busy(service));
        }
        if read.is_empty() && body.is_end_stream() {
            // All of it came at once.
            return Ok(data.clone());
        }
        read.extend_from_slice(data);
    }
    Ok(read.freeze())
}

#[expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "the index has five bits, and this node makes the status and the headers"
)]
fn response<C>(
    service: &Service<C>,
    (status, content_type): (u16, &'static str),
    (body, mut booking): (Vec<u8>, Booking),
    encoding: Encoding,
    closes: bool,
) -> Response<Sent> {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";
    let mut id = [0; 52];
    service.rt.fill_random(&mut id);
    for byte in &mut id {
        *byte = DIGITS[usize::from(*byte & 31)];
    }
    let mut headers = HeaderMap::with_capacity(HEADERS_OF_ANSWERS);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(REQUEST_ID, HeaderValue::from_bytes(&id).expect("it has digits and letters alone"));
    headers.insert(DATE, service.date.at(service.rt.wall_micros().div_euclid(1_000_000)));
    // Of the bytes that are sent, packed or not.
    headers.insert(CHECKSUM, crc32fast::hash(&body).into());
    if let Some(name) = encoding.name() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    if closes {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    // The bytes that are sent, which may be fewer or more than those that were booked.
    booking.add(body.len().saturating_sub(booking.bytes));
    booking.lower(body.len());
    let body = Sent { left: Bytes::from(body), _booking: booking };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("a status of HTTP");
    *response.headers_mut() = headers;
    response
}
