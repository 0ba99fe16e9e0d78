//! Clusters drawn as text, and the events that clients get when one becomes another.

use coordinator::Phase;
use rt_sim::{Config, Simulation};
use topology::Location;

use super::*;

/// A node for each word: its number, then `!` when it does not answer, `?` when it does not let clients in, `+` when it has
/// another token, `@` when it has another address and `~` when it is joining. Number 1 is this node.
fn view(nodes: &str) -> Arc<ClusterView> {
    let node = |text: &str| {
        let number: u8 = text.trim_end_matches(['!', '?', '+', '@', '~']).parse().expect("a number");
        let marked = |mark: char| text.contains(mark);
        ViewNode {
            host: HostId([number; 16]),
            native: ([10, 0, u8::from(marked('@')), number], 9042).into(),
            internode: ([10, 0, 0, number], 7000).into(),
            location: Location::new("a", "r"),
            shards: 1,
            tokens: vec![i64::from(number) + if marked('+') { 100 } else { 0 }],
            alive: !marked('!'),
            ready: !marked('?'),
            release_version: "5.0.6".to_owned(),
            schema_version: None,
            phase: if marked('~') { Phase::Joining } else { Phase::Normal },
        }
    };
    let nodes = nodes.split_whitespace().map(node).collect();
    Arc::new(ClusterView::new(HostId([1; 16]), nodes).expect("a ring"))
}

fn shown(event: &Event) -> String {
    match event {
        Event::Topology { change, address } => format!("{} {}", change.name(), address.ip()),
        Event::Status { change, address } => format!("{} {}", change.name(), address.ip()),
        Event::Schema(_) => panic!("nodes are no schema"),
    }
}

#[test]
fn events_that_clients_receive() {
    let rows: &[(&[&str], &str)] = &[
        (&["1 2 3", "1 2 3"], ""),
        (&["1 2 3", "1 2! 3"], "DOWN 10.0.0.2"),
        (&["1 2! 3", "1 2 3"], "UP 10.0.0.2"),
        // A node that stops orderly announces it before it is gone.
        (&["1 2", "1 2?"], "DOWN 10.0.0.2"),
        (&["1 2?", "1 2?!"], ""),
        (&["1", "1 2"], "NEW_NODE 10.0.0.2, UP 10.0.0.2"),
        // Its event is sent when it accepts clients.
        (&["1", "1 2?"], ""),
        (&["1", "1 2?", "1 2"], "NEW_NODE 10.0.0.2, UP 10.0.0.2"),
        (&["1", "1 2!", "1"], ""),
        // A node that joins answers before it is one of the ring.
        (&["1", "1 2~"], ""),
        (&["1 2~", "1 2"], "NEW_NODE 10.0.0.2, UP 10.0.0.2"),
        (&["1 2 3", "1 3"], "REMOVED_NODE 10.0.0.2"),
        (&["1 2! 3", "1 3"], "REMOVED_NODE 10.0.0.2"),
        (&["1 2", "1 2+"], "MOVED_NODE 10.0.0.2"),
        (&["1 2", "1 2+!"], "MOVED_NODE 10.0.0.2, DOWN 10.0.0.2"),
        (&["1 2", "1 2@"], "REMOVED_NODE 10.0.0.2, NEW_NODE 10.0.1.2, UP 10.0.1.2"),
        (&["1 2", "1 2@?"], "REMOVED_NODE 10.0.0.2"),
        (&["1 2", "1? 2"], ""),
        (&["1 2", "1 2!", "1 2"], "DOWN 10.0.0.2, UP 10.0.0.2"),
    ];
    for (views, expected) in rows {
        let mut announced = Announced::new(&view(views[0]));
        let events: Vec<String> = views[1..]
            .iter()
            .flat_map(|next| announced.news(&view(next)))
            .map(|event| shown(&event))
            .collect();
        assert_eq!(events.join(", "), *expected, "{views:?}");
    }
}

#[test]
fn a_node_with_this_ones_address_is_not_told_of() {
    let mut node = view("1 2").nodes()[1].clone();
    node.native = view("1").nodes()[0].native;
    let circle = ClusterView::new(HostId([1; 16]), vec![view("1").nodes()[0].clone(), node]).expect("a ring");
    assert_eq!(Announced::new(&view("1")).news(&circle), []);
}

#[test]
fn transient_changes_are_not_announced() {
    let simulation = Simulation::new(1, Config::default());
    let heard = simulation.block_on(|rt| async move {
        let events: Rc<RefCell<Vec<String>>> = Rc::default();
        let log = events.clone();
        let announcer =
            Announcer::start(&rt, view("1 2 3"), move |event| log.borrow_mut().push(shown(&event)));
        announcer.see(&view("1 2! 3"));
        rt.sleep(SETTLE / 4).await;
        announcer.see(&view("1 2 3"));
        rt.sleep(SETTLE * 3).await;
        assert!(events.borrow().is_empty(), "{events:?}");
        announcer.see(&view("1 2! 3!"));
        rt.sleep(SETTLE / 4).await;
        announcer.see(&view("1 2 3!"));
        rt.sleep(SETTLE * 3).await;
        announcer.see(&view("1 2 3"));
        announcer.stop();
        rt.sleep(SETTLE * 3).await;
        events.take()
    });
    assert_eq!(heard.expect("it ends"), ["DOWN 10.0.0.3"]);
}
