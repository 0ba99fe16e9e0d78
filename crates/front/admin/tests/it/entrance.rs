//! Clients beyond loopback, with names and passwords, with certificates and without either, over the simulated network.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::{Answer, Call, Entrance, HttpServerConfig, LoggedIn, Login, Service};
use rt::{LocalBoxFuture, Rt, Stream};
use rt_sim::Config;
use testkit::certificates::{AUTHORITY, NODE};
use tls::{ClientAuth, Credentials, Pem, Policy};

use crate::port::{self, SERVER, connect};

const LIMIT: Duration = Duration::from_secs(20);

/// Answers every request with its method.
struct Echo;

impl Service for Echo {
    fn call(&self, call: Call) -> LocalBoxFuture<Answer> {
        Box::pin(std::future::ready(Answer { status: 200, content_type: "text/plain", body: call.method }))
    }
}

/// Clients with the password `secret` may log in; `admin` is a superuser.
struct Roles;

impl Login for Roles {
    fn log_in(
        &self,
        address: SocketAddr,
        user: String,
        password: String,
    ) -> LocalBoxFuture<Result<LoggedIn, String>> {
        assert_eq!(address.ip(), SERVER.ip(), "the client's address counts for the lockout");
        let is_superuser = user == "admin";
        let result = match &*password {
            "secret" => Ok(LoggedIn { role: user, is_superuser }),
            _ => Err(format!("{user} is wrong")),
        };
        Box::pin(std::future::ready(result))
    }
}

fn credentials(client_auth: ClientAuth) -> Arc<Credentials> {
    let pem = Pem {
        certificate: NODE.certificate.to_vec(),
        key: NODE.key.to_vec(),
        truststore: Some(AUTHORITY.to_vec()),
    };
    let policy = Policy { client_auth, verify_names: true };
    Arc::new(Credentials::new(pem, policy).expect("the certificates of the tests are good"))
}

/// Runs clients against a port with this entrance.
fn run<F: Future<Output = ()> + 'static>(entrance: fn() -> Entrance, clients: fn(Rt) -> F) {
    let parts = move |_: &Rt| -> (HttpServerConfig, Entrance, Rc<dyn Service>) {
        (HttpServerConfig::default(), entrance(), Rc::new(Echo))
    };
    port::run(Config::default(), parts, clients);
}

/// The answer to a request with this line in its head, over a connection that was made.
async fn ask(stream: &Stream, method: &str, line: &str) -> String {
    let request = format!("{method} /x HTTP/1.1\r\nhost: 10.0.0.1\r\nconnection: close\r\n{line}\r\n");
    let _ = stream.write_all(request.as_bytes()).await;
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        all.extend_from_slice(&bytes[..read]);
    }
    String::from_utf8(all).expect("text")
}

async fn plain(rt: &Rt, method: &str, line: &str) -> String {
    ask(&connect(rt).await, method, line).await
}

/// A request with name and password.
fn named(user: &str, password: &str) -> String {
    let code = stdx::base64::encode(format!("{user}:{password}").as_bytes());
    format!("authorization: Basic {code}\r\n")
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

#[test]
fn a_client_from_afar_is_a_role() {
    let entrance = || Entrance { login: Some(Rc::new(Roles)), ..Entrance::default() };
    run(entrance, |rt| async move {
        for method in ["GET", "POST"] {
            let nobody = plain(&rt, method, "").await;
            assert_eq!(status(&nobody), "401");
            assert!(
                nobody.contains("www-authenticate: Basic realm=\"torc\"") && nobody.contains("-pw"),
                "{nobody}"
            );
            let wrong = plain(&rt, method, &named("admin", "guess")).await;
            assert!(status(&wrong) == "401" && wrong.contains("admin is wrong"), "{wrong}");
            let garbled = plain(&rt, method, "authorization: Bearer x\r\n").await;
            assert_eq!(status(&garbled), "400");
            let twice = [named("admin", "secret"), named("admin", "secret")].concat();
            assert_eq!(status(&plain(&rt, method, &twice).await), "400");
            assert!(plain(&rt, method, &named("admin", "secret")).await.ends_with(method));
        }
        assert!(plain(&rt, "GET", &named("ann", "secret")).await.ends_with("GET"));
        for method in ["POST", "DELETE", "PUT"] {
            let refused = plain(&rt, method, &named("ann", "secret")).await;
            assert!(status(&refused) == "403" && refused.contains("role ann is no superuser"), "{refused}");
        }
    });
}

#[test]
fn a_certificate_is_enough() {
    let entrance = || Entrance {
        login: Some(Rc::new(Roles)),
        tls: Some(credentials(ClientAuth::Required)),
        local_login: true,
    };
    run(entrance, |rt| async move {
        let stream =
            tls::connect(&rt, connect(&rt).await, &credentials(ClientAuth::No), SERVER.ip(), LIMIT).await;
        assert!(ask(&stream.expect("both certificates are good"), "POST", "").await.ends_with("POST"));
        assert_eq!(plain(&rt, "GET", &named("admin", "secret")).await, "", "beyond loopback only with TLS");
    });
}

#[test]
fn with_tls_a_page_of_the_port_itself_has_another_scheme() {
    let entrance = || Entrance { tls: Some(credentials(ClientAuth::No)), ..Entrance::default() };
    run(entrance, |rt| async move {
        for (origin, wanted) in [("https://10.0.0.1", "200"), ("http://10.0.0.1", "403")] {
            let stream = connect(&rt).await;
            let stream = tls::connect(&rt, stream, &credentials(ClientAuth::No), SERVER.ip(), LIMIT).await;
            let answer = ask(&stream.expect("it is good"), "POST", &format!("origin: {origin}\r\n")).await;
            assert_eq!(status(&answer), wanted, "{answer}");
        }
    });
}

#[test]
fn a_client_that_does_not_shake_hands_makes_room() {
    let entrance = || Entrance { tls: Some(credentials(ClientAuth::No)), ..Entrance::default() };
    run(entrance, |rt| async move {
        let silent = connect(&rt).await;
        let mut byte = [0; 1];
        let closed = rt.timeout(Duration::from_secs(11), silent.read(&mut byte)).await;
        assert!(!matches!(closed, Err(_) | Ok(Ok(1..))), "it is closed after the time of a header");
    });
}
