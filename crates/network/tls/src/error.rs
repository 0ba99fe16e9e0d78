//! TLS errors, in words that tell an operator where to look.

use std::time::Duration;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Why credentials cannot be used, or a connection was not secured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A PEM file lacks its expected content.
    #[error("{0}")]
    Pem(String),
    /// The other side does not use TLS.
    #[error("it does not use TLS (it begins with {0:02x?}), and this port takes nothing else")]
    Plaintext(Vec<u8>),
    /// The other side went away.
    #[error(
        "it closed the connection during the TLS handshake: it uses no TLS there, or refused this node's certificate"
    )]
    Closed,
    /// The handshake took too long.
    #[error("it did not finish the TLS handshake within {0:?}")]
    TimedOut(Duration),
    /// The handshake was longer than any should be.
    #[error("its TLS handshake is longer than {0} bytes")]
    TooLong(usize),
    /// The handshake failed.
    #[error("TLS: {0}")]
    Refused(String),
    /// The connection broke.
    #[error("{0}")]
    Io(String),
}

/// An error of rustls for people.
pub(crate) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(certificate) => explain_certificate(certificate),
        Error::NoCertificatesPresented => {
            "it has shown no certificate, but must (require_client_auth)".to_owned()
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => "it does not use TLS".to_owned(),
        Error::AlertReceived(alert) => explain_alert(*alert),
        Error::PeerIncompatible(why) => format!("the two sides have no common version or cipher: {why:?}"),
        error => error.to_string(),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "its certificate was issued by nobody whom the truststore of this node names".to_owned()
        }
        CertificateError::Expired => "its certificate has expired".to_owned(),
        CertificateError::ExpiredContext { time, not_after } => {
            let seconds = time.as_secs().saturating_sub(not_after.as_secs());
            format!("its certificate has expired {seconds} seconds ago")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: is a clock wrong?".to_owned()
        }
        CertificateError::NotValidForName => "its certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            format!("its certificate is not for {expected}, but for {}", presented.join(", "))
        }
        error => format!("its certificate is not valid: {error}"),
    }
}

fn explain_alert(alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::UnknownCA => "it does not trust the issuer of this node's certificate",
        AlertDescription::CertificateExpired => "this node's certificate has expired, it says",
        AlertDescription::CertificateRequired => "it wants a certificate of this node",
        AlertDescription::BadCertificate => "it does not like this node's certificate",
        AlertDescription::ProtocolVersion => "it supports only other versions of TLS",
        _ => return format!("it refused with the alert {alert:?}"),
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_for_operators_have_texts() {
        for (error, said) in [
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), "truststore"),
            (Error::InvalidCertificate(CertificateError::Expired), "expired"),
            (Error::InvalidCertificate(CertificateError::NotValidYet), "clock"),
            (Error::InvalidCertificate(CertificateError::NotValidForName), "another name"),
            (Error::InvalidCertificate(CertificateError::Revoked), "not valid"),
            (Error::NoCertificatesPresented, "require_client_auth"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "does not use TLS"),
            (Error::AlertReceived(AlertDescription::UnknownCA), "the issuer of this node's certificate"),
            (Error::AlertReceived(AlertDescription::CertificateRequired), "wants a certificate"),
            (Error::AlertReceived(AlertDescription::DecodeError), "DecodeError"),
        ] {
            assert!(explain(&error).contains(said), "{error:?}: {}", explain(&error));
        }
    }
}
