//! One connection: a task that reads the available bytes, starts the requests in them and writes all answers that are ready
//! with one write.
//!
//! Memory is bounded at every step: a message is read no faster than its bytes come, long ones only after their length
//! is booked; requests wait when too many are under way or too many answers are unread; an idle connection holds no
//! buffer.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use rt::{LocalBoxFuture, Sleep, Stream};
use tls::{Accepted, PeerCertificate};
use wire::{
    CqlError, Decoder, Dialect, Direction, Encoder, Envelope, ErrorKind, Event, HEADER_LEN, Message, Opcode,
    ProtocolError, Rejection, Request, ResponseWriter, Startup, Version,
};

use crate::admission::{Charge, Kind, Room, Usage};
use crate::answers::Answers;
use crate::buffers::READ_BUFFER;
use crate::handshake::{Agreement, OPENING_MESSAGE_LEN_MAX, agree, kept_options, unexpected};
use crate::metrics::{add, count, subtract};
use crate::peers::Peer;
use crate::pending::{PendingRequests, poll_place};
use crate::shard::Shard;
use crate::{
    Client, ConnectionStage, SaslExchange, SaslStep, Statement, StatementMessage, StatementProcessor,
};

/// The stream id of events.
const EVENT_STREAM: i16 = -1;
/// Less room than this is not worth a read.
const READ_LEN_MIN: usize = 2 << 10;
/// The first byte: a CQL message's version, or the type of the first TLS record.
const TLS_HANDSHAKE: u8 = 22;
/// Between so many requests the task looks whether it has to yield.
const REQUESTS_BETWEEN_YIELDS: u32 = 8;
/// After an error the client gets so long to read it before the connection is closed.
const LINGER: std::time::Duration = std::time::Duration::from_secs(1);
/// The statements of a client that writes no more are carried on for so long: one that has half closed its connection still reads their answers, but
/// one that is gone looks the same, and a long aggregate would run for nobody.
const LEFT: std::time::Duration = std::time::Duration::from_secs(10);
/// So many further bytes of the client are dropped meanwhile.
const LINGER_BYTES_MAX: usize = 1 << 20;
/// While others wait for room, a long message and a client that reads must get on within this time.
const STALL_MAX: std::time::Duration = std::time::Duration::from_secs(2);
/// Less than this of a long message in that time is not getting on.
const PROGRESS_MIN: u64 = 64 << 10;
/// Fewer unwritten bytes are not booked.
const UNBOOKED_MAX: usize = READ_BUFFER;

/// The stage of a client.
enum Stage {
    /// Send OPTIONS and STARTUP.
    Opening,
    /// The role of the client's certificate is looked up; the answer to STARTUP waits for it.
    Certifying {
        client: Rc<Client>,
        stream: i16,
        agreement: Agreement,
        login: LocalBoxFuture<Result<String, CqlError>>,
    },
    /// Authentication is under way.
    Authenticating {
        client: Rc<Client>,
        exchange: Box<dyn SaslExchange>,
        step: Option<(i16, LocalBoxFuture<Result<SaslStep, CqlError>>)>,
    },
    /// Send statements.
    Ready(Rc<Client>),
}

/// Whether and how the connection ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It does not.
    Open,
    /// Nothing more is read; pending requests are finished and answered.
    Finishing,
    /// All is written; further bytes of the client are dropped, so that it can read the last answer: closing
    /// with unread bytes would take the answer away from it.
    Lingering { discarded: usize },
}

/// The purpose of the timer.
enum Timer {
    None,
    Handshake(Sleep),
    Message(MessageTimer),
    Idle(Sleep),
    Left(Sleep),
    Linger(Sleep),
}

/// The time that a long message has.
struct MessageTimer {
    sleep: Sleep,
    begun: rt::Instant,
    /// The bytes that the connection had read when the timer was last set.
    read: u64,
}

/// Why the requests in the buffer were not all begun.
#[derive(PartialEq, Eq)]
enum Stopped {
    /// They were.
    Exhausted,
    /// Too many are under way, too much is unread, or there is no room for more bytes.
    Blocked,
    /// Other tasks have to run.
    Yielded,
}

/// The result of a read.
enum Filled {
    Some,
    Nothing,
    End,
}

/// A connection and all that belongs to it.
pub(crate) struct Connection<P: StatementProcessor> {
    shard: Rc<Shard<P>>,
    stream: Stream,
    peer: Rc<Peer>,
    usage: Rc<Usage>,
    decoder: Decoder,
    encoder: Encoder,
    input: BytesMut,
    dialect: Dialect,
    stage: Stage,
    /// The names of the certificate that the client has shown, until it has sent STARTUP.
    certificate: Option<Box<PeerCertificate>>,
    throw_on_overload: bool,
    pending: PendingRequests<P::Processing>,
    /// Set while the connection is not read because of the bytes in flight.
    paused: Option<Room>,
    /// Its address's part of the bytes of answers.
    answers: Rc<Usage>,
    /// Answers that the client has not read.
    unwritten: Option<Charge>,
    /// Set while answers are unread; with it whether something was written since.
    unread: Option<Sleep>,
    has_written: bool,
    /// Bytes read since the connection began.
    read: u64,
    /// The reservation of a long message that is being received.
    incoming: Option<Charge>,
    timer: Timer,
    /// When the last request came; recorded only if idle connections are closed.
    active_at: rt::Instant,
    ending: Ending,
}

impl<P: StatementProcessor> Drop for Connection<P> {
    fn drop(&mut self) {
        subtract(&self.shard.metrics.requests_waiting, self.pending.len());
        self.shard.admission.leave(&self.usage);
        self.shard.answers.leave(&self.answers);
        self.shard.peers.leave(&self.peer);
    }
}

impl<P: StatementProcessor> Connection<P> {
    /// A connection that was just accepted.
    pub(crate) fn new(shard: Rc<Shard<P>>, accepted: Accepted, address: SocketAddr) -> Self {
        let Accepted { stream, encrypted, certificate } = accepted;
        let message_len_max = shard.config.native_transport_max_frame_size.min(OPENING_MESSAGE_LEN_MAX);
        let peer = shard.peers.enter(address, encrypted);
        let usage = shard.admission.enter(address.ip());
        let answers = shard.answers.enter(address.ip());
        let mut decoder = Decoder::new(Direction::Request, message_len_max);
        decoder.set_unpermitted_max(READ_BUFFER);
        Self {
            stream,
            peer,
            usage,
            decoder,
            encoder: Encoder::new(),
            input: BytesMut::new(),
            dialect: Dialect::new(Version::MAX),
            stage: Stage::Opening,
            certificate,
            throw_on_overload: false,
            pending: PendingRequests::new(),
            paused: None,
            answers,
            unwritten: None,
            unread: None,
            has_written: false,
            read: 0,
            incoming: None,
            timer: Timer::Handshake(shard.rt.sleep(shard.config.handshake_timeout)),
            active_at: shard.rt.now(),
            ending: Ending::Open,
            shard,
        }
    }

    /// Serves the client until the connection ends.
    pub(crate) async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.peer.set_waker(cx.waker());
        if self.peer.stopping.get() {
            self.finish();
        }
        if self.poll_timer(cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            self.poll_pending(cx);
            self.poll_certification(cx);
            self.poll_authentication(cx);
            self.send_events();
            let stopped = self.run_requests(cx);
            if self.poll_write(cx).is_err() || self.poll_unread(cx).is_ready() {
                return Poll::Ready(());
            }
            match stopped {
                Stopped::Yielded => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                // The write may have made room.
                Stopped::Blocked if self.may_run() => continue,
                Stopped::Blocked => break,
                Stopped::Exhausted => {}
            }
            if self.ending != Ending::Open {
                ready!(self.poll_ending(cx));
                return Poll::Ready(());
            }
            match self.poll_read(cx) {
                Ok(Filled::Some) if self.shard.rt.need_preempt() => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Filled::Some) => {}
                Ok(Filled::Nothing) => break,
                Ok(Filled::End) if self.pending.is_empty() && self.encoder.is_empty() => {
                    return Poll::Ready(());
                }
                // The client does not write any more, but it may still read.
                Ok(Filled::End) => {
                    self.ending = Ending::Finishing;
                    // Mostly it is gone, and nobody wants the answers.
                    self.timer = Timer::Left(self.shard.rt.sleep(LEFT));
                    let _ = self.poll_timer(cx);
                }
                Err(_) => return Poll::Ready(()),
            }
        }
        self.rest();
        Poll::Pending
    }

    /// Gives the buffers back that are not needed while the connection waits. The beginning of a message moves to a
    /// buffer of its size, so that a hundred thousand connections that each sent a byte cost nothing worth mentioning.
    fn rest(&mut self) {
        if let Some(buffer) = self.encoder.take_buffer()
            && buffer.capacity() > 0
        {
            self.shard.buffers.return_transport(buffer);
        }
        if self.input.is_empty() {
            if self.input.capacity() >= READ_BUFFER || self.input.try_reclaim(READ_BUFFER) {
                self.shard.buffers.return_transport(std::mem::take(&mut self.input));
            } else if self.input.capacity() < READ_LEN_MIN {
                // Queued requests hold the rest of the buffer. Where there is room left in it, the next requests
                // go there, so that they do not hold a buffer each.
                self.input = BytesMut::new();
            }
        } else if self.input.len() < self.input.capacity() / 4 {
            let begun = BytesMut::from(self.input.as_ref());
            let mut buffer = std::mem::replace(&mut self.input, begun);
            buffer.clear();
            self.shard.buffers.return_transport(buffer);
        }
    }

    /// Makes room in the input for the bytes of the socket.
    fn grow_input(&mut self) {
        let buffer = match self.input.capacity() < READ_BUFFER {
            true => self.shard.buffers.transport(),
            false => BytesMut::new(),
        };
        if buffer.capacity() - buffer.len() >= self.input.len() + READ_LEN_MIN {
            let begun = std::mem::replace(&mut self.input, buffer);
            self.input.extend_from_slice(&begun);
            return;
        }
        // Never much more than has arrived already, regardless of the length that the client promises.
        let missing = self.decoder.wanted().saturating_sub(self.input.len());
        self.input.reserve(missing.min(self.input.len()).max(READ_BUFFER));
    }

    /// Ready when the connection's time has passed.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let metrics = &self.shard.metrics;
        loop {
            let counter = match &mut self.timer {
                Timer::None => return Poll::Pending,
                Timer::Handshake(sleep) => {
                    ready!(Pin::new(sleep).poll(cx));
                    &metrics.handshake_timeouts
                }
                Timer::Message(timer) => {
                    ready!(Pin::new(&mut timer.sleep).poll(cx));
                    let now = self.shard.rt.now();
                    let advanced = self.read - timer.read >= PROGRESS_MIN;
                    let waits = self.paused.is_some();
                    // Waiting for room here is not the client's doing.
                    let begun = if waits { now } else { timer.begun };
                    let in_time = now < begun + self.shard.config.message_timeout;
                    if in_time && (waits || advanced || !self.shard.admission.is_waited_for()) {
                        let sleep = self.shard.rt.sleep(STALL_MAX);
                        self.timer = Timer::Message(MessageTimer { sleep, begun, read: self.read });
                        continue;
                    }
                    &metrics.message_timeouts
                }
                Timer::Left(sleep) => {
                    ready!(Pin::new(sleep).poll(cx));
                    &metrics.left_timeouts
                }
                Timer::Linger(sleep) => return Pin::new(sleep).poll(cx),
                Timer::Idle(sleep) => {
                    ready!(Pin::new(sleep).poll(cx));
                    let timeout = self.shard.config.native_transport_idle_timeout.unwrap_or_default();
                    let deadline = self.active_at + timeout;
                    if !self.pending.is_empty() || deadline > self.shard.rt.now() {
                        let later = deadline.max(self.shard.rt.now() + timeout / 2);
                        self.timer = Timer::Idle(self.shard.rt.sleep_until(later));
                        continue;
                    }
                    &metrics.idle_timeouts
                }
            };
            count(counter);
            return Poll::Ready(());
        }
    }

    /// The timer of a connection that is ready and has no long message under way.
    fn usual_timer(&self) -> Timer {
        match self.shard.config.native_transport_idle_timeout {
            Some(timeout) if !timeout.is_zero() => Timer::Idle(self.shard.rt.sleep(timeout)),
            _ => Timer::None,
        }
    }

    // Answers.

    fn writer(&self) -> ResponseWriter {
        ResponseWriter::with_buffer(self.dialect, self.shard.buffers.answer())
    }

    fn send(&mut self, stream: i16, response: ResponseWriter) {
        if response.opcode() == Opcode::Error {
            count(&self.shard.metrics.errors);
        }
        if self.encoder.needs_buffer() {
            self.encoder.give_buffer(self.shard.buffers.transport());
        }
        self.encoder.push(stream, &response);
        self.shard.buffers.return_answer(response.into_buffer());
    }

    fn send_with(&mut self, stream: i16, write: impl FnOnce(&mut ResponseWriter)) {
        let mut response = self.writer();
        write(&mut response);
        self.send(stream, response);
    }

    fn send_error(&mut self, stream: i16, error: &CqlError) {
        self.send_with(stream, |response| response.error(error));
    }

    /// Takes no more requests; pending ones are finished.
    fn finish(&mut self) {
        if self.ending == Ending::Open {
            self.ending = Ending::Finishing;
            self.input.clear();
        }
    }

    /// Sends the events that came for the client.
    fn send_events(&mut self) {
        if self.peer.overflowed.get() && self.ending == Ending::Open {
            count(&self.shard.metrics.event_overflows);
            self.finish();
        }
        while self.encoder.len() < self.shard.config.unwritten_bytes_max
            && self.ending == Ending::Open
            && let Some(event) = self.peer.next_event()
        {
            count(&self.shard.metrics.events);
            let event: &Event = &event;
            self.send_with(EVENT_STREAM, |response| response.event(event));
        }
    }

    /// Writes the buffered bytes.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), std::io::Error> {
        loop {
            let out = self.encoder.finish();
            if out.is_empty() {
                return Ok(());
            }
            let Poll::Ready(written) = self.stream.poll_write(cx, out)? else { return Ok(()) };
            if written == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.has_written = true;
            count(&self.shard.metrics.writes);
            add(&self.shard.metrics.bytes_written, written);
            if written == out.len() {
                out.clear();
            } else {
                out.advance(written);
            }
        }
    }

    /// Books the answers that the client has not read. Ready when it reads nothing while others wait for their room.
    fn poll_unread(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let bytes = self.encoder.len();
        if bytes <= UNBOOKED_MAX {
            (self.unwritten, self.unread) = (None, None);
            return Poll::Pending;
        }
        let answers = &self.shard.answers;
        match &mut self.unwritten {
            Some(charge) if charge.bytes() > bytes => charge.shrink(bytes),
            Some(charge) => charge.grow(bytes),
            none => *none = Some(answers.charge(&self.answers, bytes, Kind::Short)),
        }
        loop {
            let rt = &self.shard.rt;
            let sleep = self.unread.get_or_insert_with(|| rt.sleep(STALL_MAX));
            ready!(Pin::new(sleep).poll(cx));
            self.unread = None;
            if !std::mem::take(&mut self.has_written) && answers.is_waited_for() {
                count(&self.shard.metrics.unread_timeouts);
                return Poll::Ready(());
            }
        }
    }

    // Reading.

    /// Reads once, if there is room.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> std::io::Result<Filled> {
        if !self.book_incoming(cx) {
            return Ok(Filled::Nothing);
        }
        if self.input.capacity() - self.input.len() < READ_LEN_MIN {
            if self.stream.poll_read_ready(cx)?.is_pending() {
                return Ok(Filled::Nothing);
            }
            self.grow_input();
        }
        let read = match self.stream.poll_read_buf(cx, &mut self.input)? {
            Poll::Pending => return Ok(Filled::Nothing),
            Poll::Ready(0) => return Ok(Filled::End),
            Poll::Ready(read) => read,
        };
        count(&self.shard.metrics.reads);
        add(&self.shard.metrics.bytes_read, read);
        self.read += read as u64;
        Ok(Filled::Some)
    }

    /// Books the bytes of a long message before memory is taken for it; false when there is no room, in which case
    /// the connection is woken when there is. A promise alone books nothing: its first bytes must be here.
    fn book_incoming(&mut self, cx: &mut Context<'_>) -> bool {
        let needed = self.decoder.message_len().unwrap_or(0).max(self.decoder.wanted());
        if needed <= READ_BUFFER {
            self.incoming_done();
            return true;
        }
        if self.incoming.as_ref().is_some_and(|charge| charge.bytes() >= needed) {
            return true;
        }
        if !matches!(self.timer, Timer::Message(_)) && matches!(self.stage, Stage::Ready(_)) {
            self.timer = Timer::Message(self.message_timer());
            // The timer was just made: its first poll arms it.
            let _ = self.poll_timer(cx);
        }
        let here = self.input.len() + READ_LEN_MIN >= READ_BUFFER
            || self.decoder.is_inside_message()
            || self.decoder.awaits_permit(&self.input).is_some();
        if self.incoming.is_none() && !here {
            return true;
        }
        drop(self.incoming.take());
        let admission = &self.shard.admission;
        if !admission.is_overloaded(&self.usage, needed, Kind::Long) {
            self.incoming = Some(admission.charge(&self.usage, needed, Kind::Long));
            return true;
        }
        self.pause(needed, Kind::Long);
        self.poll_room(cx).is_ready()
    }

    fn message_timer(&self) -> MessageTimer {
        let rt = &self.shard.rt;
        MessageTimer { sleep: rt.sleep(STALL_MAX), begun: rt.now(), read: self.read }
    }

    /// The long message is complete, or refused; returns its reservation.
    fn incoming_done(&mut self) -> Option<Charge> {
        if matches!(self.timer, Timer::Message(_)) {
            self.timer = self.usual_timer();
        }
        self.incoming.take()
    }

    /// Has the connection wait for room.
    fn pause(&mut self, bytes: usize, kind: Kind) {
        count(&self.shard.metrics.reads_paused);
        self.paused = Some(self.shard.admission.wait(&self.usage, bytes, kind));
    }

    /// Ready when the connection does not wait for room (any more).
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(room) = &mut self.paused else { return Poll::Ready(()) };
        let charge = ready!(Pin::new(&mut *room).poll(cx));
        if room.kind() == Kind::Long {
            self.incoming = Some(charge);
            if let Timer::Message(_) = self.timer {
                self.timer = Timer::Message(self.message_timer());
                let _ = self.poll_timer(cx);
            }
        }
        self.paused = None;
        Poll::Ready(())
    }

    // Requests.

    /// Whether a request may be begun, the bytes in flight apart.
    fn may_run(&self) -> bool {
        self.ending == Ending::Open
            && self.paused.is_none()
            && self.pending.len() < self.shard.config.requests_per_connection_max
            && self.encoder.len() < self.shard.config.unwritten_bytes_max
            && !matches!(&self.stage, Stage::Authenticating { step: Some(_), .. } | Stage::Certifying { .. })
    }

    /// Begins the requests that are in the buffer.
    fn run_requests(&mut self, cx: &mut Context<'_>) -> Stopped {
        if self.ending == Ending::Open && self.poll_room(cx).is_pending() {
            return Stopped::Blocked;
        }
        let mut begun = 0;
        while self.may_run() {
            match self.decoder.next(&mut self.input) {
                None => match self.decoder.awaits_permit(&self.input) {
                    None => return Stopped::Exhausted,
                    Some(bytes) if self.book_incoming(cx) => self.decoder.permit(bytes),
                    Some(_) => return Stopped::Blocked,
                },
                Some(Ok(envelope)) => self.receive(envelope, cx),
                Some(Err(rejection)) => self.reject(rejection),
            }
            begun += 1;
            if begun % REQUESTS_BETWEEN_YIELDS == 0 && self.shard.rt.need_preempt() {
                return Stopped::Yielded;
            }
        }
        match self.ending {
            Ending::Open => Stopped::Blocked,
            Ending::Finishing | Ending::Lingering { .. } => Stopped::Exhausted,
        }
    }

    /// Answers a message that could not be cut out of the stream.
    fn reject(&mut self, rejection: Rejection) {
        count(&self.shard.metrics.protocol_errors);
        if let ProtocolError::UnsupportedVersion { version } = rejection.error
            && matches!(self.stage, Stage::Opening)
        {
            count(&self.shard.metrics.errors);
            if version == TLS_HANDSHAKE {
                self.shard.warn(
                    self.peer.address,
                    "it uses TLS, but this port does not (client_encryption_options)",
                );
            }
            self.encoder.push_version_refusal(version, rejection.stream);
            return self.finish();
        }
        if let (Stage::Opening, Some(version)) = (&self.stage, rejection.version) {
            self.dialect = Dialect::new(version);
        }
        let fatal = rejection.error.is_fatal();
        self.send_error(rejection.stream, &rejection.error.into());
        // Before the handshake is done nobody has a reason to send more after an error.
        if fatal || !matches!(self.stage, Stage::Ready(_)) {
            self.finish();
        }
    }

    fn receive(&mut self, envelope: Envelope, cx: &mut Context<'_>) {
        self.shard.metrics.count_request(envelope.opcode);
        if self.shard.config.native_transport_idle_timeout.is_some() {
            self.active_at = self.shard.rt.now();
        }
        match &self.stage {
            Stage::Ready(client) => {
                let client = Rc::clone(client);
                self.receive_ready(client, envelope, cx);
            }
            Stage::Opening => {
                // Nothing is agreed on yet: each message is answered in its own version.
                self.dialect = Dialect::new(envelope.version);
                self.receive_opening(&envelope, cx);
            }
            Stage::Authenticating { .. } => self.receive_authenticating(&envelope, cx),
            Stage::Certifying { .. } => unreachable!("nothing is read before STARTUP is answered"),
        }
    }

    /// Reads a request; answers one that cannot be read.
    fn decode(&mut self, envelope: &Envelope) -> Option<Request> {
        match Request::decode(envelope, self.dialect) {
            Ok(request) => Some(request),
            Err(error) => {
                count(&self.shard.metrics.protocol_errors);
                self.send_error(envelope.stream, &error.into());
                None
            }
        }
    }

    fn receive_opening(&mut self, envelope: &Envelope, cx: &mut Context<'_>) {
        match envelope.opcode {
            Opcode::Options => {
                let supported = self.shard.supported();
                self.send_with(envelope.stream, |response| response.supported(&supported));
            }
            Opcode::Startup => match self.decode(envelope).map(|request| request.message) {
                Some(Message::Startup(startup)) => self.start_up(envelope, &startup, cx),
                _ => self.finish(),
            },
            other => self.refuse(envelope.stream, &unexpected(other, "STARTUP or OPTIONS")),
        }
    }

    /// Answers with a protocol error that ends the connection.
    fn refuse(&mut self, stream: i16, error: &CqlError) {
        count(&self.shard.metrics.protocol_errors);
        self.send_error(stream, error);
        self.finish();
    }

    fn start_up(&mut self, envelope: &Envelope, startup: &Startup, cx: &mut Context<'_>) {
        let agreement = match agree(envelope.version, startup, self.shard.node.tablets) {
            Ok(agreement) => agreement,
            Err(error) => return self.refuse(envelope.stream, &error),
        };
        self.dialect = agreement.dialect;
        self.throw_on_overload = agreement.throw_on_overload;
        let options = kept_options(startup);
        let answers = Answers::new(&self.shard.answers, &self.answers);
        let client = Rc::new(
            Client::new(self.peer.id, self.peer.address, self.dialect, options).with_answers(answers),
        );
        *self.peer.client.borrow_mut() = Some(Rc::clone(&client));
        let authenticator = Rc::clone(&self.shard.authenticator);
        let certificate = self.certificate.take();
        if let Some(login) = authenticator.certified(self.peer.address, certificate.as_deref()) {
            let stream = envelope.stream;
            self.stage = Stage::Certifying { client, stream, agreement, login };
            self.peer.stage.set(ConnectionStage::Authenticating);
            return self.poll_certification(cx);
        }
        match authenticator.class() {
            None => {
                self.send_with(envelope.stream, ResponseWriter::ready);
                self.become_ready(client, cx);
            }
            Some(class) => {
                self.send_with(envelope.stream, |response| response.authenticate(class));
                let exchange = authenticator.begin(self.peer.address);
                self.stage = Stage::Authenticating { client, exchange, step: None };
                self.peer.stage.set(ConnectionStage::Authenticating);
            }
        }
        self.frame_as(&agreement);
    }

    /// The answer to STARTUP still lies bare; everything after it is framed and may be compressed.
    fn frame_as(&mut self, agreement: &Agreement) {
        self.encoder.agree(agreement.framing, agreement.compression);
        self.decoder.agree(self.dialect.version, agreement.framing, agreement.compression);
    }

    /// Answers STARTUP once the role of the client's certificate is known.
    fn poll_certification(&mut self, cx: &mut Context<'_>) {
        let Stage::Certifying { client, stream, agreement, login } = &mut self.stage else { return };
        let Poll::Ready(result) = login.as_mut().poll(cx) else { return };
        let (client, stream, agreement) = (Rc::clone(client), *stream, *agreement);
        match result {
            Ok(role) => {
                client.set_role(&role);
                self.send_with(stream, ResponseWriter::ready);
                self.become_ready(client, cx);
            }
            Err(error) => {
                count(&self.shard.metrics.authentication_failures);
                self.stage = Stage::Opening;
                self.send_error(stream, &error);
                self.finish();
            }
        }
        self.frame_as(&agreement);
    }

    fn become_ready(&mut self, client: Rc<Client>, cx: &mut Context<'_>) {
        self.stage = Stage::Ready(client);
        self.peer.stage.set(ConnectionStage::Ready);
        self.decoder.set_message_len_max(self.shard.config.native_transport_max_frame_size);
        self.timer = self.usual_timer();
        let _ = self.poll_timer(cx);
    }

    fn receive_authenticating(&mut self, envelope: &Envelope, cx: &mut Context<'_>) {
        if envelope.opcode != Opcode::AuthResponse {
            return self.refuse(envelope.stream, &unexpected(envelope.opcode, "AUTH_RESPONSE"));
        }
        let Some(Message::AuthResponse(response)) = self.decode(envelope).map(|request| request.message)
        else {
            return self.finish();
        };
        if let Stage::Authenticating { exchange, step, .. } = &mut self.stage {
            *step = Some((envelope.stream, exchange.step(response.token)));
            self.poll_authentication(cx);
        }
    }

    /// Continues a step of authentication that had to wait.
    fn poll_authentication(&mut self, cx: &mut Context<'_>) {
        let Stage::Authenticating { client, step, .. } = &mut self.stage else { return };
        let Some((stream, future)) = step else { return };
        let Poll::Ready(result) = future.as_mut().poll(cx) else { return };
        let stream = *stream;
        *step = None;
        match result {
            Ok(SaslStep::Challenge(token)) => {
                self.send_with(stream, |response| response.auth_challenge(Some(&token)));
            }
            Ok(SaslStep::Success { user, token }) => {
                client.set_role(&user);
                let client = Rc::clone(client);
                self.send_with(stream, |response| response.auth_success(token.as_deref()));
                self.become_ready(client, cx);
            }
            Err(error) => {
                count(&self.shard.metrics.authentication_failures);
                self.send_error(stream, &error);
                self.finish();
            }
        }
    }

    /// Whether requests that find no room are refused, and do not wait.
    fn sheds_load(&self, client: &Client) -> bool {
        self.shard.processor.sheds_load(client).unwrap_or(self.throw_on_overload)
    }

    fn receive_ready(&mut self, client: Rc<Client>, envelope: Envelope, cx: &mut Context<'_>) {
        client.requests.set(client.requests.get() + 1);
        let stream = envelope.stream;
        let bytes = HEADER_LEN + envelope.body.len();
        let is_booked = bytes > READ_BUFFER || self.incoming.is_some();
        let mut booked = if is_booked { self.incoming_done() } else { None };
        let unbooked = bytes.saturating_sub(booked.as_ref().map_or(0, Charge::bytes));
        let overloaded =
            unbooked > 0 && self.shard.admission.is_overloaded(&self.usage, unbooked, Kind::Short);
        if overloaded && self.sheds_load(&client) && self.shard.admission.must_refuse(&self.usage, unbooked) {
            count(&self.shard.metrics.overloaded);
            let message = "Request breached limit on bytes in flight. Server is currently in an overloaded state \
                           and cannot accept more requests.";
            return self.send_error(stream, &CqlError::new(ErrorKind::Overloaded, message));
        }
        if let Some(charge) = &mut booked {
            charge.grow(bytes);
        }
        let Some(Request { tracing, custom_payload, message }) = self.decode(&envelope) else { return };
        let message = match message {
            Message::Query(query) => StatementMessage::Query(query),
            Message::Execute(execute) => StatementMessage::Execute(execute),
            Message::Prepare(prepare) => StatementMessage::Prepare(prepare),
            Message::Batch(batch) => StatementMessage::Batch(batch),
            Message::Options => {
                let supported = self.shard.supported();
                return self.send_with(stream, |response| response.supported(&supported));
            }
            Message::Register(register) => {
                let mut registered = self.peer.registered.borrow_mut();
                for event in register.events {
                    if !registered.contains(&event) {
                        registered.push(event);
                    }
                }
                drop(registered);
                return self.send_with(stream, ResponseWriter::ready);
            }
            Message::Startup(_) => {
                let message = "Unexpected message STARTUP, the connection is already initialized";
                count(&self.shard.metrics.protocol_errors);
                return self.send_error(stream, &CqlError::new(ErrorKind::ProtocolError, message));
            }
            Message::AuthResponse(_) => {
                count(&self.shard.metrics.protocol_errors);
                return self.send_error(stream, &unexpected(Opcode::AuthResponse, "a statement"));
            }
        };
        let statement = Statement { tracing, custom_payload, message };
        if !self.answer_now(&client, stream, &statement) {
            self.begin(client, stream, statement, (bytes, booked), cx);
        }
        if overloaded {
            // This one was still taken; the next has to wait until there is room.
            self.pause(0, Kind::Short);
            let _ = self.poll_room(cx);
        }
    }

    /// Answers a statement that has nothing to wait for; false when it is to be begun.
    fn answer_now(&mut self, client: &Client, stream: i16, statement: &Statement) -> bool {
        let StatementMessage::Execute(execute) = &statement.message else { return false };
        if statement.tracing || !client.has_answer_room() {
            return false;
        }
        let mut response = self.writer();
        let is_answered = self.shard.processor.process_now(client, execute, &mut response);
        match is_answered {
            true => self.send(stream, response),
            false => self.shard.buffers.return_answer(response.into_buffer()),
        }
        is_answered
    }

    /// Polls a statement once in place; it is stored only if it has to wait.
    fn begin(
        &mut self,
        client: Rc<Client>,
        stream: i16,
        statement: Statement,
        (bytes, booked): (usize, Option<Charge>),
        cx: &mut Context<'_>,
    ) {
        let processing = self.shard.processor.process(client, statement, self.writer());
        let mut place = self.shard.places.put(processing);
        match poll_place(&mut place, cx) {
            Poll::Ready(response) => {
                self.shard.places.free(place);
                self.send(stream, response);
            }
            Poll::Pending => {
                count(&self.shard.metrics.requests_waiting);
                let mut charge =
                    booked.unwrap_or_else(|| self.shard.admission.charge(&self.usage, bytes, Kind::Short));
                charge.shrink(bytes);
                self.pending.push(stream, place, charge);
            }
        }
    }

    /// Answers the requests that had to wait and are done now.
    fn poll_pending(&mut self, cx: &mut Context<'_>) {
        if self.pending.is_empty() {
            return;
        }
        let mut pending = std::mem::replace(&mut self.pending, PendingRequests::new());
        let shard = Rc::clone(&self.shard);
        let done = pending.poll(cx, &shard.places, |stream, response| {
            self.send(stream, response);
            if shard.rt.need_preempt() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        subtract(&shard.metrics.requests_waiting, done);
        self.pending = pending;
    }

    // The end.

    /// Finishes pending requests, then waits a little for the client to read. Ready when the connection can be
    /// closed.
    fn poll_ending(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ending == Ending::Finishing {
            if !self.pending.is_empty() || !self.encoder.is_empty() {
                return Poll::Pending;
            }
            if ready!(self.stream.poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            self.ending = Ending::Lingering { discarded: 0 };
            self.timer = Timer::Linger(self.shard.rt.sleep(LINGER));
            if self.poll_timer(cx).is_ready() {
                return Poll::Ready(());
            }
        }
        let Ending::Lingering { discarded } = &mut self.ending else { return Poll::Pending };
        self.input.clear();
        self.input.reserve(READ_LEN_MIN);
        while *discarded < LINGER_BYTES_MAX {
            match ready!(self.stream.poll_read_buf(cx, &mut self.input)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(read) => *discarded += read,
            }
            self.input.clear();
        }
        Poll::Ready(())
    }
}
