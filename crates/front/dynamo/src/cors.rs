//! The headers by which a browser lets a page of another origin use the API (the Fetch standard, CORS). Only where requests have to be signed:
//! without signatures such pages are refused (`pages`).

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN,
};
use hyper::{HeaderMap, Method};

/// Headers of answers that a page may read, beside those that it always may.
const EXPOSED: HeaderValue = HeaderValue::from_static("x-amzn-RequestId,x-amz-crc32,Date");
/// Seconds for which a browser may remember the answer to its preflight: the most that browsers do.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// The headers of the answer to a request with these; none for one that no page has sent.
pub(crate) fn granted(method: &Method, headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::new();
    if headers.get(ORIGIN).is_none_or(HeaderValue::is_empty) {
        return out;
    }
    out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    out.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    if method == Method::OPTIONS {
        let asked = [
            (ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_ALLOW_HEADERS),
            (ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_ALLOW_METHODS),
        ];
        for (asked, allowed) in asked {
            if let Some(value) = headers.get(asked) {
                out.insert(allowed, value.clone());
            }
        }
        out.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    }
    out
}
