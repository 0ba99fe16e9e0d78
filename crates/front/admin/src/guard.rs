//! Which requests an HTTP port answers: none that a web page has a browser send.
//!
//! Such requests are known by the rules of [`http1::origin`]. All clients of these ports, programs too, must use a name of the node.

use std::rc::Rc;

use http1::origin;
use hyper::header::{HOST, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, Version};

use crate::Answer;
use crate::escapes::percent_decode;

/// The access rules of an HTTP port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Names under which clients may reach the port, beside `localhost` and addresses.
    pub host_names: Rc<[String]>,
}

/// Whether a GET of this path changes something: so it is in ScyllaDB's API.
fn changes_by_get(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    segments.next() == Some("storage_service")
        && matches!(segments.next(), Some("keyspace_scrub" | "keyspace_upgrade_sstables"))
}

/// Whether a request changes something. One is refused that may come from a web page.
///
/// # Errors
/// The answer: 400 for a request without one valid `Host`, 403 for one that may come from a web page.
pub(crate) fn check(access: &Access, scheme: &str, request: &Parts) -> Result<bool, Answer> {
    let Parts { method, uri, version, headers, .. } = request;
    let is_get = matches!(*method, Method::GET | Method::HEAD);
    let reads = is_get && !changes_by_get(&percent_decode(uri.path()));
    let host = host(*version, headers)?;
    for authority in [uri.authority().map(|authority| authority.as_str()), host].into_iter().flatten() {
        if !origin::is_own_name(authority, &access.host_names) {
            return Err(Answer::error(
                403,
                format!(
                    "Host '{}' is neither an address nor localhost nor one of http_host_names",
                    authority.escape_default()
                ),
            ));
        }
    }
    let method = if reads { method } else { &Method::POST };
    if let Some(why) = origin::foreign_page(method, headers, host, &[scheme]) {
        return Err(Answer::error(403, why));
    }
    if is_get && !reads && origin::is_of_browser(headers) {
        return Err(Answer::error(403, "a browser does not change the node by GET"));
    }
    Ok(!reads)
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

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;
    use hyper::{Request, Uri};

    use super::*;

    fn status(access: &Access, method: Method, pairs: &[(&str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        at(access, method, "/x", &headers)
    }

    fn at(access: &Access, method: Method, path: &'static str, headers: &HeaderMap) -> u16 {
        checked(access, method, Uri::from_static(path), headers)
            .map_or_else(|refused| refused.status, |_| 200)
    }

    fn checked(access: &Access, method: Method, uri: Uri, headers: &HeaderMap) -> Result<bool, Answer> {
        let (mut request, ()) = Request::new(()).into_parts();
        (request.method, request.uri, request.headers) = (method, uri, headers.clone());
        // Without a Host it is an older one.
        request.version = Version::HTTP_11;
        check(access, "http", &request)
    }

    #[test]
    fn hosts_are_addresses_or_known_names() {
        let access = Access { host_names: Rc::new(["node1.example".to_owned()]) };
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
        let (mut old, ()) = Request::new(()).into_parts();
        old.version = Version::HTTP_10;
        assert_eq!(check(&access, "http", &old), Ok(false), "HTTP/1.0 needs no Host");
        headers.insert(HOST, "127.0.0.1".parse().unwrap());
        let refused = checked(&access, Method::GET, absolute, &headers).unwrap_err();
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
    fn requests_that_change_something_are_known() {
        let access = Access::default();
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost".parse().unwrap());
        let changes = |method: Method, path| checked(&access, method, Uri::from_static(path), &headers);
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(changes(method, "/x"), Ok(true));
        }
        assert_eq!(changes(Method::GET, "/x"), Ok(false));
        assert_eq!(changes(Method::HEAD, "/storage_service/keyspaces"), Ok(false));
        for path in
            ["/storage_service/keyspace_scrub/ks", "//storage%5Fservice//keyspace_upgrade_sstables/ks"]
        {
            assert_eq!(changes(Method::GET, path), Ok(true), "{path} changes files");
        }
        headers.insert("sec-fetch-site", "none".parse().unwrap());
        assert_eq!(at(&Access::default(), Method::GET, "/storage_service/keyspace_scrub/ks", &headers), 403);
        // To an address that is not loopback a browser sends neither of the two headers.
        for mark in [
            ("accept-language", "en"),
            ("referer", "http://intranet/"),
            ("upgrade-insecure-requests", "1"),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"),
        ] {
            let pairs = [("host", "10.0.0.5:10000"), mark];
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
            }
            let ask = |path| at(&Access::default(), Method::GET, path, &headers);
            assert_eq!(ask("/storage_service/keyspace_scrub/ks"), 403, "{mark:?}");
            assert_eq!(ask("/storage_service/keyspaces"), 200, "{mark:?}");
        }
        assert_eq!(at(&access, Method::GET, "/storage_service/keyspaces", &headers), 200);
    }
}
