//! An HTTP port of a node of the simulated network, and clients at the same node.

use std::net::SocketAddr;
use std::rc::Rc;

use admin::{Entrance, HttpServer, HttpServerConfig, Service};
use rt::{ConnectOptions, LocalBoxFuture, Rt, ShardMain, Stream};
use rt_sim::{Config, NodeConfig, Simulation};

pub const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 9180);

/// Runs clients against a port with this configuration, entrance and service.
pub fn run<P, F>(simulation: Config, parts: P, clients: fn(Rt) -> F)
where
    P: Fn(&Rt) -> (HttpServerConfig, Entrance, Rc<dyn Service>) + Copy + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let simulation = Simulation::new(1, simulation);
    let sim = simulation.handle();
    let node = sim.add_node(NodeConfig { ip: Some(SERVER.ip()), ..NodeConfig::default() }, move |_| {
        let main = move |rt: Rt| -> LocalBoxFuture<()> {
            Box::pin(async move {
                let (config, entrance, service) = parts(&rt);
                let server = HttpServer::start(&rt, SERVER, config, entrance, service).await;
                clients(rt.clone()).await;
                server.expect("the address is free").stop().await;
            })
        };
        vec![Box::new(main) as ShardMain<()>]
    });
    sim.start(node);
    sim.run_until_exit(node).expect("the clients end");
    assert_eq!(sim.exits(node), ["()"]);
}

pub async fn connect(rt: &Rt) -> Stream {
    rt.net().connect(SERVER, ConnectOptions::default()).await.expect("the port is open")
}
