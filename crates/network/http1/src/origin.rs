//! Requests that a web page has a browser send, and the names by which a port is reached.
//!
//! A page may have a browser send requests to loopback and to private addresses. Its own name in `Host` shows DNS
//! rebinding; `Origin` and `Sec-Fetch-Site` (Fetch Metadata Request Headers, section 2.3) show a request across sites.
//! Programs that are no browsers send neither of the latter two. A browser sends `Origin` with each request that is no GET or HEAD, and
//! `Sec-Fetch-Site` to loopback and over TLS only: a GET that changes something needs [`is_of_browser`].

use std::net::{IpAddr, Ipv6Addr};

use hyper::Method;
use hyper::header::{
    ACCEPT_LANGUAGE, HeaderMap, HeaderName, ORIGIN, REFERER, UPGRADE_INSECURE_REQUESTS, USER_AGENT,
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a browser sends the request for a page, of whichever site.
pub fn is_of_page(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE)
}

/// Whether a browser sends the request, also a GET to an address that is not loopback, with which neither `Origin` nor `Sec-Fetch-Site` comes.
pub fn is_of_browser(headers: &HeaderMap) -> bool {
    let sent_by_browsers = [ACCEPT_LANGUAGE, REFERER, UPGRADE_INSECURE_REQUESTS];
    let agents = headers.get_all(USER_AGENT);
    is_of_page(headers)
        || sent_by_browsers.iter().any(|name| headers.contains_key(name))
        || agents.iter().any(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

/// Why the request is one of a page of another origin than `host` over one of `schemes` (`http`, `https`); none when it is not.
pub fn foreign_page(
    method: &Method,
    headers: &HeaderMap,
    host: Option<&str>,
    schemes: &[&str],
) -> Option<&'static str> {
    for origin in headers.get_all(ORIGIN) {
        let is_own = |host: &str| {
            schemes.iter().any(|scheme| origin.as_bytes() == format!("{scheme}://{host}").as_bytes())
        };
        if !host.is_some_and(is_own) {
            return Some("the request comes from a page of another origin (Origin)");
        }
    }
    for site in headers.get_all(SEC_FETCH_SITE) {
        let allowed = match site.as_bytes() {
            b"same-origin" => true,
            // The user has typed the address.
            b"none" => matches!(*method, Method::GET | Method::HEAD),
            _ => false,
        };
        if !allowed {
            return Some("the request comes from a page of another site (Sec-Fetch-Site)");
        }
    }
    None
}

/// Whether `authority` (host and perhaps port) names this node by an address, which DNS cannot rebind, by `localhost`, or by one of
/// `names`.
pub fn is_own_name(authority: &str, names: &[String]) -> bool {
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
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_known_names_are_own() {
        let names = ["node1.example".to_owned()];
        for own in ["127.0.0.1", "10.0.0.7:9180", "[::1]", "[::1]:10000", "LOCALHOST:1", "Node1.Example.:9"] {
            assert!(is_own_name(own, &names), "{own}");
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
            assert!(!is_own_name(foreign, &names), "{foreign}");
        }
    }

    #[test]
    fn a_page_is_foreign_unless_its_origin_is_the_host() {
        let foreign = |method: Method, name: &'static str, value: &str, schemes: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(is_of_page(&headers), name != "referer");
            foreign_page(&method, &headers, Some("10.0.0.1:8000"), schemes).is_some()
        };
        let both = ["http", "https"];
        assert!(!foreign(Method::POST, "origin", "http://10.0.0.1:8000", &both));
        assert!(!foreign(Method::POST, "origin", "https://10.0.0.1:8000", &both));
        assert!(foreign(Method::POST, "origin", "https://10.0.0.1:8000", &["http"]));
        for origin in ["null", "http://10.0.0.1", "http://10.0.0.1:8001", "file://", "ftp://10.0.0.1:8000"] {
            assert!(foreign(Method::POST, "origin", origin, &both), "{origin}");
        }
        assert!(!foreign(Method::GET, "sec-fetch-site", "none", &both));
        assert!(foreign(Method::POST, "sec-fetch-site", "none", &both));
        assert!(foreign(Method::GET, "sec-fetch-site", "same-site", &both));
        assert!(!foreign(Method::POST, "referer", "http://evil.example", &both), "programs may send it");
    }
}
