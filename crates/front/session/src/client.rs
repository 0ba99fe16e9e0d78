//! The client at the other end of a connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use wire::Dialect;

use crate::answers::{AnswerBooking, Answers};

/// A client that is connected: the state on which its statements depend beside their text.
#[derive(Debug)]
pub struct Client {
    /// Number of the connection on its shard.
    pub id: u64,
    /// The client's address.
    pub address: SocketAddr,
    /// Protocol version and extensions.
    pub dialect: Dialect,
    /// `DRIVER_NAME` of STARTUP.
    pub driver_name: Option<String>,
    /// `DRIVER_VERSION` of STARTUP.
    pub driver_version: Option<String>,
    /// All options of STARTUP, in the order in which they came.
    pub options: Vec<(String, String)>,
    role: OnceCell<Box<str>>,
    keyspace: RefCell<Option<Rc<str>>>,
    pub(crate) requests: Cell<u64>,
    answers: Option<Answers>,
}

impl Client {
    /// A client that has sent STARTUP with these options.
    pub fn new(id: u64, address: SocketAddr, dialect: Dialect, options: Vec<(String, String)>) -> Self {
        let option = |name: &str| {
            let found = options.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        Self {
            id,
            address,
            dialect,
            driver_name: option("DRIVER_NAME"),
            driver_version: option("DRIVER_VERSION"),
            options,
            role: OnceCell::new(),
            keyspace: RefCell::new(None),
            requests: Cell::new(0),
            answers: None,
        }
    }

    /// Has the client's answers booked.
    pub(crate) fn with_answers(mut self, answers: Answers) -> Self {
        self.answers = Some(answers);
        self
    }

    /// Ready when room is booked for an answer of this client: at once, or when those before it have their room.
    pub fn poll_answer_room(&self, booking: &mut AnswerBooking, cx: &mut Context<'_>) -> Poll<()> {
        self.answers.as_ref().map_or(Poll::Ready(()), |answers| booking.poll(answers, cx))
    }

    /// Whether there is room for an answer of this client that is made at once, and nobody waits for it.
    pub(crate) fn has_answer_room(&self) -> bool {
        self.answers.as_ref().is_none_or(Answers::have_room)
    }

    /// The keyspace of unqualified names.
    pub fn keyspace(&self) -> Option<Rc<str>> {
        self.keyspace.borrow().clone()
    }

    /// Changes the keyspace of unqualified names, for USE.
    pub fn set_keyspace(&self, keyspace: &str) {
        *self.keyspace.borrow_mut() = Some(keyspace.into());
    }

    /// The role that the client has authenticated as; none before, and on a node that asks nobody.
    pub fn role(&self) -> Option<&str> {
        self.role.get().map(|role| &**role)
    }

    /// The client has authenticated as a role, which is its own for the life of the connection.
    ///
    /// # Panics
    /// When it has before.
    pub(crate) fn set_role(&self, role: &str) {
        assert!(self.role.set(role.into()).is_ok(), "a client authenticates once");
    }

    /// Requests since the connection began.
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStage {
    /// It has not sent STARTUP.
    Established,
    /// Authentication was requested.
    Authenticating,
    /// It may send statements.
    Ready,
}

impl ConnectionStage {
    /// The name in `system.clients`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Established => "ESTABLISHED",
            Self::Authenticating => "AUTHENTICATING",
            Self::Ready => "READY",
        }
    }
}

/// A connection as `system.clients` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The client's address.
    pub address: SocketAddr,
    /// The shard that owns the connection.
    pub shard: u16,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// How far it has come.
    pub stage: ConnectionStage,
    /// Number of the protocol version, once agreed on.
    pub protocol_version: Option<u8>,
    /// `DRIVER_NAME` of STARTUP.
    pub driver_name: Option<String>,
    /// `DRIVER_VERSION` of STARTUP.
    pub driver_version: Option<String>,
    /// All options of STARTUP.
    pub client_options: Vec<(String, String)>,
    /// The role that the client has authenticated as.
    pub username: Option<String>,
    /// The keyspace in use.
    pub keyspace_name: Option<String>,
    /// Requests since the connection began.
    pub request_count: u64,
}
