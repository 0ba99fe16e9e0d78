//! Directories that lie, stall, talk too much or break off, over the simulated network.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ldap::UrlTemplate;
use rt::{Group, ListenOptions, Replaceable, Rt, ShardId, Stream, shard_mains};
use rt_sim::{NodeConfig, Simulation};
use testkit::certificates::{AUTHORITY, Certificate, NODE, STRANGER};
use tls::{ClientAuth, Credentials, Pem, Policy, Trust};

use super::{Directory, ShardDirectory, Source};

const PORT: u16 = 389;
const TIMEOUT: Duration = Duration::from_secs(2);

/// An answer of a directory: its number, its kind and its content.
fn answer(number: u8, kind: u8, content: &[u8]) -> Vec<u8> {
    let len = |bytes: &[u8]| u8::try_from(bytes.len()).expect("a short answer");
    let body = [&[2, 1, number, kind, len(content)][..], content].concat();
    [&[0x30, len(&body)][..], &body].concat()
}

fn ended(number: u8, kind: u8, code: u8) -> Vec<u8> {
    answer(number, kind, &[0x0a, 1, code, 4, 0, 4, 0])
}

const BOUND: u8 = 0x61;
const DONE: u8 = 0x65;
const EXTENDED: u8 = 0x78;

/// An entry of this name, with groups.
fn entry(number: u8, name: &str, groups: &[&str]) -> Vec<u8> {
    let tlv = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()][..], content].concat();
    let values: Vec<u8> = groups.iter().flat_map(|group| tlv(4, group.as_bytes())).collect();
    let attribute = tlv(0x30, &[tlv(4, b"CN"), tlv(0x31, &values)].concat());
    answer(number, 0x64, &[tlv(4, name.as_bytes()), tlv(0x30, &attribute)].concat())
}

/// The deed of a directory: after so many requests it answers this, or falls silent or away.
#[derive(Clone)]
enum Deed {
    Answer(Vec<u8>),
    /// Takes TLS with this certificate.
    Secure(Certificate),
    Close,
    Stall,
    /// Sends for ever.
    Flood,
}

use Deed::{Answer, Close, Flood, Secure, Stall};

async fn serve(rt: Rt, mut stream: Stream, deeds: Vec<Deed>) {
    let mut request = [0; 4096];
    for deed in deeds {
        match deed {
            Secure(certificate) => {
                let pem = Pem {
                    certificate: certificate.certificate.to_vec(),
                    key: certificate.key.to_vec(),
                    truststore: None,
                };
                let policy = Policy { client_auth: ClientAuth::No, verify_names: false };
                let credentials = Credentials::new(pem, policy).expect("they are good");
                match tls::accept(&rt, stream, &credentials, false, TIMEOUT).await {
                    Ok(accepted) => stream = accepted.stream,
                    Err(_) => return,
                }
                continue;
            }
            Close => return,
            _ => {}
        }
        if !stream.read(&mut request).await.is_ok_and(|read| read > 0) {
            return;
        }
        match deed {
            Answer(bytes) => drop(stream.write_all(&bytes).await),
            Stall => rt.sleep(Duration::from_secs(3600)).await,
            // References are not counted.
            _ => while stream.write_all(&answer(1, 0x73, &[0; 100]).repeat(100)).await.is_ok() {},
        }
    }
    // It waits for the other side to take leave.
    let _ = stream.read(&mut request).await;
}

/// A shard's directory on another node that does these deeds on each connection, and its roles that were taken over.
struct World {
    sim: Simulation,
    rt: Rt,
    shard: Rc<ShardDirectory>,
    taken: Rc<RefCell<Vec<String>>>,
    connections: Rc<RefCell<usize>>,
    deeds: Rc<RefCell<Vec<Deed>>>,
}

fn world(url: &str, start_tls: bool, deeds: Vec<Deed>) -> World {
    let sim = Simulation::new(7, rt_sim::Config::default());
    let nodes = [0, 1].map(|_| {
        sim.add_node(NodeConfig { shards: 1, ..NodeConfig::default() }, |_| {
            shard_mains(1, |_| std::future::pending::<()>())
        })
    });
    nodes.iter().for_each(|node| sim.start(*node));
    sim.run_for(Duration::from_millis(1));
    let [server, client] = nodes.map(|node| sim.rt(node, ShardId(0)).expect("it runs"));
    let address = SocketAddr::new(sim.ip(nodes[0]), PORT);
    let (connections, deeds) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(deeds)));
    let (rt, count, script) = (server.clone(), connections.clone(), deeds.clone());
    let listen = async move {
        let listener = rt.net().listen(address, ListenOptions::default()).await.expect("the port is free");
        while let Ok((stream, _)) = listener.accept().await {
            *count.borrow_mut() += 1;
            let script = script.borrow().clone();
            rt.spawn(Group::Statement, serve(rt.clone(), stream, script)).detach();
        }
    };
    server.spawn(Group::Statement, listen).detach();
    sim.run_for(Duration::from_millis(1));
    let source = || {
        let url = UrlTemplate::parse(&url.replace("HOST", &address.ip().to_string())).expect("a URL");
        Source { url, addresses: Arc::new(Replaceable::new(vec![address])) }
    };
    let directory = Directory {
        login: Some(source()),
        groups: Some((source(), "cn".to_owned())),
        searcher: Some(("cn=reader".to_owned(), "reads".to_owned())),
        start_tls,
        trust: Some(Trust::new(AUTHORITY).expect("an authority")),
        timeout: TIMEOUT,
        validity: Duration::from_secs(60),
    };
    let taken = Rc::new(RefCell::new(Vec::new()));
    let log = taken.clone();
    let take_over = Box::new(move |user: &str, roles: Option<std::collections::BTreeSet<String>>| {
        log.borrow_mut().push(format!("{user}: {roles:?}"));
    });
    let shard = ShardDirectory::start(&client, Arc::new(directory), take_over);
    World { sim, rt: client, shard, taken, connections, deeds }
}

impl World {
    fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        let out = Rc::new(RefCell::new(None));
        let (done, result) = (out.clone(), out);
        let rt = self.rt.clone();
        let task = async move {
            let outcome = work.await;
            *done.borrow_mut() = Some(outcome);
        };
        rt.spawn(Group::Statement, task).detach();
        self.sim.run_until(|| result.borrow().is_some()).expect("it ends");
        result.take().expect("it has ended")
    }

    fn verify(&self, password: &'static str) -> Result<bool, String> {
        let shard = self.shard.clone();
        self.run(async move { shard.verify("ann", password, || Ok(())).await })
    }

    fn load(&self) -> Result<(), String> {
        let shard = self.shard.clone();
        self.run(async move { shard.load_groups("ann").await })
    }
}

const NAMED: &str = "ldap://HOST/uid={USER},dc=x";
const SEARCHED: &str = "ldap://HOST/dc=x??sub?(uid={USER})";

#[test]
fn answers_decide() {
    let bind = |code| vec![Answer(ended(1, BOUND, code))];
    assert_eq!(world(NAMED, false, bind(0)).verify("pw"), Ok(true));
    for code in [49, 32, 48] {
        assert_eq!(world(NAMED, false, bind(code)).verify("pw"), Ok(false), "code {code}");
    }
    let world = world(NAMED, false, bind(51));
    let error = world.verify("pw").unwrap_err();
    assert!(
        error.starts_with("Unable to perform authentication"),
        "a busy directory is no wrong password: {error}"
    );
}

/// A bind without a password succeeds as nobody: it is never made.
#[test]
fn an_empty_password_is_not_sent() {
    let world = world(NAMED, false, vec![Answer(ended(1, BOUND, 0))]);
    assert_eq!(world.verify(""), Ok(false));
    assert_eq!(*world.connections.borrow(), 0);
}

/// Guesses that come at once are counted like guesses in a row: only those under way go beyond the limit.
#[test]
fn guesses_that_wait_are_refused_once_others_have_failed() {
    let world = world(NAMED, false, vec![Answer(ended(1, BOUND, 49))]);
    let failures = Rc::new(RefCell::new(0));
    let shard = world.shard.clone();
    let counted = failures.clone();
    let refused = world.run(async move {
        let guess = |_| async {
            let may_guess = || if *counted.borrow() < 3 { Ok(()) } else { Err("locked out".to_owned()) };
            let found = shard.verify("ann", "guess", may_guess).await;
            *counted.borrow_mut() += usize::from(found == Ok(false));
            found == Err("locked out".to_owned())
        };
        let all = futures_util::future::join_all((0..100).map(guess)).await;
        all.into_iter().filter(|refused| *refused).count()
    });
    let asked = *world.connections.borrow();
    assert!(asked <= 3 + 8, "{asked} guesses went to the directory");
    assert_eq!(asked + refused, 100);
    assert_eq!(*failures.borrow(), asked);
}

#[test]
fn a_search_finds_one_entry() {
    let with = |entries: Vec<Vec<u8>>, last: u8| {
        let found = [entries.concat(), ended(2, DONE, 0)].concat();
        let deeds = vec![Answer(ended(1, BOUND, 0)), Answer(found), Answer(ended(3, BOUND, last))];
        world(SEARCHED, false, deeds).verify("pw")
    };
    assert_eq!(with(vec![entry(2, "uid=ann", &[])], 0), Ok(true));
    assert_eq!(with(vec![entry(2, "uid=ann", &[])], 49), Ok(false));
    assert_eq!(with(Vec::new(), 0), Ok(false));
    assert!(
        with(vec![entry(2, "uid=ann", &[]), entry(2, "uid=ann,ou=b", &[])], 0).is_err(),
        "two are nobody"
    );
    assert!(with(vec![entry(2, "", &[])], 0).is_err(), "a bind without a name is anonymous");
    // The user of the search is unknown.
    let refused = world(SEARCHED, false, vec![Answer(ended(1, BOUND, 49))]);
    assert!(refused.verify("pw").is_err());
}

#[test]
fn hostile_directories_let_nobody_in_and_end_in_time() {
    let bytes = |bytes: &[u8]| vec![Answer(bytes.to_vec())];
    for (what, deeds) in [
        ("closes at once", vec![Close]),
        ("closes after the request", vec![Answer(Vec::new()), Close]),
        ("says nothing", vec![Stall]),
        ("speaks another protocol", bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        ("announces a gigabyte", bytes(&[0x30, 0x84, 0x40, 0, 0, 0, 2, 1, 1])),
        ("answers another request", bytes(&ended(9, BOUND, 0))),
        ("answers with another kind", bytes(&ended(1, DONE, 0))),
        ("ends the connection", bytes(&ended(0, EXTENDED, 52))),
        ("cuts its answer", vec![Answer(ended(1, BOUND, 0)[..9].to_vec()), Close]),
        ("never stops", vec![Flood]),
    ] {
        let world = world(NAMED, false, deeds);
        let begun = world.rt.now();
        let error = world.verify("pw").expect_err(what);
        assert!(error.starts_with("Unable to perform authentication"), "{what}: {error}");
        assert!(world.rt.now().duration_since(begun) <= TIMEOUT + Duration::from_millis(100), "{what}");
    }
}

#[test]
fn tls_is_verified_and_nothing_is_said_before_it() {
    let secured = |certificate| vec![Secure(certificate), Answer(ended(1, BOUND, 0))];
    let ldaps = "ldaps://HOST:389/uid={USER},dc=x";
    let named = world(ldaps, false, secured(NODE));
    assert_eq!(named.verify("pw"), Ok(true));
    assert!(world(ldaps, false, secured(STRANGER)).verify("pw").is_err(), "another authority");
    assert!(world(ldaps, false, vec![Answer(ended(1, BOUND, 0))]).verify("pw").is_err(), "no TLS");

    let started = |answer: Vec<u8>, certificate| {
        world(NAMED, true, vec![Answer(answer), Secure(certificate), Answer(ended(2, BOUND, 0))]).verify("pw")
    };
    assert_eq!(started(ended(1, EXTENDED, 0), NODE), Ok(true));
    assert!(started(ended(1, EXTENDED, 0), STRANGER).is_err());
    assert!(started(ended(1, EXTENDED, 2), NODE).is_err(), "it does not know StartTLS");
    // An answer to the bind, put into the clear text by somebody between.
    let injected = [ended(1, EXTENDED, 0), ended(2, BOUND, 0)].concat();
    assert!(started(injected, NODE).is_err());
}

#[test]
fn what_was_right_counts_for_a_while() {
    let world = world(NAMED, false, vec![Answer(ended(1, BOUND, 0))]);
    assert_eq!(world.verify("pw"), Ok(true));
    assert_eq!((world.verify("pw"), *world.connections.borrow()), (Ok(true), 1), "it is not asked again");
    *world.deeds.borrow_mut() = vec![Answer(ended(1, BOUND, 49))];
    assert_eq!((world.verify("pw2"), *world.connections.borrow()), (Ok(false), 2), "another password is");
    assert_eq!(world.verify("pw"), Ok(false), "and ends what counted");
    *world.deeds.borrow_mut() = vec![Answer(ended(1, BOUND, 0))];
    assert_eq!(world.verify("pw"), Ok(true));
    *world.deeds.borrow_mut() = vec![Close];
    assert_eq!(world.verify("pw"), Ok(true));
    world.sim.run_for(Duration::from_secs(61));
    assert!(world.verify("pw").is_err(), "the directory is down, and its answer too old");
}

#[test]
fn groups_are_looked_up_again_and_end_when_they_are_old() {
    let found = |groups: &[&str]| {
        let entries: Vec<u8> = groups.iter().flat_map(|group| entry(2, "cn=g", &[group])).collect();
        vec![Answer(ended(1, BOUND, 0)), Answer([entries, ended(2, DONE, 0)].concat())]
    };
    let world = world(SEARCHED, false, found(&["a", "b"]));
    let taken = |world: &World| std::mem::take(&mut *world.taken.borrow_mut());
    assert_eq!(world.load(), Ok(()));
    assert_eq!(taken(&world), ["ann: Some({\"a\", \"b\"})"]);
    assert_eq!((world.load(), *world.connections.borrow()), (Ok(()), 1), "they are not asked for again");
    *world.deeds.borrow_mut() = found(&["b"]);
    world.sim.run_for(Duration::from_secs(65));
    assert_eq!(taken(&world), ["ann: Some({\"b\"})"]);
    *world.deeds.borrow_mut() = vec![Close];
    world.sim.run_for(Duration::from_secs(500));
    assert_eq!(taken(&world), [""; 0], "a directory that is down takes nothing away yet");
    world.sim.run_for(Duration::from_secs(200));
    assert_eq!(taken(&world), ["ann: None"]);
    assert!(world.load().is_err());
    *world.deeds.borrow_mut() = found(&["c"]);
    world.sim.run_for(Duration::from_secs(65));
    assert_eq!(taken(&world), ["ann: Some({\"c\"})"], "a client that stayed connected has them again");
    world.shard.stop();
    *world.deeds.borrow_mut() = found(&["a"]);
    assert_eq!(world.load(), Ok(()));
    let connections = *world.connections.borrow();
    world.sim.run_for(Duration::from_secs(300));
    assert_eq!(*world.connections.borrow(), connections, "it was stopped");
}
