//! One connection to the service: a request after the other.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use http1::{Activity, Io};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HeaderMap;
use rt::{ConnectOptions, Group, Instant, Replaceable, Rt, Stream, Task};
use tls::Trust;

/// How long a connection to one address, and the handshake of TLS, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An S3-compatible service, and the credentials to use it with.
#[derive(Clone)]
pub struct ObjectStore {
    /// The authority of its URL, as in `Host`.
    pub authority: String,
    /// Its name, which its certificate must be for.
    pub name: String,
    /// Its present addresses.
    pub addresses: Arc<Replaceable<Vec<SocketAddr>>>,
    /// The authorities of its certificate; none for HTTP without TLS.
    pub trust: Option<Arc<Trust>>,
    /// The region of signatures.
    pub region: String,
    /// The id of the access key.
    pub key: String,
    /// Its secret.
    pub secret: String,
}

impl std::fmt::Debug for ObjectStore {
    /// Without its credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectStore({})", self.authority)
    }
}

/// An answer.
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: Task<()>,
}

/// Requests have a timeout as a whole.
struct Unobserved;

impl Activity for Unobserved {
    fn read(&self, _: Instant) {}
    fn wrote(&self, _: Instant) {}
}

impl Connection {
    /// A connection to the first address that answers.
    pub(super) async fn open(rt: &Rt, store: &ObjectStore) -> Result<Self, String> {
        let mut failure = format!("{} has no address", store.name);
        for address in store.addresses.get().iter() {
            let connected =
                rt.timeout(CONNECT_TIMEOUT, rt.net().connect(*address, ConnectOptions::default()));
            let stream = match connected.await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    failure = error.to_string();
                    continue;
                }
                Err(_) => {
                    failure = format!("{address} did not answer in {CONNECT_TIMEOUT:?}");
                    continue;
                }
            };
            return Self::over(rt, store, stream).await;
        }
        Err(failure)
    }

    async fn over(rt: &Rt, store: &ObjectStore, stream: Stream) -> Result<Self, String> {
        let stream = match &store.trust {
            None => stream,
            Some(trust) => {
                let secured = tls::connect_to(rt, stream, trust, &store.name, CONNECT_TIMEOUT).await;
                secured.map_err(|error| error.to_string())?
            }
        };
        let io = Io::new(rt.clone(), stream, Rc::new(Unobserved));
        let (sender, driver) = handshake(io).await.map_err(|error| error.to_string())?;
        let driver = rt.spawn(Group::Maintenance, async move {
            if let Err(error) = driver.await {
                tracing::debug!("a connection for exports and imports ended: {error}");
            }
        });
        Ok(Self { sender, _driver: driver })
    }

    /// Whether it carries out another request, once it is done with the last one.
    pub(super) async fn is_open(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// The answer to a request; its body has at most so many bytes.
    pub(super) async fn send(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Response, String> {
        let response = self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, mut body) = response.into_parts();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len() + data.len() > bytes_max {
                return Err(format!("an answer of more than {bytes_max} bytes"));
            }
            bytes.extend_from_slice(data);
        }
        Ok(Response { status: head.status.as_u16(), headers: head.headers, body: bytes.freeze() })
    }
}
