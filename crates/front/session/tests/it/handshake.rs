//! The first messages: options, start-up, authentication, shards.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use rt::LocalBoxFuture;
use session::{AllowAll, Authenticator, ConnectionStage, SaslExchange, SaslStep};
use wire::client::{AnswerBody, ResultBody};
use wire::{CqlError, ErrorKind, Version};

use crate::client::Client;
use crate::world::{ADDRESS, SHARD_AWARE, config, run, run_with};

#[test]
fn every_version_and_compression() {
    run(|world| async move {
        for version in Version::ALL {
            for compression in ["", "lz4", "snappy"] {
                if (version, compression) == (Version::V5, "snappy") {
                    continue;
                }
                let mut client = world.connect(version).await;
                client.push(3, |request| request.options());
                client.flush().await;
                assert!(matches!(client.answer(3).await, AnswerBody::Supported(_)));
                client.start_up(&[("COMPRESSION", compression)]).await;
                client.push_query(4, "big 300000");
                client.push_query(5, "big 3000");
                client.push_value(6, "length", &[1; 200_000]);
                client.flush().await;
                assert_eq!(client.cell(4).await, vec![7; 300_000]);
                assert_eq!(client.cell(5).await, vec![7; 3000]);
                assert_eq!(client.cell(6).await, b"200000");
            }
        }
    });
}

#[test]
fn statements_change_the_keyspace_in_use() {
    run(|world| async move {
        let mut client = world.ready(Version::V4).await;
        assert!(matches!(client.query("use k1").await, AnswerBody::Result(ResultBody::SetKeyspace(_))));
        client.push_query(1, "keyspace");
        client.flush().await;
        assert_eq!(client.cell(1).await, b"k1");
        let connections = world.sessions[0].connections().await;
        assert_eq!(connections[0].keyspace_name.as_deref(), Some("k1"));
        assert_eq!(connections[0].request_count, 2);
        assert_eq!(connections[0].stage, ConnectionStage::Ready);
        assert_eq!(connections[0].protocol_version, Some(4));
    });
}

#[test]
fn start_up_that_cannot_be() {
    run(|world| async move {
        for (version, options, expected) in [
            (Version::V4, &[("COMPRESSION", "zip")], "Unknown compression algorithm: zip"),
            (Version::V5, &[("COMPRESSION", "snappy")], "Snappy compression is not supported in protocol V5"),
        ] {
            let mut client = world.connect(version).await;
            let AnswerBody::Error(error) = client.send_startup(options).await else { panic!("accepted") };
            assert_eq!(error, CqlError::new(ErrorKind::ProtocolError, expected));
            client.is_closed().await;
        }
        let mut client = world.connect(Version::V4).await;
        client.push(0, |request| request.startup(&[]));
        client.flush().await;
        assert_eq!(client.error(0).await.message, "Missing value CQL_VERSION in STARTUP message");
        client.is_closed().await;
    });
}

#[test]
fn messages_out_of_place() {
    run(|world| async move {
        let mut client = world.connect(Version::V4).await;
        client.push_query(5, "void");
        client.flush().await;
        let error = client.error(5).await;
        assert_eq!(error.message, "Unexpected message QUERY, expecting STARTUP or OPTIONS");
        assert_eq!(error.kind, ErrorKind::ProtocolError);
        client.is_closed().await;

        let mut client = world.ready(Version::V4).await;
        client.push(6, |request| request.startup(&[("CQL_VERSION", "3.0.0")]));
        client.push(7, |request| request.auth_response(None));
        client.push_query(8, "void");
        client.flush().await;
        assert!(client.error(6).await.message.contains("already initialized"));
        assert_eq!(client.error(7).await.kind, ErrorKind::ProtocolError);
        client.void(8).await;
    });
}

#[test]
fn supported_names_the_shard() {
    run_with(
        3,
        config(),
        || Rc::new(AllowAll),
        |world| async move {
            let mut seen = Vec::new();
            for _ in 0..6 {
                let mut client = world.connect(Version::V4).await;
                seen.push(supported(&mut client, "SCYLLA_SHARD").await);
                assert_eq!(supported(&mut client, "SCYLLA_NR_SHARDS").await, "3");
                assert_eq!(supported(&mut client, "SCYLLA_SHARD_AWARE_PORT").await, "19042");
                assert_eq!(supported(&mut client, "PROTOCOL_VERSIONS").await, "3/v3,4/v4,5/v5");
                assert_eq!(supported(&mut client, "COMPRESSION").await, "snappy,lz4");
                client.start_up(&[("DRIVER_NAME", "test")]).await;
                // Stays open: shards are chosen by their connections.
                std::mem::forget(client);
            }
            seen.sort();
            assert_eq!(seen, ["0", "0", "1", "1", "2", "2"], "the ordinary port spreads evenly");
            for port in [50_000, 50_001, 50_002, 50_003] {
                let local = Some(SocketAddr::from(([127, 0, 0, 9], port)));
                let mut client = Client::connect(&world.rt, SHARD_AWARE, local, Version::V4).await;
                assert_eq!(supported(&mut client, "SCYLLA_SHARD").await, (port % 3).to_string());
                client.start_up(&[]).await;
                client.push_value(1, "length", b"four");
                client.flush().await;
                assert_eq!(client.cell(1).await, b"4");
                let connections = world.sessions[0].connections().await;
                let own = connections.iter().find(|connection| connection.address.port() == port);
                assert_eq!(own.expect("listed").shard, port % 3);
            }
            let named = world.sessions[0].connections().await;
            assert_eq!(named.iter().filter(|c| c.driver_name.as_deref() == Some("test")).count(), 6);
        },
    );
}

async fn supported(client: &mut Client, name: &str) -> String {
    client.push(3, |request| request.options());
    client.flush().await;
    let AnswerBody::Supported(options) = client.answer(3).await else { panic!("not SUPPORTED") };
    let (_, values) = options.iter().find(|(key, _)| key.as_str() == name).expect("the option is there");
    values.iter().map(|value| value.as_str()).collect::<Vec<_>>().join(",")
}

/// Asks for a second token, after a while; the password is "sesame".
struct Doorman;

struct Question {
    asked: bool,
}

impl Authenticator for Doorman {
    fn class(&self) -> Option<&str> {
        Some("org.apache.cassandra.auth.PasswordAuthenticator")
    }

    fn begin(&self, _: SocketAddr) -> Box<dyn SaslExchange> {
        Box::new(Question { asked: false })
    }
}

impl SaslExchange for Question {
    fn step(&mut self, token: Option<Bytes>) -> LocalBoxFuture<Result<SaslStep, CqlError>> {
        let first = !std::mem::replace(&mut self.asked, true);
        Box::pin(async move {
            match token.as_deref() {
                _ if first => Ok(SaslStep::Challenge(Bytes::from_static(b"and?"))),
                Some(b"sesame") => Ok(SaslStep::Success { user: "ali".into(), token: None }),
                _ => Err(CqlError::new(ErrorKind::AuthenticationFailed, "wrong password")),
            }
        })
    }
}

#[test]
fn authentication() {
    run_with(
        1,
        config(),
        || Rc::new(Doorman),
        |world| async move {
            for version in Version::ALL {
                let mut client = world.connect(version).await;
                let class = "org.apache.cassandra.auth.PasswordAuthenticator";
                assert_eq!(client.send_startup(&[]).await, AnswerBody::Authenticate(class.into()));
                client.push(1, |request| request.auth_response(Some(b"")));
                client.flush().await;
                assert_eq!(
                    client.answer(1).await,
                    AnswerBody::AuthChallenge(Some(Bytes::from_static(b"and?")))
                );
                client.push(2, |request| request.auth_response(Some(b"sesame")));
                client.push_query(3, "void");
                client.flush().await;
                assert_eq!(client.answer(2).await, AnswerBody::AuthSuccess(None));
                client.void(3).await;
                let connections = world.sessions[0].connections().await;
                assert_eq!(connections.last().and_then(|c| c.username.as_deref()), Some("ali"));

                let mut client = world.connect(version).await;
                client.send_startup(&[]).await;
                assert_eq!(
                    world.sessions[0].connections().await.last().map(|c| c.stage),
                    Some(ConnectionStage::Authenticating)
                );
                client.push(1, |request| request.auth_response(None));
                client.push(2, |request| request.auth_response(Some(b"open")));
                client.flush().await;
                client.answer(1).await;
                assert_eq!(client.error(2).await.kind, ErrorKind::AuthenticationFailed);
                client.is_closed().await;

                let mut client = world.connect(version).await;
                client.send_startup(&[]).await;
                client.push_query(1, "void");
                client.flush().await;
                assert_eq!(
                    client.error(1).await.message,
                    "Unexpected message QUERY, expecting AUTH_RESPONSE"
                );
                client.is_closed().await;
            }
            assert_eq!(world.metrics().authentication_failures.get(), 3);
        },
    );
}

#[test]
fn a_port_in_use_is_an_error() {
    run(|world| async move {
        let error = world.sessions[0].listen().await.expect_err("the port is taken");
        assert!(error.to_string().contains(&ADDRESS.to_string()));
    });
}
