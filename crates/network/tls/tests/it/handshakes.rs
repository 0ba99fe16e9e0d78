//! Which peers are accepted and which refused, and the errors of both sides.

use std::time::Duration;

use rt::{Rt, Stream};
use rt_sim::Config;
use testkit::certificates::{AUTHORITY, EXPIRED, MISNAMED, NODE, STRANGER};
use tls::{ClientAuth, Credentials, Pem, Policy, TlsError};

use crate::world::{LENIENT, LIMIT, STRICT, credentials, meet, pem, shake};

#[test]
fn peers_of_one_authority_connect() {
    for policy in [STRICT, LENIENT] {
        let (server, client) = shake(credentials(NODE, policy), credentials(NODE, policy));
        assert_eq!((server, client), (Ok(()), Ok(())));
    }
}

#[test]
fn a_wrong_certificate_of_the_server_is_named_on_both_sides() {
    for (certificate, policy, client_says, server_says) in [
        (STRANGER, LENIENT, "issued by nobody whom the truststore", "does not trust the issuer of"),
        (EXPIRED, LENIENT, "has expired", "has expired"),
        (MISNAMED, STRICT, "is not for 10.0.0.1, but for", "does not like this node's certificate"),
    ] {
        let (server, client) = shake(credentials(certificate, policy), credentials(NODE, policy));
        let (server, client) = (server.unwrap_err(), client.unwrap_err());
        assert!(client.contains(client_says), "{client}");
        assert!(server.contains(server_says), "{server}");
    }
    let (server, client) = shake(credentials(MISNAMED, LENIENT), credentials(NODE, LENIENT));
    assert_eq!((server, client), (Ok(()), Ok(())), "names are looked at only when asked for");
}

#[test]
fn a_wrong_certificate_of_the_client_is_named_on_both_sides() {
    for (certificate, server_says, client_says) in [
        (STRANGER, "issued by nobody whom the truststore", "does not trust the issuer of"),
        (EXPIRED, "has expired", "has expired"),
    ] {
        let (server, client) = shake(credentials(NODE, STRICT), credentials(certificate, STRICT));
        let (server, client) = (server.unwrap_err(), client.unwrap_err());
        assert!(server.contains(server_says), "{server}");
        assert!(client.contains(client_says), "{client}");
    }
    let (server, client) = shake(credentials(NODE, LENIENT), credentials(STRANGER, LENIENT));
    assert_eq!((server, client), (Ok(()), Ok(())), "without client authentication any client is accepted");
}

#[test]
fn plain_text_is_distinguished_from_tls() {
    let said = |optional| {
        let server = credentials(NODE, LENIENT);
        let accept = move |rt: Rt, stream: Stream| async move {
            let accepted = tls::accept(&rt, stream, &server, optional, LIMIT).await?;
            assert!(!accepted.encrypted);
            let mut heard = [0; 15];
            accepted.stream.read_exact(&mut heard).await.map_err(|error| TlsError::Io(error.to_string()))?;
            Ok(heard)
        };
        let connect = |_, stream: Stream| async move {
            stream.write_all(b"hello, who's it").await.expect("somebody listens");
            // Until the other side closes.
            while stream.read(&mut [0; 16]).await.is_ok_and(|read| read > 0) {}
        };
        meet(2, Config::default(), accept, connect).0
    };
    assert_eq!(said(false), Err(TlsError::Plaintext(b"hello, w".to_vec())));
    assert_eq!(said(true), Ok(*b"hello, who's it"));
}

#[test]
fn a_server_without_tls_is_distinguished_from_one_with_it() {
    for (answers, said) in
        [(true, "it does not use TLS"), (false, "closed the connection during the TLS handshake")]
    {
        let accept = move |_, stream: Stream| async move {
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).await.expect("a client sends first");
            assert_eq!(hello[0], 22);
            if answers {
                stream.write_all(b"what do you mean?").await.expect("the client reads");
            }
            stream.shutdown().await.expect("the client is there");
            while stream.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {}
        };
        let client = credentials(NODE, LENIENT);
        let connect = move |rt: Rt, stream: Stream| async move {
            let address = stream.peer_addr().expect("it is connected").ip();
            tls::connect(&rt, stream, &client, address, LIMIT).await.map(|_| ())
        };
        let ((), outcome) = meet(3, Config::default(), accept, connect);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_handshake_has_an_end() {
    for (sent, expected) in [
        (Vec::new(), TlsError::TimedOut(LIMIT)),
        (vec![22, 3, 1, 0xff], TlsError::TimedOut(LIMIT)),
        // A record of 16 KiB, and then nothing.
        ([vec![22, 3, 1, 0x40, 0], vec![1; 100]].concat(), TlsError::TimedOut(LIMIT)),
    ] {
        let server = credentials(NODE, LENIENT);
        let accept = move |rt: Rt, stream: Stream| async move {
            let start = rt.now();
            let outcome = tls::accept(&rt, stream, &server, false, LIMIT).await.map(|_| ());
            (outcome, rt.now() - start)
        };
        let connect = move |rt: Rt, stream: Stream| async move {
            stream.write_all(&sent).await.expect("somebody listens");
            rt.sleep(2 * LIMIT).await;
        };
        let ((outcome, took), ()) = meet(4, Config::default(), accept, connect);
        assert_eq!(outcome, Err(expected));
        assert!(took < LIMIT + Duration::from_millis(100), "{took:?}");
    }
}

#[test]
fn endless_handshakes_are_refused() {
    let server = credentials(NODE, LENIENT);
    let accept = move |rt: Rt, stream: Stream| async move {
        tls::accept(&rt, stream, &server, false, LIMIT).await.map(|_| ())
    };
    let connect = |_, stream: Stream| async move {
        // A ClientHello that says it has 16 MiB, in records of 16,000 bytes.
        let mut first = vec![1, 0xff, 0xff, 0xff];
        first.resize(16_000, 0);
        let mut sent = 0usize;
        loop {
            let record = [&[22, 3, 1, 0x3e, 0x80][..], &first].concat();
            if stream.write_all(&record).await.is_err() {
                return sent;
            }
            sent += record.len();
            first.fill(0);
        }
    };
    let (outcome, sent) = meet(5, Config::default(), accept, connect);
    assert!(matches!(outcome, Err(TlsError::Refused(_) | TlsError::TooLong(_))), "{outcome:?}");
    assert!(sent < 1 << 20, "{sent} bytes were taken");
}

#[test]
fn files_that_make_no_sense_are_named() {
    let good = pem(NODE);
    for (pem, policy, said) in [
        (Pem { certificate: b"x".to_vec(), ..good.clone() }, LENIENT, "certificate: there is no certificate"),
        (Pem { key: Vec::new(), ..good.clone() }, LENIENT, "keyfile: no private key"),
        (
            Pem { key: STRANGER.key.to_vec(), ..good.clone() },
            LENIENT,
            "key does not belong to the certificate",
        ),
        (
            Pem { truststore: Some(Vec::new()), ..good.clone() },
            LENIENT,
            "truststore: there is no certificate",
        ),
        (Pem { truststore: None, ..good.clone() }, STRICT, "truststore: require_client_auth needs it"),
    ] {
        let error = Credentials::new(pem, policy).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(!format!("{good:?}").contains("PRIVATE"), "a key is not for a log");
}

#[test]
fn changed_files_count_for_the_next_connection() {
    let policy = Policy { client_auth: ClientAuth::No, ..STRICT };
    let server = credentials(EXPIRED, policy);
    assert!(shake(server.clone(), credentials(NODE, policy)).1.is_err());
    assert_eq!(server.replace(pem(EXPIRED)), Ok(false), "nothing has changed");
    assert!(server.replace(Pem { certificate: AUTHORITY.to_vec(), ..pem(NODE) }).is_err());
    assert_eq!(server.replace(pem(NODE)), Ok(true));
    assert_eq!(shake(server.clone(), credentials(NODE, policy)), (Ok(()), Ok(())));
    assert!(server.replace(Pem { key: Vec::new(), ..pem(NODE) }).is_err());
    assert_eq!(shake(server, credentials(NODE, policy)), (Ok(()), Ok(())), "the valid credentials stay");
}
