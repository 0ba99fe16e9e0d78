//! The options of the S3-compatible service of exports and imports.

use std::net::IpAddr;

use super::options::refused;
use super::{Config, ConfigError};

/// The parts of the option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) is_secure: bool,
    pub(crate) authority: String,
    /// A name, or an address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Endpoint {
    /// `http://HOST[:PORT]` or `https://HOST[:PORT]`; none of any other form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let (is_secure, default_port) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return None,
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, default_port),
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_host = match bracketed {
            Some(address) => address.parse::<IpAddr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_name),
        };
        is_host.then(|| Self {
            is_secure,
            authority: authority.to_owned(),
            host: bracketed.unwrap_or(host).to_owned(),
            port,
        })
    }
}

impl Config {
    pub(super) fn check_export_endpoint(&self) -> Result<(), ConfigError> {
        let name = "alternator_export_endpoint";
        if self.alternator_export_endpoint.is_empty() {
            return Ok(());
        }
        let Some(endpoint) = Endpoint::parse(&self.alternator_export_endpoint) else {
            let expected = "expected http://HOST:PORT or https://HOST:PORT";
            return Err(refused(name, &self.alternator_export_endpoint, expected));
        };
        for (lacks, option) in [
            (self.alternator_export_directory.is_none(), "alternator_export_directory"),
            (self.alternator_export_credentials.is_none(), "alternator_export_credentials"),
            (
                endpoint.is_secure && self.alternator_export_truststore.is_none(),
                "alternator_export_truststore",
            ),
        ] {
            if lacks {
                return Err(ConfigError::Conflict(format!("{name} is set, which needs {option}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_a_port() {
        for (text, expected) in [
            ("http://10.0.0.1:9000", Some((false, "10.0.0.1:9000", "10.0.0.1", 9000))),
            (
                "https://s3.eu-west-1.amazonaws.com/",
                Some((true, "s3.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com", 443)),
            ),
            ("http://[::1]:9000", Some((false, "[::1]:9000", "::1", 9000))),
            ("https://[::1]", Some((true, "[::1]", "::1", 443))),
            ("s3.amazonaws.com", None),
            ("ftp://host", None),
            ("http://", None),
            ("http://host/bucket", None),
            ("http://user@host", None),
            ("http://host:port", None),
            ("http://[x]", None),
        ] {
            let read = Endpoint::parse(text);
            let read =
                read.as_ref().map(|of| (of.is_secure, of.authority.as_str(), of.host.as_str(), of.port));
            assert_eq!(read, expected, "{text}");
        }
    }
}
