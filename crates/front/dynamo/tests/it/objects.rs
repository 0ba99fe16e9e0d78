//! Exports to and imports from a small S3 of the tests: in parts, over failures that pass and that do not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use dynamo::{Dynamo, Isolation, ObjectStore};
use http_body_util::{BodyExt, Full};
use http1::{Activity, Io};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use rt::{Group, Instant, ListenOptions, Replaceable, Rt};
use serde_json::{Value as Json, json};

use crate::memory::Memory;
use crate::node::{ask, done, on_a_node};
use crate::transfers::{ended, export_of, import_into, items};
use crate::{api, create};

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);
/// The account that owns the bucket.
const OWNER: &str = "111122223333";
/// Keys of a page of a list.
const PAGE: usize = 2;

/// The status and code that the service answers instead of carrying a request out; by the request's number, method and query.
type Fault = fn(u64, &Method, &str) -> Option<(u16, &'static str)>;

fn healthy(_: u64, _: &Method, _: &str) -> Option<(u16, &'static str)> {
    None
}

/// The objects of the bucket `b`, and the parts of uploads.
#[derive(Default)]
struct S3 {
    requests: u64,
    objects: BTreeMap<String, Bytes>,
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
    /// The most parts that an object had.
    parts_max: usize,
}

struct Unobserved;

impl Activity for Unobserved {
    fn read(&self, _: Instant) {}
    fn wrote(&self, _: Instant) {}
}

fn parameter(query: &str, wanted: &str) -> Option<String> {
    let mut all = query.split('&').filter_map(|one| one.split_once('='));
    all.find(|(name, _)| *name == wanted).map(|(_, value)| value.replace("%2F", "/"))
}

impl S3 {
    fn answer(&mut self, fault: Fault, request: &Request<Bytes>) -> (u16, String, Bytes) {
        self.requests += 1;
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let of = |status: u16, text: &str| (status, String::new(), Bytes::from(text.to_owned()));
        let refused = |status: u16, code: &str| {
            of(status, &format!("<Error><Code>{code}</Code><Message>why</Message></Error>"))
        };
        let signed = request.headers()["authorization"].to_str().unwrap();
        assert!(signed.contains("Credential=key/") && signed.contains("/there/s3/aws4_request"), "{signed}");
        assert!(signed.contains("host;") && signed.contains("x-amz-content-sha256;x-amz-date"), "{signed}");
        if request.headers().get("x-amz-expected-bucket-owner").is_some_and(|owner| *owner != *OWNER) {
            return refused(403, "AccessDenied");
        }
        if let Some((status, code)) = fault(self.requests, request.method(), query) {
            return refused(status, code);
        }
        let Some(key) = path.strip_prefix("/b/").or((path == "/b").then_some("")) else {
            return refused(404, "NoSuchBucket");
        };
        let upload = parameter(query, "uploadId");
        match (request.method(), upload) {
            (&Method::POST, None) => {
                let id = format!("u&{}", self.requests);
                self.uploads.insert(id.clone(), BTreeMap::new());
                of(200, &format!("<R><UploadId>{}</UploadId></R>", id.replace('&', "&amp;")))
            }
            (&Method::PUT, Some(id)) => {
                let number = parameter(query, "partNumber").unwrap().parse().unwrap();
                let Some(parts) = self.uploads.get_mut(&id.replace("%26", "&")) else {
                    return refused(404, "NoSuchUpload");
                };
                parts.insert(number, request.body().clone());
                (200, format!("\"part{number}\""), Bytes::new())
            }
            (&Method::POST, Some(id)) => {
                let parts = self.uploads.remove(&id.replace("%26", "&")).expect("it is under way");
                let listed = String::from_utf8(request.body().to_vec()).unwrap();
                assert_eq!(listed.matches("<Part>").count(), parts.len(), "{listed}");
                assert!(parts.values().rev().skip(1).all(|part| part.len() >= 5 << 20));
                self.parts_max = self.parts_max.max(parts.len());
                let whole: Vec<u8> = parts.into_values().flatten().collect();
                self.objects.insert(key.to_owned(), whole.into());
                of(200, "<R><ETag>&quot;whole&quot;</ETag></R>")
            }
            (&Method::DELETE, Some(id)) => {
                self.uploads.remove(&id.replace("%26", "&"));
                of(204, "")
            }
            (&Method::PUT, None) => {
                self.objects.insert(key.to_owned(), request.body().clone());
                (200, "\"small\"".to_owned(), Bytes::new())
            }
            (&Method::GET, None) if key.is_empty() => {
                let (prefix, after) =
                    (parameter(query, "prefix").unwrap(), parameter(query, "continuation-token"));
                let found = self.objects.iter().filter(|(key, _)| {
                    key.starts_with(&prefix) && after.as_ref().is_none_or(|after| *key > after)
                });
                let found: Vec<_> = found.take(PAGE + 1).collect();
                let mut list = format!("<ListBucketResult><IsTruncated>{}</IsTruncated>", found.len() > PAGE);
                for (key, object) in found.iter().take(PAGE) {
                    let len = object.len();
                    list += &format!(
                        "<Contents><Key>{}</Key><Size>{len}</Size></Contents>",
                        key.replace('/', "%2F")
                    );
                }
                if let Some((last, _)) = found.get(PAGE - 1).filter(|_| found.len() > PAGE) {
                    list += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
                }
                of(200, &format!("{list}</ListBucketResult>"))
            }
            (&Method::GET, None) => {
                let Some(object) = self.objects.get(key) else { return refused(404, "NoSuchKey") };
                let range = request.headers()["range"].to_str().unwrap().strip_prefix("bytes=").unwrap();
                let (first, last) = range.split_once('-').unwrap();
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                match first < object.len() {
                    true => (206, String::new(), object.slice(first..(last + 1).min(object.len()))),
                    false => refused(416, "InvalidRange"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Serves a small S3, with this fault; a connection ends where it has no status.
async fn start(rt: &Rt, fault: Fault) -> Rc<RefCell<S3>> {
    let s3 = Rc::new(RefCell::new(S3::default()));
    let listener = rt.net().listen(ADDRESS, ListenOptions::default()).await.expect("it is free");
    let (own, served) = (rt.clone(), s3.clone());
    rt.spawn(Group::Statement, async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (io, served) = (Io::new(own.clone(), stream, Rc::new(Unobserved)), served.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let served = served.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.expect("a body").to_bytes();
                    let request = Request::from_parts(head, body);
                    let (status, etag, body) = served.borrow_mut().answer(fault, &request);
                    let mut response = Response::builder().status(if status == 0 { 500 } else { status });
                    response = response.header("etag", etag);
                    if status == 0 {
                        response = response.header("connection", "close");
                    }
                    Ok::<_, Infallible>(response.body(Full::new(body)).unwrap())
                }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            let connection = builder.auto_date_header(false).serve_connection(io, service);
            own.spawn(Group::Statement, async move { _ = connection.await }).detach();
        }
    })
    .detach();
    s3
}

fn with_objects(rt: &Rt) -> Dynamo<Memory> {
    let store = ObjectStore {
        authority: ADDRESS.to_string(),
        name: "s3".to_owned(),
        addresses: Arc::new(Replaceable::new(vec![ADDRESS])),
        trust: None,
        region: "there".to_owned(),
        key: "key".to_owned(),
        secret: "secret".to_owned(),
    };
    api(Isolation::OnlyRmw).with_export_directory(rt, "/records".into(), Some(store))
}

/// A table whose export has more than a part, as its texts cannot be packed to less than half.
async fn fill(api: &Dynamo<Memory>, table: &str) {
    create(api, table, Some("N"));
    let mut state = 1_u64;
    for at in 0..60 {
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            format!("{state:016x}")
        });
        let text: String = words.take(24_000).collect();
        let item = json!({ "p": { "S": "p" }, "c": { "N": at.to_string() }, "v": { "S": text } });
        done(api, "PutItem", &json!({ "TableName": table, "Item": item })).await;
    }
}

async fn exported(rt: &Rt, api: &Dynamo<Memory>, request: &Json) -> Json {
    let begun = done(api, "ExportTableToPointInTime", request).await;
    ended(rt, api, &begun["ExportDescription"]["ExportArn"]).await
}

async fn round_trip(rt: Rt, fault: Fault) {
    rt.disk().create_dir_all("/records").await.unwrap();
    let (s3, api) = (start(&rt, fault).await, with_objects(&rt));
    fill(&api, "source").await;
    let export = exported(&rt, &api, &export_of("source")).await;
    assert_eq!(export["ExportStatus"], "COMPLETED", "{export}");
    let manifest = export["ExportManifest"].as_str().unwrap();
    let prefix = manifest.replace("manifest-summary.json", "data/");
    {
        let s3 = s3.borrow();
        assert!(s3.parts_max > 1 && s3.uploads.is_empty(), "{} parts", s3.parts_max);
        let files = String::from_utf8(s3.objects[&manifest.replace("summary", "files")].to_vec()).unwrap();
        assert!(files.contains("\"etag\":\"whole\"") && files.contains(&prefix), "{files}");
        for end in ["_started", "manifest-summary.md5", "manifest-files.md5"] {
            assert!(s3.objects.contains_key(&manifest.replace("manifest-summary.json", end)), "{end}");
        }
    }
    let begun = done(&api, "ImportTable", &import_into("target", &prefix)).await;
    let import = ended(&rt, &api, &begun["ImportTableDescription"]["ImportArn"]).await;
    assert_eq!(import["ImportStatus"], "COMPLETED", "{import}");
    assert_eq!((&import["ImportedItemCount"], &import["ErrorCount"]), (&json!(60), &json!(0)));
    assert_eq!(items(&api, "target").await, items(&api, "source").await);
    // Six objects are three pages of a list.
    let begun = done(&api, "ImportTable", &import_into("all", "x/")).await;
    let import = ended(&rt, &api, &begun["ImportTableDescription"]["ImportArn"]).await;
    assert_eq!(import["ImportedItemCount"], 60, "{import}");
}

#[test]
fn a_table_goes_through_objects() {
    on_a_node(|rt| round_trip(rt, healthy));
}

#[test]
fn failures_that_pass_are_passed() {
    on_a_node(|rt| {
        round_trip(rt, |number, _, _| match number % 4 {
            1 => Some((503, "SlowDown")),
            2 => Some((0, "InternalError")),
            _ => None,
        })
    });
}

#[test]
fn a_part_that_is_refused_fails_the_export_and_is_forgotten() {
    on_a_node(|rt| async move {
        rt.disk().create_dir_all("/records").await.unwrap();
        let s3 =
            start(&rt, |_, _, query| query.contains("partNumber=2").then_some((403, "AccessDenied"))).await;
        let api = with_objects(&rt);
        fill(&api, "source").await;
        let export = exported(&rt, &api, &export_of("source")).await;
        assert_eq!(
            (&export["ExportStatus"], &export["FailureCode"]),
            (&json!("FAILED"), &json!("S3AccessDenied"))
        );
        let text = export["FailureMessage"].as_str().unwrap();
        assert!(text.contains("AccessDenied: why"), "{text}");
        let s3 = s3.borrow();
        assert!(s3.uploads.is_empty(), "the parts are forgotten");
        assert_eq!(s3.objects.keys().filter(|key| !key.ends_with("_started")).count(), 0);
    });
}

#[test]
fn buckets_keys_and_services_that_are_not_there_are_named() {
    on_a_node(|rt| async move {
        rt.disk().create_dir_all("/records").await.unwrap();
        let api = with_objects(&rt);
        create(&api, "source", None);
        let export = exported(&rt, &api, &export_of("source")).await;
        assert_eq!(export["ExportStatus"], "FAILED", "nobody listens yet");
        assert!(export["FailureMessage"].as_str().unwrap().contains("127.0.0.1:9000"), "{export}");
        let _s3 = start(&rt, healthy).await;
        let mut request = export_of("source");
        request["S3Bucket"] = json!("other");
        assert_eq!(exported(&rt, &api, &request).await["FailureCode"], "S3NoSuchBucket");
        let begun = done(&api, "ImportTable", &import_into("target", "nothing/")).await;
        let import = ended(&rt, &api, &begun["ImportTableDescription"]["ImportArn"]).await;
        assert_eq!(import["FailureCode"], "S3NoSuchKey", "{import}");
    });
}

#[test]
fn a_bucket_of_another_owner_is_not_used() {
    on_a_node(|rt| async move {
        rt.disk().create_dir_all("/records").await.unwrap();
        let (s3, api) = (start(&rt, healthy).await, with_objects(&rt));
        create(&api, "source", None);
        let item = json!({ "TableName": "source", "Item": { "p": { "S": "a" } } });
        done(&api, "PutItem", &item).await;
        let mut request = export_of("source");
        request["S3BucketOwner"] = json!("999988887777");
        let export = exported(&rt, &api, &request).await;
        assert_eq!(export["FailureCode"], "S3AccessDenied", "{export}");
        assert!(s3.borrow().objects.is_empty());
        request["S3BucketOwner"] = json!(OWNER);
        let export = exported(&rt, &api, &request).await;
        assert_eq!((&export["ExportStatus"], &export["S3BucketOwner"]), (&json!("COMPLETED"), &json!(OWNER)));
        let prefix = export["ExportManifest"].as_str().unwrap().replace("manifest-summary.json", "data/");
        for (owner, status) in [("999988887777", "FAILED"), (OWNER, "COMPLETED")] {
            let mut request = import_into(&format!("of{owner}"), &prefix);
            let parameters = &mut request["TableCreationParameters"];
            parameters["AttributeDefinitions"] = json!([{ "AttributeName": "p", "AttributeType": "S" }]);
            parameters["KeySchema"] = json!([{ "AttributeName": "p", "KeyType": "HASH" }]);
            request["S3BucketSource"]["S3BucketOwner"] = json!(owner);
            let begun = done(&api, "ImportTable", &request).await;
            let import = ended(&rt, &api, &begun["ImportTableDescription"]["ImportArn"]).await;
            assert_eq!(import["ImportStatus"], status, "{import}");
        }
        request["S3BucketOwner"] = json!("me");
        let (status, refused) = ask(&api, "ExportTableToPointInTime", &request).await;
        assert_eq!(status, 400);
        assert!(refused["message"].as_str().unwrap().contains("at 's3BucketOwner'"), "{refused}");
        let folders = api.clone().with_export_directory(&rt, "/records".into(), None);
        request["S3BucketOwner"] = json!(OWNER);
        let (_, refused) = ask(&folders, "ExportTableToPointInTime", &request).await;
        assert!(refused["message"].as_str().unwrap().starts_with("S3BucketOwner: the folders"), "{refused}");
    });
}
