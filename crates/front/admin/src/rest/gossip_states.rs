//! The gossip state of the nodes over REST: in ScyllaDB's form, with its numbers of values, and under `/torc` every value by its name here.

use std::rc::Rc;

use coordinator::{ClusterView, Phase};
use gossip::{Endpoint, Key, Standing, status};
use serde_json::{Value, json};

use super::{figures, ring};
use crate::names::bad;
use crate::{Answer, Node, uuid};

/// ScyllaDB's numbers of the values that it has, too.
const NUMBERS: &[(Key, u8)] = &[
    (Key::STATUS, 0),
    (Key::LOAD, 1),
    (Key::SCHEMA, 2),
    (Key::DC, 3),
    (Key::RACK, 4),
    (Key::RELEASE_VERSION, 5),
    (Key::NATIVE_ADDRESS, RPC_ADDRESS),
    (Key::SEVERITY, 10),
    (Key::NET_VERSION, 11),
    (Key::FEATURES, 14),
    (Key::RPC_READY, 17),
];

const INTERNAL_IP: u8 = 7;
const RPC_ADDRESS: u8 = 8;
const HOST_ID: u8 = 12;
const TOKENS: u8 = 13;

/// A value of a node.
struct State {
    key: Option<Key>,
    number: Option<u8>,
    name: String,
    version: u64,
    value: String,
}

impl State {
    fn of(key: Key, version: u64, value: String) -> Self {
        let number = NUMBERS.iter().find(|(known, _)| *known == key).map(|(_, number)| *number);
        Self { key: Some(key), number, name: key.to_string(), version, value }
    }

    fn derived(number: u8, name: &str, value: String) -> Self {
        Self { key: None, number: Some(number), name: name.to_owned(), version: 0, value }
    }
}

/// A node with its values.
struct Known {
    endpoint: Endpoint,
    is_alive: bool,
    /// When that was last found out, microseconds since the epoch.
    updated_micros: i64,
    states: Vec<State>,
}

/// ScyllaDB's form: values without a number there are left out.
pub(super) async fn endpoints(node: &Rc<dyn Node>) -> Value {
    let shown = |state: &State| {
        let number = state.number?;
        let value = if number == RPC_ADDRESS { address(&state.value) } else { state.value.clone() };
        Some(json!({
            "application_state": number, "name": state.name, "version": state.version, "value": value,
        }))
    };
    let one = |known: Known| {
        let Known { endpoint, states, .. } = &known;
        let ip = endpoint.address.ip().to_string();
        let own = [
            State::derived(INTERNAL_IP, "INTERNAL_IP", ip),
            State::derived(HOST_ID, "HOST_ID", uuid(&endpoint.host.0)),
        ];
        let states: Vec<Value> = states.iter().chain(&own).filter_map(shown).collect();
        document(&known, states)
    };
    all(node).await.into_iter().map(one).collect()
}

/// Every value by its name here, for `torc nodetool gossipinfo`.
pub(super) async fn whole(node: &Rc<dyn Node>) -> Value {
    let shown = |state: &State| {
        json!({
            "application_state": state.key.map(|key| key.0), "name": state.name, "version": state.version,
            "value": state.value,
        })
    };
    let one = |known: Known| document(&known, known.states.iter().map(shown).collect());
    all(node).await.into_iter().map(one).collect()
}

/// The state of one node as text: its generation, heartbeat and values, each in a line.
///
/// # Errors
/// 400 when no node has this address.
pub(super) async fn text(node: &Rc<dyn Node>, name: &str) -> Result<Value, Answer> {
    let found = all(node).await.into_iter().find(|known| known.endpoint.address.ip().to_string() == name);
    let known = found.ok_or_else(|| bad(format!("unknown endpoint {name}")))?;
    let mut text =
        format!("  generation:{}\n  heartbeat:{}\n", known.endpoint.generation, known.endpoint.heartbeat);
    for state in &known.states {
        text.push_str(&format!("  {}:{}:{}\n", state.name, state.version, state.value));
    }
    Ok(json!(text))
}

/// An address without its port.
fn address(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), |socket: std::net::SocketAddr| socket.ip().to_string())
}

fn document(known: &Known, states: Vec<Value>) -> Value {
    let endpoint = &known.endpoint;
    json!({
        "addrs": endpoint.address.ip().to_string(),
        "port": endpoint.address.port(),
        "host_id": uuid(&endpoint.host.0),
        "generation": endpoint.generation,
        "version": endpoint.heartbeat,
        "update_time": known.updated_micros / 1_000,
        "is_alive": known.is_alive,
        "application_state": states,
    })
}

/// All nodes by host id, this one among them; of a node that is alone, its own endpoint.
async fn all(node: &Rc<dyn Node>) -> Vec<Known> {
    let Some(liveness) = node.liveness() else { return vec![alone(node).await] };
    let view = node.view();
    let peers = liveness.peers.into_values().map(|peer| (peer.endpoint, peer.standing, peer.since_micros));
    let own = (liveness.own, Standing::Alive, node.now_micros());
    let one = |(endpoint, standing, updated_micros): (Endpoint, Standing, i64)| {
        let gossiped = endpoint.states.iter();
        let mut states: Vec<State> = gossiped
            .map(|(key, state)| {
                State::of(*key, state.version, String::from_utf8_lossy(&state.value).into_owned())
            })
            .collect();
        states.extend(place(&view, &endpoint));
        Known { endpoint, is_alive: standing == Standing::Alive, updated_micros, states }
    };
    let mut all: Vec<Known> = peers.chain([own]).map(one).collect();
    all.sort_by_key(|known| known.endpoint.host);
    all
}

/// Gossip values of Cassandra about tokens and status, which are in the cluster's log here.
fn place(view: &ClusterView, endpoint: &Endpoint) -> Vec<State> {
    let found = view.nodes().iter().find(|node| node.host == endpoint.host);
    // A node says itself that it has ended, or that it only begins to join.
    let Some(member) = found.filter(|_| endpoint.text(Key::STATUS).is_none()) else { return Vec::new() };
    let name = match member.phase {
        Phase::Normal => status::NORMAL,
        Phase::Joining => status::BOOT,
        Phase::Leaving => status::LEAVING,
        Phase::Removing => "removing",
    };
    let token = member.tokens.first().map(|token| format!(",{token}")).unwrap_or_default();
    vec![
        State { key: Some(Key::STATUS), ..State::derived(0, "STATUS_WITH_PORT", format!("{name}{token}")) },
        State::derived(TOKENS, "TOKENS", "<hidden>".to_owned()),
    ]
}

async fn alone(node: &Rc<dyn Node>) -> Known {
    let info = node.info();
    let view = node.view();
    let own = view.node(view.own());
    let uptime = (node.now_micros() - info.started_micros).max(0) / 1_000_000;
    let states = [
        (Key::STATUS, status::NORMAL.to_owned()),
        (Key::LOAD, figures::load(node).await.to_string()),
        (Key::SCHEMA, uuid(&node.schema().version())),
        (Key::DC, info.datacenter.clone()),
        (Key::RACK, info.rack.clone()),
        (Key::RELEASE_VERSION, info.release_version.clone()),
        (Key::NATIVE_ADDRESS, own.native.to_string()),
        (Key::RPC_READY, (node.mode() == crate::Mode::Normal).to_string()),
    ];
    let endpoint = Endpoint {
        host: own.host,
        generation: ring::generation(node),
        address: own.internode,
        heartbeat: uptime.unsigned_abs(),
        states: Default::default(),
    };
    let states = states.into_iter().map(|(key, value)| State::of(key, 1, value)).collect();
    Known { endpoint, is_alive: true, updated_micros: node.now_micros(), states }
}
