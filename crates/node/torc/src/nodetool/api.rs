//! The REST port of a node, asked over HTTP, with TLS and a login where that is wanted: one request, one connection.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer of more bytes is refused.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// An error, as the operator's message.
pub type Failure = String;

/// A node's administration port.
pub struct Api {
    host: String,
    port: u16,
    /// The lines of a request's head with name and password.
    login: String,
    tls: Option<Arc<ClientConfig>>,
}

/// The ways over which bytes go.
trait Transport: Read + Write {}
impl<T: Read + Write> Transport for T {}

impl Api {
    /// The port of a host, by name or address.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.trim_matches(['[', ']']).to_owned(), port, login: String::new(), tls: None }
    }

    /// Logs in as a role with each request (HTTP Basic, RFC 7617).
    ///
    /// # Errors
    /// When the name has a colon, which would end it.
    pub fn log_in(&mut self, user: &str, password: &str) -> Result<(), Failure> {
        if user.contains(':') {
            return Err("a user name with a colon cannot log in over HTTP".to_owned());
        }
        let code = stdx::base64::encode(format!("{user}:{password}").as_bytes());
        self.login = format!("authorization: Basic {code}\r\n");
        Ok(())
    }

    /// Uses TLS: the node's certificate must be of an authority of the first file; the second has a certificate to show, and its key.
    ///
    /// # Errors
    /// A sentence for the user when a file cannot be used.
    pub fn encrypt(&mut self, authorities: &Path, own: Option<(&Path, &Path)>) -> Result<(), Failure> {
        let refused = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Failure> {
            let all = CertificateDer::pem_file_iter(path).map_err(|error| refused(path, &error))?;
            let all = all.collect::<Result<Vec<_>, _>>().map_err(|error| refused(path, &error))?;
            if all.is_empty() {
                return Err(refused(path, &"it has no certificate"));
            }
            Ok(all)
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|error| refused(authorities, &error))?;
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let own_key = PrivateKeyDer::from_pem_file(key).map_err(|error| refused(key, &error))?;
                let chain = certificates(certificate)?;
                builder.with_client_auth_cert(chain, own_key).map_err(|error| refused(certificate, &error))?
            }
        };
        self.tls = Some(Arc::new(config));
        Ok(())
    }

    /// Asks for a value.
    ///
    /// # Errors
    /// A sentence for the user when the node cannot be reached or refuses, or its answer is no JSON.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        self.request("GET", path)
    }

    /// Asks for a value that must be text.
    ///
    /// # Errors
    /// As [`Api::get`]; also when the answer is no text.
    pub fn text(&self, path: &str) -> Result<String, Failure> {
        match self.get(path)? {
            Value::String(text) => Ok(text),
            other => Err(format!("{path} answered {other}, not a text")),
        }
    }

    /// Has the node do something.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn post(&self, path: &str) -> Result<Value, Failure> {
        self.request("POST", path)
    }

    /// Has the node remove something.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.request("DELETE", path)
    }

    fn request(&self, method: &str, path: &str) -> Result<Value, Failure> {
        let (head, body) = self.exchange(method, path).map_err(|error| self.unreachable(&error))?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        // A request that answers nothing has an empty body.
        let value = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice::<Value>(&body) };
        if status != "200" {
            let message = value.ok().and_then(|value| value["message"].as_str().map(str::to_owned));
            return Err(
                message.unwrap_or_else(|| format!("{method} {path} was answered with status {status}"))
            );
        }
        value.map_err(|error| {
            let (host, port) = (&self.host, self.port);
            format!("{host}:{port} answered {method} {path} with something that is not JSON ({error}); is it the REST port?")
        })
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let (host, port) = (&self.host, self.port);
        let what = match error.kind() {
            io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "it does not answer".to_owned(),
            io::ErrorKind::UnexpectedEof => {
                return format!(
                    "{host}:{port} ended the connection without an answer: the request may be under way or done"
                );
            }
            _ => error.to_string(),
        };
        format!("Failed to connect to '{host}:{port}': {what}. Is the node up, and its api_port {port}?")
    }

    /// The head and the body of the answer.
    fn exchange(&self, method: &str, path: &str) -> io::Result<(String, Vec<u8>)> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let mut stream = None;
        for address in (&*self.host, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(connected) => {
                    stream = Some(connected);
                    break;
                }
                Err(error) => failed = error,
            }
        }
        let stream = stream.ok_or(failed)?;
        let host = &self.host;
        let mut stream: Box<dyn Transport> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from(host.clone())
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
                let session = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
                Box::new(StreamOwned::new(session, stream))
            }
        };
        let login = &self.login;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{login}connection: close\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        stream.flush()?;
        let mut answer = Vec::new();
        match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
            // The node ended the connection without TLS's farewell; the answer's length is checked below.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !answer.is_empty() => {}
            read => drop(read?),
        }
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let garbled = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(garbled)?;
        let body = answer.split_off(end + 4);
        let head = String::from_utf8(answer).ok().filter(|head| head.starts_with("HTTP/1.1 "));
        Ok((head.ok_or_else(garbled)?, body))
    }
}

/// A part of a path or of a query, with everything escaped that means something there.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The result of a request for `/x`, by a client that is prepared so, to a server that answers with `answer`; and the request.
    fn exchange(answer: &'static [u8], prepare: fn(&mut Api)) -> (Result<Value, Failure>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1000];
            let len = stream.read(&mut request).unwrap();
            stream.write_all(answer).unwrap();
            String::from_utf8(request[..len].to_vec()).unwrap()
        });
        let mut api = Api::new("127.0.0.1", port);
        prepare(&mut api);
        (api.get("/x"), server.join().unwrap())
    }

    fn ask(answer: &'static [u8]) -> Result<Value, Failure> {
        let (result, request) = exchange(answer, |_| {});
        assert!(request.starts_with("GET /x HTTP/1.1\r\nhost: 127.0.0.1\r\n"));
        result
    }

    #[test]
    fn answers_are_understood_or_refused() {
        assert_eq!(ask(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n[1]"), Ok(serde_json::json!([1])));
        let missing = ask(b"HTTP/1.1 404 Not Found\r\n\r\n{\"message\": \"no such thing\", \"code\": 404}");
        assert_eq!(missing, Err("no such thing".to_owned()));
        assert_eq!(ask(b"HTTP/1.1 500 Oh\r\n\r\n"), Err("GET /x was answered with status 500".to_owned()));
        assert!(ask(b"HTTP/1.1 200 OK\r\n\r\n<html>").unwrap_err().contains("is it the REST port?"));
        assert!(ask(b"\x84\x00\x00\x00").unwrap_err().contains("is not HTTP"));
        assert!(ask(b"").unwrap_err().contains("may be under way"), "as when the node is stopped");
    }

    #[test]
    fn a_login_goes_with_the_request() {
        let (result, request) = exchange(b"HTTP/1.1 200 OK\r\n\r\n1", |api| {
            assert!(api.log_in("a:b", "c").is_err());
            api.log_in("a", "b:c").unwrap();
        });
        assert_eq!(result, Ok(serde_json::json!(1)));
        assert!(request.contains("\r\nauthorization: Basic YTpiOmM=\r\n"));
    }

    #[test]
    fn an_unreachable_node_is_named() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = Api::new("127.0.0.1", port).get("/x").unwrap_err();
        assert!(
            error.starts_with(&format!("Failed to connect to '127.0.0.1:{port}': nothing listens there")),
            "{error}"
        );
    }

    #[test]
    fn parts_of_paths_are_escaped() {
        assert_eq!(escape("ks-1_a.b~"), "ks-1_a.b~");
        assert_eq!(escape("a b/ä&=%"), "a%20b%2F%C3%A4%26%3D%25");
    }
}
