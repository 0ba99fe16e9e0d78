//! Which requests an HTTP port answers: none that a web page has a browser send.
//!
//! A page may have a browser send requests to loopback and to private addresses. Its own name in `Host` shows DNS
//! rebinding; `Origin` and `Sec-Fetch-Site` (Fetch Metadata Request Headers, section 2.3) show a request across sites.
//! Programs that are no browsers send neither of the latter two.

use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use hyper::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, Uri, Version};

use crate::Answer;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The access rules of an HTTP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Names under which clients may reach the port, beside `localhost` and addresses.
    pub host_names: Rc<[String]>,
    /// The clients that may change the node's state.
    pub changes: Changes,
}

/// The clients that may change the node's state over an HTTP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Any client of the port: CQL clients need not authenticate either.
    Anyone,
    /// Nobody: CQL clients must authenticate, and this port has no way yet to authenticate its own.
    Nobody,
}

impl Default for Access {
    fn default() -> Self {
        Self { host_names: Rc::new([]), changes: Changes::Anyone }
    }
}

/// Refuses a request that the port must not carry out.
///
/// # Errors
/// The answer: 400 for a request without one valid `Host`, 403 for one that may come from a web page or that changes what
/// nobody may change.
pub(crate) fn check(
    access: &Access,
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<(), Answer> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let host = host(version, headers)?;
    for authority in [uri.authority().map(|authority| authority.as_str()), host].into_iter().flatten() {
        if !is_own_name(access, authority) {
            return Err(Answer::error(
                403,
                format!(
                    "Host '{}' is neither an address nor localhost nor one of http_host_names",
                    authority.escape_default()
                ),
            ));
        }
    }
    for origin in headers.get_all(ORIGIN) {
        let same = host.is_some_and(|host| origin.as_bytes() == format!("http://{host}").as_bytes());
        if !same {
            return Err(Answer::error(403, "the request comes from a page of another origin (Origin)"));
        }
    }
    for site in headers.get_all(SEC_FETCH_SITE) {
        let allowed = match site.as_bytes() {
            b"same-origin" => true,
            // The user has typed the address.
            b"none" => reads,
            _ => false,
        };
        if !allowed {
            return Err(Answer::error(403, "the request comes from a page of another site (Sec-Fetch-Site)"));
        }
    }
    if !reads && access.changes == Changes::Nobody {
        return Err(Answer::error(
            403,
            "this node authenticates its clients (authenticator), and this port cannot: it changes nothing",
        ));
    }
    Ok(())
}

/// The one `Host` of the request; HTTP/1.0 needs none.
fn host(version: Version, headers: &HeaderMap) -> Result<Option<&str>, Answer> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version < Version::HTTP_11 => Ok(None),
        (Some(host), None) => match host.to_str() {
            Ok(host) => Ok(Some(host)),
            Err(_) => Err(Answer::error(400, "Host is not text")),
        },
        _ => Err(Answer::error(400, "a request has exactly one Host")),
    }
}

/// Whether `authority` (host and perhaps port) names this node by an address, which DNS cannot rebind, or by a known name.
fn is_own_name(access: &Access, authority: &str) -> bool {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']').unwrap_or((bracketed, "?"));
        return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || is_port(port));
    }
    let name = match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) => return false,
        None => authority,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || access.host_names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(access: &Access, method: Method, pairs: &[(&str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        check(access, &method, &Uri::from_static("/x"), Version::HTTP_11, &headers)
            .map_or_else(|refused| refused.status, |()| 200)
    }

    #[test]
    fn hosts_are_addresses_or_known_names() {
        let access = Access { host_names: Rc::new(["node1.example".to_owned()]), ..Access::default() };
        let ask = |host: &str| status(&access, Method::GET, &[("host", host)]);
        for known in [
            "127.0.0.1",
            "10.0.0.7:9180",
            "[::1]",
            "[::1]:10000",
            "localhost:1",
            "LOCALHOST",
            "Node1.Example.:9",
        ] {
            assert_eq!(ask(known), 200, "{known}");
        }
        for foreign in [
            "evil.example",
            "evil.example:10000",
            "127.0.0.1.evil.example",
            "",
            "[::1",
            "[x]",
            "a:b",
            "[::1]x",
        ] {
            assert_eq!(ask(foreign), 403, "{foreign}");
        }
        assert_eq!(status(&access, Method::GET, &[]), 400);
        assert_eq!(status(&access, Method::GET, &[("host", "localhost"), ("host", "localhost")]), 400);
        let absolute = Uri::from_static("http://evil.example/x");
        let mut headers = HeaderMap::new();
        assert!(check(&access, &Method::GET, &Uri::from_static("/"), Version::HTTP_10, &headers).is_ok());
        headers.insert(HOST, "127.0.0.1".parse().unwrap());
        let refused = check(&access, &Method::GET, &absolute, Version::HTTP_11, &headers).unwrap_err();
        assert_eq!(refused.status, 403);
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let access = Access::default();
        let ask = |method: Method, name: &str, value: &str| {
            status(&access, method, &[("host", "127.0.0.1:10000"), (name, value)])
        };
        for origin in ["http://evil.example", "null", "http://127.0.0.1:9180", "https://127.0.0.1:10000"] {
            assert_eq!(ask(Method::GET, "origin", origin), 403, "{origin}");
            assert_eq!(ask(Method::POST, "origin", origin), 403, "{origin}");
        }
        assert_eq!(ask(Method::POST, "origin", "http://127.0.0.1:10000"), 200);
        for site in ["cross-site", "same-site", "?"] {
            assert_eq!(ask(Method::GET, "sec-fetch-site", site), 403, "{site}");
        }
        assert_eq!(ask(Method::GET, "sec-fetch-site", "none"), 200);
        assert_eq!(ask(Method::POST, "sec-fetch-site", "none"), 403);
        assert_eq!(ask(Method::DELETE, "sec-fetch-site", "same-origin"), 200);
    }

    #[test]
    fn with_authentication_nothing_is_changed() {
        let access = Access { changes: Changes::Nobody, ..Access::default() };
        let host = [("host", "localhost")];
        assert_eq!(status(&access, Method::GET, &host), 200);
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(status(&access, method, &host), 403);
        }
    }
}
