//! Which requests an API without authorization refuses: those that a foreign web page has a browser send.
//!
//! A page of another origin cannot send `X-Amz-Target` without a preflight, which is never granted here. The remaining case is a page whose
//! name was rebound to the node's address (DNS rebinding): to its browser it is of the node's origin. A browser sends `Origin` with
//! each POST, and programs send neither it nor `Sec-Fetch-Site`; so only requests that have one of them must name the node in `Host` by
//! an address or a known name, and SDKs may use whichever name leads to it (docs/design/dynamo.md).

use http1::origin;
use hyper::header::HOST;
use hyper::http::request::Parts;

/// Why a request is refused as one of a foreign page; none for all others.
pub(crate) fn refusal(host_names: &[String], head: &Parts) -> Option<String> {
    if !origin::is_of_page(&head.headers) {
        return None;
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    let (Some(Ok(host)), None) = (hosts.next().map(|host| host.to_str()), hosts.next()) else {
        return Some("A request of a web page has exactly one Host".to_owned());
    };
    let authority = head.uri.authority().map(|authority| authority.as_str());
    for name in authority.into_iter().chain([host]) {
        if !origin::is_own_name(name, host_names) {
            return Some(format!(
                "Host '{}' of a request of a web page is neither an address nor localhost nor one of http_host_names",
                name.escape_default()
            ));
        }
    }
    let foreign = origin::foreign_page(&head.method, &head.headers, Some(host), &["http", "https"]);
    foreign.map(|why| format!("This API serves programs without authorization, and no web pages: {why}"))
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn refused(headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::post("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        refusal(&["db.example".to_owned()], &request.body(()).expect("it is valid").into_parts().0)
    }

    #[test]
    fn programs_may_use_any_name() {
        for host in ["dynamodb.us-east-1.amazonaws.com", "torc-0.torc.default.svc.cluster.local:8000", "x"] {
            assert_eq!(refused(&[("host", host)]), None, "{host}");
            // The headers that fetch of Node.js sends.
            assert_eq!(refused(&[("host", host), ("sec-fetch-mode", "cors")]), None, "{host}");
        }
        assert_eq!(refused(&[]), None);
    }

    #[test]
    fn pages_are_refused_unless_they_are_of_the_node() {
        let rebound = refused(&[("host", "evil.example:8000"), ("origin", "http://evil.example:8000")]);
        assert!(rebound.is_some_and(|why| why.contains("evil.example:8000")));
        for origin in ["http://evil.example", "null", "http://localhost:3000", "chrome-extension://abc"] {
            assert!(refused(&[("host", "localhost:8000"), ("origin", origin)]).is_some(), "{origin}");
        }
        assert_eq!(refused(&[("host", "localhost:8000"), ("origin", "http://localhost:8000")]), None);
        assert_eq!(
            refused(&[("host", "db.example"), ("origin", "https://db.example")]),
            None,
            "behind a proxy"
        );
        assert!(refused(&[("host", "10.0.0.1:8000"), ("sec-fetch-site", "cross-site")]).is_some());
        assert!(
            refused(&[("host", "10.0.0.1:8000"), ("sec-fetch-site", "none")]).is_some(),
            "a POST is not typed"
        );
        assert!(refused(&[("origin", "http://localhost:8000")]).is_some(), "without Host");
        let two = [("host", "localhost"), ("host", "evil.example"), ("origin", "http://localhost")];
        assert!(refused(&two).is_some());
    }
}
