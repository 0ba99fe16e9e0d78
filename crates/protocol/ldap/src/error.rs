//! Errors of a directory's messages, and of URLs and filters of the configuration.

/// A text or bytes that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LdapError {
    /// Bytes that are no message of LDAP.
    #[error("the directory sent no message of LDAP: {0}")]
    Message(&'static str),
    /// A message longer than any should be, in bytes.
    #[error("the directory sent a message of {0} bytes")]
    TooLong(usize),
    /// A filter that is none (RFC 4515).
    #[error("{filter:?} is no filter of LDAP: {why}")]
    Filter {
        /// The text.
        filter: String,
        /// The fault.
        why: &'static str,
    },
    /// A URL that is none (RFC 4516), or has no use here.
    #[error("{url:?} is no URL of a directory: {why}")]
    Url {
        /// The text.
        url: String,
        /// The fault.
        why: &'static str,
    },
}
