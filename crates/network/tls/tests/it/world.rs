//! Two simulated nodes: one accepts, the other connects.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rt::{ConnectOptions, Group, ListenOptions, Rt, ShardMain, Stream, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use testkit::certificates::{AUTHORITY, Certificate};
use tls::{Accepted, ClientAuth, Credentials, Pem, Policy, TlsError};

pub const LIMIT: Duration = Duration::from_secs(5);
const PORT: u16 = 7000;

pub const STRICT: Policy = Policy { client_auth: ClientAuth::Required, verify_names: true };
pub const LENIENT: Policy = Policy { client_auth: ClientAuth::No, verify_names: false };

pub fn pem(of: Certificate) -> Pem {
    Pem { certificate: of.certificate.to_vec(), key: of.key.to_vec(), truststore: Some(AUTHORITY.to_vec()) }
}

pub fn credentials(of: Certificate, policy: Policy) -> Arc<Credentials> {
    Arc::new(Credentials::new(pem(of), policy).expect("the certificates of the tests are good"))
}

fn idle() -> Vec<ShardMain> {
    shard_mains(1, |_| std::future::pending::<()>())
}

/// The results of both sides of a connection: `accept` and `connect` get it as it was made.
pub fn meet<A: 'static, C: 'static, FA: Future<Output = A> + 'static, FC: Future<Output = C> + 'static>(
    seed: u64,
    config: Config,
    accept: impl FnOnce(Rt, Stream) -> FA + 'static,
    connect: impl FnOnce(Rt, Stream) -> FC + 'static,
) -> (A, C) {
    let sim = Simulation::new(seed, config);
    let nodes = [0, 1].map(|_| sim.add_node(NodeConfig::default(), |_| idle()));
    nodes.iter().for_each(|node| sim.start(*node));
    sim.run_for(Duration::from_millis(1));
    let [server, client] = nodes.map(|node| sim.rt(node, rt::ShardId(0)).expect("it runs"));
    let address = SocketAddr::new(sim.ip(nodes[0]), PORT);
    let (accepted, connected) = (Rc::new(RefCell::new(None)), Rc::new(RefCell::new(None)));
    let (rt, out) = (server.clone(), accepted.clone());
    let accepting = async move {
        let listener = rt.net().listen(address, ListenOptions::default()).await.expect("the port is free");
        let (stream, _) = listener.accept().await.expect("somebody connects");
        let outcome = accept(rt, stream).await;
        *out.borrow_mut() = Some(outcome);
    };
    server.spawn(Group::Statement, accepting).detach();
    sim.run_for(Duration::from_millis(1));
    let (rt, out) = (client.clone(), connected.clone());
    let connecting = async move {
        let stream = rt.net().connect(address, ConnectOptions::default()).await.expect("somebody listens");
        let outcome = connect(rt, stream).await;
        *out.borrow_mut() = Some(outcome);
    };
    client.spawn(Group::Statement, connecting).detach();
    let done = sim.run_until(|| accepted.borrow().is_some() && connected.borrow().is_some());
    done.expect("both sides end");
    let both = (accepted.borrow_mut().take(), connected.borrow_mut().take());
    match both {
        (Some(accepted), Some(connected)) => (accepted, connected),
        _ => panic!("both have ended"),
    }
}

/// Handshakes of both sides with these credentials, and one word in each direction.
pub fn shake(server: Arc<Credentials>, client: Arc<Credentials>) -> (Result<(), String>, Result<(), String>) {
    let accept = move |rt: Rt, stream: Stream| async move {
        let Accepted { stream, encrypted, .. } =
            tls::accept(&rt, stream, &server, false, LIMIT).await.map_err(|error| error.to_string())?;
        assert!(encrypted);
        word(&stream).await
    };
    let connect = move |rt: Rt, stream: Stream| async move {
        let address = stream.peer_addr().expect("it is connected").ip();
        let stream = tls::connect(&rt, stream, &client, address, LIMIT).await;
        word(&stream.map_err(|error: TlsError| error.to_string())?).await
    };
    meet(1, Config::default(), accept, connect)
}

async fn word(stream: &Stream) -> Result<(), String> {
    let said = async {
        stream.write_all(b"word").await?;
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).await?;
        assert_eq!(&heard, b"word");
        std::io::Result::Ok(())
    };
    said.await.map_err(|error| error.to_string())
}
