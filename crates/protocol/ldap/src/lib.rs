//! The messages of LDAP (RFC 4511) by which a directory says whether a password is right and which groups a user is in: bind, search,
//! StartTLS; with filters (RFC 4515), the text of names (RFC 4514) and URLs (RFC 4516) that have a place for a user.
//!
//! Pure: bytes in, values out. Knows neither connections nor roles (docs/design/ldap.md). A directory is not trusted with our memory:
//! every length is held against a limit.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod ber;
mod error;
mod escape;
mod filter;
mod message;
mod url;

pub use error::LdapError;
pub use filter::Filter;
pub use message::{Entry, MESSAGE_LEN_MAX, Outcome, Request, Response, ResultCode, Scope, decode, encode};
pub use url::UrlTemplate;
