//! Requests to the service: signed, with the bucket in the path, each tried again for a while.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, ETAG, HOST, HeaderMap, HeaderName, HeaderValue, RANGE};
use hyper::{Method, Request};
use rt::Rt;

use super::connection::{Connection, ObjectStore, Response};
use super::xml;
use crate::signature::{Signed, Signer, basic, escaped, sha256_in_steps};
use crate::transfer::failure::Failure;
use crate::transfer::place::Bucket;

/// How often a request is tried again, and the pause before the first time; it grows.
const RETRIES_MAX: u32 = 6;
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long one try may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of an answer that is no object: a thousand keys of 1,024 bytes, encoded.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Objects of an import, as AWS allows.
const OBJECTS_MAX: usize = 50_000;

/// A request.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) bucket: &'a Bucket,
    /// Empty for the bucket itself.
    pub(super) key: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    /// The bytes of an object that are asked for: the first, and how many.
    pub(super) range: Option<(u64, usize)>,
    pub(super) body: Bytes,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, bucket: &'a Bucket, key: &'a str) -> Self {
        Self { method, bucket, key, query: &[], range: None, body: Bytes::new() }
    }

    fn answer_bytes_max(&self) -> usize {
        self.range.map_or(ANSWER_BYTES_MAX, |(_, len)| len.max(64 << 10))
    }
}

/// A try that did not succeed.
enum Failed {
    /// It may succeed later.
    Passing(String),
    Lasting(Failure),
}

/// A shard's use of the service.
pub(crate) struct S3 {
    rt: Rt,
    store: ObjectStore,
    /// Connections that carry out no request.
    idle: RefCell<Vec<Connection>>,
}

impl S3 {
    pub(crate) fn new(rt: &Rt, store: ObjectStore) -> Self {
        Self { rt: rt.clone(), store, idle: RefCell::default() }
    }

    /// Writes a small object.
    pub(crate) async fn put(&self, bucket: &Bucket, key: &str, bytes: Bytes) -> Result<String, Failure> {
        let answer = self.call(&Call { body: bytes, ..Call::new(Method::PUT, bucket, key) }).await?;
        Ok(etag(&answer))
    }

    /// The objects whose keys begin so, in the order of their keys, with their lengths.
    pub(crate) async fn list(&self, bucket: &Bucket, prefix: &str) -> Result<Vec<(String, u64)>, Failure> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("encoding-type", "url"), ("list-type", "2"), ("prefix", prefix)];
            query.extend(after.as_deref().map(|token| ("continuation-token", token)));
            let answer = self.call(&Call { query: &query, ..Call::new(Method::GET, bucket, "") }).await?;
            let text = String::from_utf8_lossy(&answer.body);
            found.extend(xml::objects(&text).map_err(unexpected)?);
            if found.len() > OBJECTS_MAX {
                let text = format!("more than {OBJECTS_MAX} objects begin with this prefix");
                return Err(Failure::new("ValidationException", text));
            }
            let next = xml::text(&text, "NextContinuationToken");
            match next.filter(|_| xml::text(&text, "IsTruncated").as_deref() == Some("true")) {
                // A service that gives one page for ever is left.
                Some(next) if after.as_ref() != Some(&next) => after = Some(next),
                Some(_) => return Err(unexpected("the list of objects does not end")),
                None => break,
            }
        }
        // A folder that was made by hand is an object without a name of its own.
        found.retain(|(key, len)| *len > 0 || !key.ends_with('/'));
        Ok(found)
    }

    /// Bytes of an object from a position on, at most so many; none behind its end.
    pub(crate) async fn read(
        &self,
        (bucket, key): (&Bucket, &str),
        position: u64,
        len: usize,
    ) -> Result<Bytes, Failure> {
        let call = Call { range: Some((position, len)), ..Call::new(Method::GET, bucket, key) };
        let answer = self.call(&call).await?;
        match answer.status {
            206 => Ok(answer.body),
            416 => Ok(Bytes::new()),
            // A range is of a part: all of an object that is longer would be too much.
            status => Err(unexpected(&format!("a range of {key} was answered with the status {status}"))),
        }
    }

    /// Carries out a request, which is tried again for a while when it fails for a reason that passes.
    pub(super) async fn call(&self, call: &Call<'_>) -> Result<Response, Failure> {
        let body_hash = sha256_in_steps(&call.body).await;
        let mut pause = RETRY_PAUSE;
        for retries in 0.. {
            let attempt = self.rt.timeout(REQUEST_TIMEOUT, self.attempt(call, &body_hash)).await;
            let failed = match attempt {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(Failed::Lasting(failure))) => return Err(failure),
                Ok(Err(Failed::Passing(why))) => why,
                Err(_) => format!("no answer within {REQUEST_TIMEOUT:?}"),
            };
            if retries == RETRIES_MAX {
                let text = format!("{} of alternator_export_endpoint: {failed}", self.store.authority);
                return Err(Failure::new("InternalServerError", text));
            }
            self.rt.sleep(pause).await;
            pause *= 2;
        }
        Err(unexpected("no try was made"))
    }

    async fn attempt(&self, call: &Call<'_>, body_hash: &str) -> Result<Response, Failed> {
        let mut idle = self.idle.borrow_mut().pop();
        if let Some(last) = &mut idle
            && !last.is_open().await
        {
            idle = None;
        }
        let mut connection = match idle {
            Some(idle) => idle,
            None => Connection::open(&self.rt, &self.store).await.map_err(Failed::Passing)?,
        };
        let request = self.request(call, body_hash).map_err(Failed::Lasting)?;
        let sent = connection.send(request, call.answer_bytes_max()).await;
        let response = sent.map_err(Failed::Passing)?;
        self.idle.borrow_mut().push(connection);
        let (status, text) = (response.status, String::from_utf8_lossy(&response.body));
        match status {
            200..300 | 416 => {
                // The completion of an upload may fail behind its status.
                let code = (call.method == Method::POST).then(|| xml::error(&text)).flatten();
                match code {
                    None => Ok(response),
                    Some((code, message)) => Err(Failed::Passing(format!("{code}: {message}"))),
                }
            }
            _ => {
                let (code, message) =
                    xml::error(&text).unwrap_or_else(|| (format!("status {status}"), String::new()));
                let is_passing = status >= 500 || status == 429 || status == 408 || code == "RequestTimeout";
                Err(match is_passing {
                    true => Failed::Passing(format!("{code}: {message}")),
                    false => Failed::Lasting(refused(status, &code, &message, call)),
                })
            }
        }
    }

    /// The request with its signature.
    fn request(&self, call: &Call<'_>, body_hash: &str) -> Result<Request<Full<Bytes>>, Failure> {
        let path = format!("/{}/{}", call.bucket.name, call.key);
        let path = path.strip_suffix('/').filter(|_| call.key.is_empty()).unwrap_or(&path);
        let query: Vec<String> =
            call.query.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
        let (query, time) = (query.join("&"), basic(self.rt.wall_micros().div_euclid(1_000_000)));
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, value: &str| {
            let value = HeaderValue::from_str(value)
                .map_err(|_| unexpected(&format!("{name} is not valid: {value:?}")));
            value.map(|value| _ = headers.insert(name, value))
        };
        add(HOST, &self.store.authority)?;
        add(HeaderName::from_static("x-amz-date"), &time)?;
        add(HeaderName::from_static("x-amz-content-sha256"), body_hash)?;
        if let Some(owner) = &call.bucket.owner {
            add(HeaderName::from_static("x-amz-expected-bucket-owner"), owner)?;
        }
        if let Some((first, len)) = call.range {
            add(RANGE, &format!("bytes={first}-{}", first + len as u64 - 1))?;
        }
        let store = &self.store;
        let signer = Signer { key: &store.key, secret: &store.secret, region: &store.region, service: "s3" };
        let signed =
            Signed { method: call.method.as_str(), path, query: &query, headers: &headers, body: &call.body };
        let authorization = signer.authorization(&signed, &time, body_hash);
        let encoded: Vec<String> = path.split('/').map(escaped).collect();
        let (encoded, mark) = (encoded.join("/"), if query.is_empty() { "" } else { "?" });
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{encoded}{mark}{query}"))
            .header(AUTHORIZATION, authorization)
            .header(CONTENT_LENGTH, call.body.len())
            .body(Full::new(call.body.clone()))
            .map_err(|error| unexpected(&error.to_string()))?;
        request.headers_mut().extend(headers);
        Ok(request)
    }
}

/// The failure for a request that the service refuses.
fn refused(status: u16, code: &str, message: &str, call: &Call<'_>) -> Failure {
    let known = match (code, status) {
        ("NoSuchBucket", _) => "S3NoSuchBucket",
        ("NoSuchKey", _) => "S3NoSuchKey",
        (_, 401 | 403) => "S3AccessDenied",
        _ => "InternalServerError",
    };
    Failure::new(known, format!("{} {}/{}: {code}: {message}", call.method, call.bucket.name, call.key))
}

pub(super) fn unexpected(what: &str) -> Failure {
    Failure::new(
        "InternalServerError",
        format!("the answer of alternator_export_endpoint is not of S3: {what}"),
    )
}

/// The tag of an object or a part, without quotes.
pub(super) fn etag(answer: &Response) -> String {
    let tag = answer.headers.get(ETAG).and_then(|value| value.to_str().ok()).unwrap_or_default();
    tag.trim_matches('"').to_owned()
}
