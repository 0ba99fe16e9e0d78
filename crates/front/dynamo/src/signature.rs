//! Signatures of requests: AWS Signature Version 4, in headers or in the query of a presigned URL. Pure: the signer is looked up by the
//! caller, and the time is an argument.
//!
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>

use hyper::HeaderMap;
use ring::{digest, hmac};
use rt::preempt::Pace;
use types::calendar::{Date, date_of, days_of};

use crate::error::{ApiError, ErrorKind, Result};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How far the clocks of a client and a node may be apart, seconds.
const SKEW_MAX: i64 = 15 * 60;
/// How long a presigned request may be good for, seconds.
const EXPIRES_MAX: i64 = 7 * 24 * 3600;

/// Bytes that are hashed between two steps of [`Pace`].
const CHUNK: usize = 64 << 10;

/// The parts of a request that are signed.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// Behind the question mark.
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// The signature of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The access key: the name of a role.
    pub(crate) key: String,
    /// Date, region, service and `aws4_request`.
    scope: String,
    headers: Vec<String>,
    signature: Vec<u8>,
    /// The time of the request as it was signed.
    time: String,
    presigned: bool,
}

fn error<T>(kind: ErrorKind, text: impl Into<String>) -> Result<T> {
    Err(ApiError::new(kind, text))
}

fn incomplete<T>(text: &str) -> Result<T> {
    error(ErrorKind::IncompleteSignature, text)
}

/// The seconds since 1970 of a time such as `20261123T174500Z`.
fn seconds(time: &str) -> Option<i64> {
    let bytes = time.as_bytes();
    if bytes.len() != 16 || bytes.get(8) != Some(&b'T') || bytes.get(15) != Some(&b'Z') {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = time.get(from..to)?;
        if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
    };
    let (month, day) = (number(4, 6)?, number(6, 8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let date = Date { year: number(0, 4)?, month: u32::try_from(month).ok()?, day: u32::try_from(day).ok()? };
    Some(days_of(date) * 86_400 + number(9, 11)? * 3600 + number(11, 13)? * 60 + number(13, 15)?)
}

/// The inverse of [`seconds`]: a time such as `20261123T174500Z`.
pub(crate) fn basic(seconds: i64) -> String {
    let (date, second) = (date_of(seconds.div_euclid(86_400)), seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{:04}{:02}{:02}T{hour:02}{minute:02}{second:02}Z", date.year, date.month, date.day)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// The same of many bytes; gives way to other tasks.
pub(crate) async fn sha256_in_steps(bytes: &[u8]) -> String {
    let (mut digest, mut pace) = (digest::Context::new(&digest::SHA256), Pace::default());
    for chunk in bytes.chunks(CHUNK) {
        digest.update(chunk);
        pace.step().await;
    }
    hex(digest.finish().as_ref())
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// Decodes `%20` and the like; bytes that are no text are left as they are.
pub(crate) fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let escaped = (*byte == b'%').then(|| text.get(at + 1..at + 3).and_then(unhex)).flatten();
        match escaped.as_deref() {
            Some([value]) => {
                out.push(*value);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Encodes all but letters, digits and `-_.~`.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The credentials by which this node signs requests of its own.
pub(crate) struct Signer<'a> {
    pub(crate) key: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

impl Signer<'_> {
    /// The value of `Authorization` for a request with all of its headers, among them `x-amz-date` with this time; the path is as it is before it
    /// is encoded.
    pub(crate) fn authorization(&self, request: &Signed<'_>, time: &str, body_hash: &str) -> String {
        let mut headers: Vec<String> = request.headers.keys().map(|name| name.as_str().to_owned()).collect();
        headers.sort();
        let date = time.get(..8).unwrap_or_default();
        let signature = Signature {
            key: self.key.to_owned(),
            scope: format!("{date}/{}/{}/aws4_request", self.region, self.service),
            headers,
            signature: Vec::new(),
            time: time.to_owned(),
            presigned: false,
        };
        let (key, text) = signature.signing(request, self.secret, body_hash);
        let signed = hex(hmac::sign(&key, text.as_bytes()).as_ref());
        let (scope, headers) = (&signature.scope, signature.headers.join(";"));
        format!("{ALGORITHM} Credential={}/{scope}, SignedHeaders={headers}, Signature={signed}", self.key)
    }
}

impl Signature {
    /// The signature of a request.
    ///
    /// # Errors
    /// When there is none, or it lacks a part.
    pub(crate) fn of(request: &Signed<'_>) -> Result<Self> {
        let signed = match request.headers.get("authorization").map(|value| value.to_str()) {
            Some(Ok(value)) => Self::of_header(value, request)?,
            Some(Err(_)) => return incomplete("Authorization header is not valid"),
            None => Self::of_query(request)?,
        };
        signed.check_headers(request.headers)?;
        Ok(signed)
    }

    fn of_header(value: &str, request: &Signed<'_>) -> Result<Self> {
        let Some(fields) = value.strip_prefix(ALGORITHM).filter(|rest| rest.starts_with(' ')) else {
            return incomplete(&format!("Authorization header requires the algorithm {ALGORITHM}"));
        };
        let field = |name: &str| {
            let mut fields = fields.split(',').filter_map(|field| field.trim().split_once('='));
            match fields.find(|(known, _)| *known == name) {
                Some((_, value)) => Ok(value),
                None => incomplete(&format!("Authorization header requires '{name}' parameter.")),
            }
        };
        let Some(time) = request.headers.get("x-amz-date").and_then(|value| value.to_str().ok()) else {
            return incomplete("Authorization header requires existence of a 'X-Amz-Date' header.");
        };
        Self::new(field("Credential")?, field("SignedHeaders")?, field("Signature")?, time, false)
    }

    fn of_query(request: &Signed<'_>) -> Result<Self> {
        let parameter = |name: &str| {
            let mut all = request.query.split('&').filter_map(|one| one.split_once('='));
            all.find(|(known, _)| *known == name).map(|(_, value)| unescaped(value))
        };
        let Some(signature) = parameter("X-Amz-Signature") else {
            return error(ErrorKind::MissingAuthenticationToken, "Request is missing Authentication Token");
        };
        let required = |name: &str| match parameter(name) {
            Some(value) => Ok(value),
            None => incomplete(&format!("AWS query-string parameters must include '{name}'.")),
        };
        if required("X-Amz-Algorithm")? != ALGORITHM {
            return incomplete(&format!("X-Amz-Algorithm must be {ALGORITHM}"));
        }
        let (credential, headers) = (required("X-Amz-Credential")?, required("X-Amz-SignedHeaders")?);
        Self::new(&credential, &headers, &signature, &required("X-Amz-Date")?, true)
    }

    /// Refuses a request with a header of AWS's own that is not signed: `X-Amz-Target` is the operation, and with another one the signature of a
    /// read would be that of a deletion.
    fn check_headers(&self, headers: &HeaderMap) -> Result<()> {
        let is_signed = |name: &str| self.headers.iter().any(|signed| signed == name);
        let mut own = headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("x-amz-"));
        match own.find(|name| !is_signed(name)) {
            None => Ok(()),
            Some(name) => error(
                ErrorKind::InvalidSignature,
                format!("'{name}' must be a 'SignedHeader' in the AWS Authorization."),
            ),
        }
    }

    fn new(credential: &str, headers: &str, signature: &str, time: &str, presigned: bool) -> Result<Self> {
        // A role's name may have slashes.
        let mut parts = credential.rsplitn(5, '/');
        let (end, service) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (region, date) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let key = parts.next().unwrap_or_default();
        if key.is_empty() || end != "aws4_request" || time.get(..8) != Some(date) {
            return error(
                ErrorKind::InvalidSignature,
                "Credential should be scoped to a valid key, the date of the request, region, service and 'aws4_request'.",
            );
        }
        let headers: Vec<String> = headers.split(';').map(str::to_owned).collect();
        // The header of a name that came many times would be written as often before anything is verified.
        let mut seen = std::collections::BTreeSet::new();
        if !headers.iter().all(|name| seen.insert(name.as_str())) {
            return error(ErrorKind::InvalidSignature, "SignedHeaders has a name twice.");
        }
        if !headers.iter().any(|name| name == "host") {
            return error(
                ErrorKind::InvalidSignature,
                "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.",
            );
        }
        Ok(Self {
            key: key.to_owned(),
            scope: format!("{date}/{region}/{service}/{end}"),
            headers,
            signature: unhex(signature).unwrap_or_default(),
            time: time.to_owned(),
            presigned,
        })
    }

    /// Refuses a request that is not signed with this secret, or not at this time (seconds since 1970).
    ///
    /// # Errors
    /// `InvalidSignatureException`, with the reason.
    pub(crate) async fn check(&self, request: &Signed<'_>, secret: &str, now: i64) -> Result<()> {
        self.check_time(request, now)?;
        let (key, text) = self.signing(request, secret, &sha256_in_steps(request.body).await);
        // The time that this takes does not tell where they differ.
        match hmac::verify(&key, text.as_bytes(), &self.signature) {
            Ok(()) => Ok(()),
            Err(_) => error(
                ErrorKind::InvalidSignature,
                "The request signature we calculated does not match the signature you provided. Check your AWS Secret \
                 Access Key and signing method. Consult the service documentation for details.",
            ),
        }
    }

    /// The key of the signature, and the text that it is of.
    fn signing(&self, request: &Signed<'_>, secret: &str, body_hash: &str) -> (hmac::Key, String) {
        let canonical = self.canonical(request, body_hash);
        let text = format!("{ALGORITHM}\n{}\n{}\n{}", self.time, self.scope, sha256(canonical.as_bytes()));
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in self.scope.split('/') {
            key = mac(&key, part).as_ref().to_vec();
        }
        (hmac::Key::new(hmac::HMAC_SHA256, &key), text)
    }

    fn check_time(&self, request: &Signed<'_>, now: i64) -> Result<()> {
        let Some(time) = seconds(&self.time) else {
            return error(ErrorKind::InvalidSignature, "Date must be in ISO-8601 'basic format'.");
        };
        let mut lasts = SKEW_MAX;
        if self.presigned {
            let parameters = request.query.split('&').filter_map(|one| one.split_once('='));
            let given =
                parameters.filter(|(name, _)| *name == "X-Amz-Expires").map(|(_, value)| value).next();
            lasts = match given.and_then(|value| value.parse().ok()) {
                Some(expires) if (1..=EXPIRES_MAX).contains(&expires) => expires,
                _ => return incomplete("X-Amz-Expires must be from 1 to 604800 seconds"),
            };
        }
        let (latest, earliest) = (now + SKEW_MAX, now - lasts);
        let bounds = |limit: i64, sign: char, seconds: i64| {
            format!("{} ({} {sign} {} min.)", basic(limit), basic(now), seconds / 60)
        };
        if time > latest {
            let bounds = bounds(latest, '+', SKEW_MAX);
            let text = format!("Signature not yet current: {} is still later than {bounds}", self.time);
            return error(ErrorKind::InvalidSignature, text);
        }
        if time < earliest {
            let bounds = bounds(earliest, '-', lasts);
            let text = format!("Signature expired: {} is now earlier than {bounds}", self.time);
            return error(ErrorKind::InvalidSignature, text);
        }
        Ok(())
    }

    /// The request in the form that is signed.
    fn canonical(&self, request: &Signed<'_>, body_hash: &str) -> String {
        let path = match request.path {
            "" => "/".to_owned(),
            path => path.split('/').map(escaped).collect::<Vec<_>>().join("/"),
        };
        let mut query: Vec<(String, String)> = request
            .query
            .split('&')
            .filter(|one| !one.is_empty())
            .map(|one| one.split_once('=').unwrap_or((one, "")))
            .filter(|(name, _)| !self.presigned || *name != "X-Amz-Signature")
            .map(|(name, value)| (escaped(&unescaped(name)), escaped(&unescaped(value))))
            .collect();
        query.sort();
        let query: Vec<String> = query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut headers = String::new();
        for name in &self.headers {
            let values = request.headers.get_all(name.as_str()).iter();
            let words = |value: &str| value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            let values: Vec<String> =
                values.map(|value| words(&String::from_utf8_lossy(value.as_bytes()))).collect();
            headers.push_str(&format!("{name}:{}\n", values.join(",")));
        }
        format!(
            "{}\n{path}\n{}\n{headers}\n{}\n{}",
            request.method,
            query.join("&"),
            self.headers.join(";"),
            body_hash
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use hyper::header::{HeaderName, HeaderValue};

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    /// The request `get-vanilla` of the examples that AWS publishes with its description.
    #[test]
    fn an_example_of_aws_is_right() {
        let authorization = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                             SignedHeaders=host;x-amz-date, \
                             Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        let lines = [
            ("host", "example.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
            ("authorization", authorization),
        ];
        let headers = headers(&lines);
        let request = Signed { method: "GET", path: "/", query: "", headers: &headers, body: b"" };
        let signature = Signature::of(&request).expect("a signature");
        assert_eq!(signature.key, "AKIDEXAMPLE");
        let signer = Signer { key: "AKIDEXAMPLE", secret: SECRET, region: "us-east-1", service: "service" };
        let mut unsigned = headers.clone();
        unsigned.remove("authorization");
        let signed = Signed { headers: &unsigned, ..request };
        assert_eq!(signer.authorization(&signed, "20150830T123600Z", &sha256(b"")), authorization);
        let now = seconds("20150830T123600Z").expect("a time");
        assert_eq!(now, 1_440_938_160);
        let check = |request: &Signed<'_>, secret: &str, now| {
            signature
                .check(request, secret, now)
                .now_or_never()
                .expect("nothing yields outside of an executor")
        };
        assert_eq!(check(&request, SECRET, now), Ok(()));
        for wrong in [
            check(&request, "other", now),
            check(&Signed { method: "POST", ..request }, SECRET, now),
            check(&Signed { body: b"x", ..request }, SECRET, now),
            check(&Signed { query: "a=b", ..request }, SECRET, now),
            check(&Signed { path: "/x", ..request }, SECRET, now),
            check(&request, SECRET, now + SKEW_MAX + 1),
            check(&request, SECRET, now - SKEW_MAX - 1),
        ] {
            assert_eq!(wrong.expect_err("another request").kind, ErrorKind::InvalidSignature);
        }
    }

    /// `X-Amz-Target` is the operation: with another one, the signature of a read is not that of a deletion.
    #[test]
    fn headers_of_aws_are_signed() {
        let of = |signed: &str, query: &str, lines: &[(&str, &str)]| {
            let value = format!(
                "AWS4-HMAC-SHA256 Credential=a/20150830/r/s/aws4_request, SignedHeaders={signed}, Signature=00"
            );
            let mut lines = lines.to_vec();
            if query.is_empty() {
                lines.extend([("x-amz-date", "20150830T123600Z"), ("authorization", &value)]);
            }
            let headers = headers(&lines);
            Signature::of(&Signed { method: "POST", path: "/", query, headers: &headers, body: b"" })
                .map(drop)
        };
        let sent = [("host", "h"), ("x-amz-target", "t"), ("x-amzn-trace-id", "1"), ("amz-sdk-request", "1")];
        assert_eq!(of("host;x-amz-date;x-amz-target", "", &sent), Ok(()), "as the clients of AWS sign");
        let presigned = |signed: &str| {
            format!(
                "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a/20150830/r/s/aws4_request&X-Amz-Date=20150830T123600Z\
                 &X-Amz-Expires=60&X-Amz-SignedHeaders={signed}&X-Amz-Signature=00"
            )
        };
        assert_eq!(of("", &presigned("host;x-amz-target"), &sent), Ok(()));
        for (missing, refused) in [
            ("x-amz-target", of("host;x-amz-date", "", &sent)),
            ("x-amz-date", of("host;x-amz-target", "", &sent)),
            (
                "x-amz-security-token",
                of("host;x-amz-date", "", &[("host", "h"), ("x-amz-security-token", "t")]),
            ),
            ("x-amz-target", of("", &presigned("host"), &sent)),
        ] {
            let refused = refused.expect_err(missing);
            assert_eq!(refused.kind, ErrorKind::InvalidSignature);
            assert!(refused.message.contains(missing), "{}", refused.message);
        }
    }

    #[test]
    fn invalid_signatures_are_refused() {
        let date = ("x-amz-date", "20150830T123600Z");
        for (value, kind) in [
            ("Basic abc", ErrorKind::IncompleteSignature),
            ("AWS4-HMAC-SHA256", ErrorKind::IncompleteSignature),
            ("AWS4-HMAC-SHA256 Credential=a", ErrorKind::IncompleteSignature),
            ("AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=zz", ErrorKind::InvalidSignature),
            (
                "AWS4-HMAC-SHA256 Credential=a/20150830/r/s/aws4_request, SignedHeaders=x, Signature=00",
                ErrorKind::InvalidSignature,
            ),
            (
                "AWS4-HMAC-SHA256 Credential=a/20150830/r/s/aws4_request, SignedHeaders=host;x-a;x-a, Signature=00",
                ErrorKind::InvalidSignature,
            ),
            (
                "AWS4-HMAC-SHA256 Credential=a/20150829/r/s/aws4_request, SignedHeaders=host, Signature=00",
                ErrorKind::InvalidSignature,
            ),
        ] {
            let headers = headers(&[date, ("authorization", value)]);
            let request = Signed { method: "POST", path: "/", query: "", headers: &headers, body: b"" };
            assert_eq!(Signature::of(&request).expect_err(value).kind, kind, "{value}");
        }
        let none = HeaderMap::new();
        for (query, kind) in [
            ("", ErrorKind::MissingAuthenticationToken),
            ("X-Amz-Signature=00", ErrorKind::IncompleteSignature),
            ("X-Amz-Signature=%", ErrorKind::IncompleteSignature),
        ] {
            let request = Signed { method: "POST", path: "/", query, headers: &none, body: b"" };
            assert_eq!(Signature::of(&request).expect_err(query).kind, kind, "{query}");
        }
        for time in ["", "20150830T123600", "2015083\u{e9}123600Z", "20151330T123600Z", "-0150830T123600Z"] {
            assert_eq!(seconds(time), None);
        }
        // Of no length at all, and with bytes that are no digits.
        for signature in ["", "0", "zz", "\u{e9}"] {
            let value = format!(
                "AWS4-HMAC-SHA256 Credential=a/b/20150830/r/s/aws4_request, SignedHeaders=host;x-amz-date, Signature={signature}"
            );
            let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else { continue };
            let mut headers = headers(&[date]);
            headers.insert("authorization", value);
            let request = Signed { method: "POST", path: "/", query: "", headers: &headers, body: b"" };
            if let Ok(found) = Signature::of(&request) {
                assert_eq!(found.key, "a/b");
                assert!(found.check(&request, "", 1_440_938_160).now_or_never().expect("at once").is_err());
            }
        }
    }
}
