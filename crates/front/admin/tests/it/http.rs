//! The HTTP ports against clients that are slow, many or sent by a web page, over the simulated network.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use admin::{Answer, Call, Entrance, HttpServerConfig, Service};
use rt::{LocalBoxFuture, Rt, Stream};
use rt_sim::Config;

use crate::port::{self, connect};

thread_local! {
    /// Requests that were carried out to their end. A test is one thread.
    static ENDED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Answers with the path; `/slow` after almost an hour, `/slower` after more than one. A POST outlives its client.
struct Echo(Rt);

impl Service for Echo {
    fn call(&self, call: Call) -> LocalBoxFuture<Answer> {
        let rt = self.0.clone();
        Box::pin(async move {
            match call.path.as_str() {
                "/slow" => rt.sleep(Duration::from_secs(3_000)).await,
                "/slower" => rt.sleep(Duration::from_secs(10_000)).await,
                _ => {}
            }
            ENDED.with_borrow_mut(|ended| ended.push(format!("{} {}", call.method, call.path)));
            Answer { status: 200, content_type: "text/plain", body: format!("{} {}", call.method, call.path) }
        })
    }

    fn outlives_client(&self, call: &Call) -> bool {
        call.method == "POST"
    }
}

/// Runs clients against a port with these limits.
fn run<F: Future<Output = ()> + 'static>(connections_max: usize, clients: fn(Rt) -> F) {
    let parts = move |rt: &Rt| -> (HttpServerConfig, Entrance, Rc<dyn Service>) {
        let config = HttpServerConfig { connections_max, operations_max: 3, ..HttpServerConfig::default() };
        (config, Entrance::default(), Rc::new(Echo(rt.clone())))
    };
    port::run(Config { time_max: Duration::from_secs(100_000), ..Config::default() }, parts, clients);
}

/// All that comes until the port closes, at most for a while.
async fn rest(rt: &Rt, stream: &Stream) -> String {
    let mut all = Vec::new();
    let reading = async {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut bytes).await {
            all.extend_from_slice(&bytes[..read]);
        }
    };
    let _ = rt.timeout(Duration::from_secs(2), reading).await;
    String::from_utf8(all).expect("text")
}

async fn ask(rt: &Rt, request: &str) -> String {
    let stream = connect(rt).await;
    let _ = stream.write_all(request.as_bytes()).await;
    rest(rt, &stream).await
}

async fn is_closed(rt: &Rt, stream: &Stream) -> bool {
    let mut byte = [0; 1];
    !matches!(rt.timeout(Duration::from_millis(1), stream.read(&mut byte)).await, Err(_) | Ok(Ok(1..)))
}

const GOOD: &str = "GET /metrics HTTP/1.1\r\nhost: 10.0.0.1:9180\r\nconnection: close\r\n\r\n";

#[test]
fn slow_headers_do_not_close_the_port_to_others() {
    run(256, |rt| async move {
        let mut slow = Vec::new();
        for _ in 0..300 {
            slow.push(connect(&rt).await);
        }
        for second in 0..12_usize {
            for stream in &slow {
                let _ = stream.write_all(&GOOD.as_bytes()[second..=second]).await;
            }
            let answer = ask(&rt, GOOD).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("GET /metrics"), "{answer}");
            rt.sleep(Duration::from_secs(1)).await;
        }
        for stream in &slow {
            assert!(is_closed(&rt, stream).await, "a header may take ten seconds");
        }
    });
}

#[test]
fn time_is_limited_at_every_step_but_the_service() {
    run(256, |rt| async move {
        // Nothing, half a header, half a body.
        let silent = connect(&rt).await;
        let header = connect(&rt).await;
        header.write_all(&GOOD.as_bytes()[..20]).await.unwrap();
        let body = connect(&rt).await;
        let head = "POST /x HTTP/1.1\r\nhost: 10.0.0.1\r\ncontent-length: 100\r\n\r\nx";
        body.write_all(head.as_bytes()).await.unwrap();
        // Idle after an answer.
        let idle = connect(&rt).await;
        idle.write_all(GOOD.replace("connection: close\r\n", "").as_bytes()).await.unwrap();
        let serving = connect(&rt).await;
        serving.write_all(GOOD.replace("/metrics", "/slow").as_bytes()).await.unwrap();
        rt.sleep(Duration::from_secs(9)).await;
        assert!(!is_closed(&rt, &silent).await && !is_closed(&rt, &header).await);
        rt.sleep(Duration::from_secs(2)).await;
        assert!(is_closed(&rt, &silent).await && is_closed(&rt, &header).await);
        assert!(rest(&rt, &body).await.starts_with("HTTP/1.1 408"));
        assert!(rest(&rt, &idle).await.contains("GET /metrics") && !is_closed(&rt, &idle).await);
        rt.sleep(Duration::from_secs(90)).await;
        assert!(is_closed(&rt, &idle).await);
        rt.sleep(Duration::from_secs(2_950)).await;
        assert!(rest(&rt, &serving).await.ends_with("GET /slow"));
    });
}

#[test]
fn a_request_that_takes_longer_than_a_connection_lives_is_answered() {
    run(256, |rt| async move {
        let last = connect(&rt).await;
        last.write_all(GOOD.replace("connection: close\r\n", "").replace("/metrics", "/slower").as_bytes())
            .await
            .unwrap();
        rt.sleep(Duration::from_secs(9_999)).await;
        let answer = rest(&rt, &last).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("GET /slower"), "{answer}");
        assert!(answer.contains("connection: close") && is_closed(&rt, &last).await, "{answer}");
        // One that keeps asking lives no longer than an hour.
        let asking = connect(&rt).await;
        let keep = GOOD.replace("connection: close\r\n", "");
        for _ in 0..59 {
            asking.write_all(keep.as_bytes()).await.unwrap();
            let answer = rest(&rt, &asking).await;
            assert!(answer.ends_with("GET /metrics"), "{answer}");
            rt.sleep(Duration::from_secs(58)).await;
        }
        rt.sleep(Duration::from_secs(61)).await;
        assert!(is_closed(&rt, &asking).await);
    });
}

#[test]
fn operations_end_without_their_clients_and_questions_do_not() {
    run(256, |rt| async move {
        let begin = |method: &'static str| {
            let rt = rt.clone();
            async move {
                let stream = connect(&rt).await;
                let request = GOOD.replace("GET /metrics", &format!("{method} /slow"));
                stream.write_all(request.as_bytes()).await.unwrap();
                rt.sleep(Duration::from_secs(1)).await;
            }
        };
        for _ in 0..3 {
            begin("POST").await;
            begin("GET").await;
        }
        let post = GOOD.replace("GET /metrics", "POST /quick");
        let refused = ask(&rt, &post).await;
        assert!(refused.starts_with("HTTP/1.1 503"), "there are three already: {refused}");
        assert!(ask(&rt, GOOD).await.starts_with("HTTP/1.1 200"));
        rt.sleep(Duration::from_secs(3_010)).await;
        let ended = ENDED.take();
        assert_eq!(ended, ["GET /metrics", "POST /slow", "POST /slow", "POST /slow"]);
        assert!(ask(&rt, &post).await.starts_with("HTTP/1.1 200"));
    });
}

#[test]
fn bodies_and_headers_are_bounded() {
    run(256, |rt| async move {
        let post = |len: usize| {
            format!(
                "POST /x HTTP/1.1\r\nhost: 10.0.0.1\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n"
            )
        };
        let answer = ask(&rt, &(post(65_536) + &"x".repeat(65_536))).await;
        assert!(answer.ends_with("POST /x"), "{answer}");
        let answer = ask(&rt, &(post(65_537) + &"x".repeat(65_537))).await;
        // Unread bytes may take the answer away.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
        let chunked =
            "POST /x HTTP/1.1\r\nhost: 10.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n20000\r\n".to_owned();
        let answer = ask(&rt, &(chunked + &"x".repeat(0x20000))).await;
        // Unread bytes may take the answer away.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
        let long = format!("GET /{} HTTP/1.1\r\nhost: 10.0.0.1\r\n\r\n", "x".repeat(100_000));
        let answer = ask(&rt, &long).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        let many = format!("GET / HTTP/1.1\r\nhost: 10.0.0.1\r\n{}\r\n", "a: b\r\n".repeat(1_000));
        let answer = ask(&rt, &many).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    });
}

#[test]
fn requests_of_web_pages_are_refused() {
    run(256, |rt| async move {
        let post = |headers: &str| {
            format!("POST /storage_service/stop_daemon HTTP/1.1\r\n{headers}connection: close\r\n\r\n")
        };
        for foreign in [
            "host: evil.example\r\n",
            "host: evil.example:10000\r\norigin: http://evil.example:10000\r\n",
            "host: 10.0.0.1:9180\r\norigin: http://evil.example\r\n",
            "host: 10.0.0.1:9180\r\norigin: null\r\n",
            "host: 10.0.0.1:9180\r\nsec-fetch-site: cross-site\r\n",
            "host: 10.0.0.1:9180\r\nsec-fetch-site: none\r\n",
        ] {
            let answer = ask(&rt, &post(foreign)).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{foreign}: {answer}");
        }
        let answer = ask(&rt, &post("host: localhost\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    });
}

#[test]
fn connections_that_serve_are_not_closed_for_others() {
    run(2, |rt| async move {
        let slow = GOOD.replace("/metrics", "/slow");
        let first = connect(&rt).await;
        first.write_all(slow.as_bytes()).await.unwrap();
        rt.sleep(Duration::from_secs(1)).await;
        assert!(ask(&rt, GOOD).await.ends_with("GET /metrics"));
        let second = connect(&rt).await;
        second.write_all(slow.as_bytes()).await.unwrap();
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(ask(&rt, GOOD).await, "", "both carry out requests");
        assert!(!is_closed(&rt, &first).await && !is_closed(&rt, &second).await);
    });
}
