//! Clients that are known by the certificates that they show: STARTUP is answered with READY or an error, without an exchange.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rt::{LocalBoxFuture, Rt};
use session::{Authenticator, ClientTls, ConnectionStage, SaslExchange};
use testkit::certificates::{ANN, AUTHORITY, CLIENT_AUTHORITY, Certificate, EXPIRED, NODE, STRANGER};
use tls::{ClientAuth, Credentials, PeerCertificate, Pem, Policy};
use wire::client::AnswerBody;
use wire::{CqlError, ErrorKind, Version};

use crate::client::Client;
use crate::world::{ADDRESS, config, run_secured};

const LIMIT: Duration = Duration::from_secs(5);

/// Lets holders of `spiffe://torc/ann` in after a while, and answers with the names that others have shown.
struct Porter(RefCell<Option<Rt>>);

impl Authenticator for Porter {
    fn class(&self) -> Option<&str> {
        panic!("there is no exchange")
    }

    fn begin(&self, _: SocketAddr) -> Box<dyn SaslExchange> {
        panic!("there is no exchange")
    }

    fn certified(
        &self,
        _: SocketAddr,
        certificate: Option<&PeerCertificate>,
    ) -> Option<LocalBoxFuture<Result<String, CqlError>>> {
        let shown = certificate.map_or("nothing".to_owned(), |names| names.alternative_names_text());
        let known = certificate.and_then(|names| names.uri("spiffe://")) == Some("spiffe://torc/ann");
        let rt = self.0.borrow().clone();
        Some(Box::pin(async move {
            if let Some(rt) = rt {
                rt.sleep(Duration::from_millis(5)).await;
            }
            match known {
                true => Ok("ann".to_owned()),
                false => Err(CqlError::new(ErrorKind::AuthenticationFailed, shown)),
            }
        }))
    }
}

fn credentials(of: Certificate, truststore: &[u8], client_auth: ClientAuth) -> Arc<Credentials> {
    let pem = Pem {
        certificate: of.certificate.to_vec(),
        key: of.key.to_vec(),
        truststore: Some(truststore.to_vec()),
    };
    let policy = Policy { client_auth, verify_names: false };
    Arc::new(Credentials::new(pem, policy).expect("the certificates of the tests are good"))
}

fn client_tls(truststore: &[u8], client_auth: ClientAuth, optional: bool) -> ClientTls {
    let credentials = credentials(NODE, truststore, client_auth);
    ClientTls { credentials, optional, native_address: None, shard_aware_address: None }
}

/// A client that shows this certificate, or the error of the handshake.
async fn secured(rt: &Rt, of: Certificate, version: Version) -> Result<Client, tls::TlsError> {
    let mut client = Client::connect(rt, ADDRESS, None, version).await;
    let own = credentials(of, AUTHORITY, ClientAuth::No);
    client.stream = tls::connect(rt, client.stream, &own, ADDRESS.ip(), LIMIT).await?;
    Ok(client)
}

#[test]
fn a_certificate_is_a_login() {
    let truststore = [AUTHORITY, CLIENT_AUTHORITY].concat();
    for (client_auth, waits) in [(ClientAuth::Optional, false), (ClientAuth::Required, true)] {
        let tls = client_tls(&truststore, client_auth, true);
        let porter = Rc::new(Porter(RefCell::default()));
        let authenticator = porter.clone();
        run_secured(
            1,
            config(),
            Some(tls),
            move || authenticator.clone(),
            |world| async move {
                *porter.0.borrow_mut() = waits.then(|| world.rt.clone());
                for version in Version::ALL {
                    for compression in ["", "lz4"] {
                        let client = secured(&world.rt, ANN, version).await;
                        let mut client = client.expect("its authority is trusted");
                        client.start_up(&[("COMPRESSION", compression)]).await;
                        client.push_query(4, "big 300000");
                        client.flush().await;
                        assert_eq!(client.cell(4).await, vec![7; 300_000]);
                        let connections = world.sessions[0].connections().await;
                        let last = connections.last().expect("it is open");
                        assert_eq!((last.username.as_deref(), last.encrypted), (Some("ann"), true));
                        assert_eq!(last.stage, ConnectionStage::Ready);
                    }
                    let mut other =
                        secured(&world.rt, NODE, version).await.expect("its authority is trusted");
                    let AnswerBody::Error(error) = other.send_startup(&[]).await else { panic!("let in") };
                    assert_eq!(error.kind, ErrorKind::AuthenticationFailed);
                    assert!(error.message.contains("IP=10.0.0.1") && error.message.contains("DNS=localhost"));
                    other.is_closed().await;
                    // Without TLS, which is optional, nothing is shown.
                    let mut plain = world.connect(version).await;
                    let AnswerBody::Error(error) = plain.send_startup(&[]).await else { panic!("let in") };
                    assert_eq!(error.message, "nothing");
                    plain.is_closed().await;
                }
                assert_eq!(world.metrics().authentication_failures.get(), 6);
                for bad in [STRANGER, EXPIRED] {
                    // With TLS 1.3 a client is refused after its side of the handshake.
                    if let Ok(mut client) = secured(&world.rt, bad, Version::V4).await {
                        client.push(0, |request| request.startup(&[("CQL_VERSION", "3.0.0")]));
                        let bytes = client.take_bytes();
                        let _ = client.stream.write_all(&bytes).await;
                        assert!(client.stream.read_exact(&mut [0]).await.is_err(), "it was refused");
                    }
                }
                assert_eq!(world.metrics().authentication_failures.get(), 6, "refused before STARTUP");
            },
        );
    }
}

/// Requests that come together with STARTUP wait until it is answered; one that is refused ends them all.
#[test]
fn nothing_runs_before_the_login() {
    let truststore = [AUTHORITY, CLIENT_AUTHORITY].concat();
    let tls = client_tls(&truststore, ClientAuth::Required, false);
    let porter = Rc::new(Porter(RefCell::default()));
    let authenticator = porter.clone();
    run_secured(
        1,
        config(),
        Some(tls),
        move || authenticator.clone(),
        |world| async move {
            *porter.0.borrow_mut() = Some(world.rt.clone());
            for (of, begun) in [(ANN, 1), (NODE, 1)] {
                let mut client = secured(&world.rt, of, Version::V4).await.expect("its authority is trusted");
                client.push(0, |request| request.startup(&[("CQL_VERSION", "3.0.0")]));
                client.push_query(1, "void");
                client.flush().await;
                match client.answer(0).await {
                    AnswerBody::Ready => client.void(1).await,
                    AnswerBody::Error(_) => client.is_closed().await,
                    other => panic!("{other:?}"),
                }
                assert_eq!(world.begun.get(), begun);
            }
        },
    );
}
