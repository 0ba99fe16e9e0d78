//! The envelope: the nine bytes in front of every message (§2) and the message's body.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{Direction, HEADER_LEN, ProtocolError, Version};

/// The bit of the first byte that marks a response.
const RESPONSE_BIT: u8 = 0x80;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal, $direction:ident;)*) => {
        /// The kind of a message (§2.4).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $code,)*
        }

        impl Opcode {
            /// Every opcode, in the order of its code.
            pub const ALL: &[Opcode] = &[$(Opcode::$name),*];

            /// The opcode with this code.
            #[inline]
            pub fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name in the specification.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Its sender.
            #[inline]
            pub fn direction(self) -> Direction {
                match self {
                    $(Self::$name => Direction::$direction,)*
                }
            }
        }
    };
}

opcodes! {
    /// An error (§4.2.1).
    Error = 0x00, "ERROR", Response;
    /// Opens a connection (§4.1.1).
    Startup = 0x01, "STARTUP", Request;
    /// The connection may be used (§4.2.2).
    Ready = 0x02, "READY", Response;
    /// The client has to authenticate (§4.2.3).
    Authenticate = 0x03, "AUTHENTICATE", Response;
    /// Asks for the server's options (§4.1.3).
    Options = 0x05, "OPTIONS", Request;
    /// The server's options (§4.2.4).
    Supported = 0x06, "SUPPORTED", Response;
    /// A statement as text (§4.1.4).
    Query = 0x07, "QUERY", Request;
    /// The result of a statement (§4.2.5).
    Result = 0x08, "RESULT", Response;
    /// Prepares a statement (§4.1.5).
    Prepare = 0x09, "PREPARE", Request;
    /// Executes a prepared statement (§4.1.6).
    Execute = 0x0A, "EXECUTE", Request;
    /// Asks for events (§4.1.8).
    Register = 0x0B, "REGISTER", Request;
    /// An event (§4.2.6).
    Event = 0x0C, "EVENT", Response;
    /// Several statements (§4.1.7).
    Batch = 0x0D, "BATCH", Request;
    /// A step of authentication (§4.2.7).
    AuthChallenge = 0x0E, "AUTH_CHALLENGE", Response;
    /// The client's answer to it (§4.1.2).
    AuthResponse = 0x0F, "AUTH_RESPONSE", Request;
    /// Authentication is done (§4.2.8).
    AuthSuccess = 0x10, "AUTH_SUCCESS", Response;
}

impl Opcode {
    /// The code on the wire.
    #[inline]
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The flags of an envelope (§2.2). Unknown bits are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The body is compressed (v3 and v4).
    pub const COMPRESSION: u8 = 0x01;
    /// Tracing is requested, or a tracing id is in the body.
    pub const TRACING: u8 = 0x02;
    /// The body begins with a custom payload (after tracing id and warnings).
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// The body has warnings.
    pub const WARNING: u8 = 0x08;
    /// The client opts into a version that is in beta.
    pub const USE_BETA: u8 = 0x10;

    /// Whether a flag is set.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// The fields of a header, not yet judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version number, without the direction bit.
    pub version: u8,
    /// Whether the direction bit says response.
    pub direction: Direction,
    /// Flags.
    pub flags: Flags,
    /// Stream id; negative for messages that the server starts.
    pub stream: i16,
    /// Opcode as a number.
    pub opcode: u8,
    /// Length of the body in bytes.
    pub length: i32,
}

impl Header {
    /// Reads the nine bytes of a header.
    #[inline]
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        let [first, flags, s0, s1, opcode, l0, l1, l2, l3] = *bytes;
        Header {
            version: first & !RESPONSE_BIT,
            direction: if first & RESPONSE_BIT == 0 { Direction::Request } else { Direction::Response },
            flags: Flags(flags),
            stream: i16::from_be_bytes([s0, s1]),
            opcode,
            length: i32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    /// The nine bytes of this header.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let direction = if self.direction == Direction::Response { RESPONSE_BIT } else { 0 };
        let [s0, s1] = self.stream.to_be_bytes();
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        [self.version | direction, self.flags.0, s0, s1, self.opcode, l0, l1, l2, l3]
    }

    /// Checks version, direction and opcode.
    #[inline]
    pub(crate) fn check(&self, expected: Direction) -> Result<(Version, Opcode), ProtocolError> {
        let version = Version::from_number(self.version)
            .ok_or(ProtocolError::UnsupportedVersion { version: self.version })?;
        if self.direction != expected {
            return Err(ProtocolError::WrongDirection { expected, opcode: self.opcode });
        }
        let opcode =
            Opcode::from_code(self.opcode).ok_or(ProtocolError::UnknownOpcode { opcode: self.opcode })?;
        if opcode.direction() != expected {
            return Err(ProtocolError::UnknownOpcode { opcode: self.opcode });
        }
        Ok((version, opcode))
    }
}

/// One message, cut out of a connection's bytes and decompressed, its body not yet read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Protocol version.
    pub version: Version,
    /// Flags.
    pub flags: Flags,
    /// Stream id.
    pub stream: i16,
    /// Kind of message.
    pub opcode: Opcode,
    /// The body; a slice of the read buffer where it lay whole in it.
    pub body: Bytes,
}

impl Envelope {
    /// Appends the envelope in its plain form: no frame, no compression.
    #[expect(clippy::expect_used, reason = "bodies are limited to less than 2 GiB")]
    pub fn put(&self, out: &mut BytesMut) {
        let header = Header {
            version: self.version.number(),
            direction: self.opcode.direction(),
            flags: self.flags,
            stream: self.stream,
            opcode: self.opcode.code(),
            length: i32::try_from(self.body.len()).expect("a body is shorter than 2 GiB"),
        };
        out.reserve(HEADER_LEN + self.body.len());
        out.put_slice(&header.encode());
        out.put_slice(&self.body);
    }
}
