//! Verbs about the clients of a node: clientstats.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction};
use serde_json::{Value, json};

use super::Verb;
use super::grid::Grid;
use super::ring::text;

pub(super) const CLIENTSTATS: Verb = Verb {
    name: "clientstats",
    about: "Print information about connected clients",
    arguments: || {
        let all = Arg::new("all").long("all").action(ArgAction::SetTrue);
        vec![all.help("Lists all connections")]
    },
    ask: |api, arguments| {
        Ok(json!({ "clients": api.get("/torc/clients")?, "all": arguments.get_flag("all") }))
    },
    show,
};

fn show(answer: &Value) -> String {
    let mut clients: Vec<&Value> = answer["clients"].as_array().into_iter().flatten().collect();
    clients.sort_by_key(|client| text(&client["address"]));
    let mut out = String::new();
    if answer["all"] == true && !clients.is_empty() {
        let mut grid = Grid::default();
        grid.row([
            "Address",
            "SSL",
            "Cipher",
            "Protocol",
            "Version",
            "User",
            "Keyspace",
            "Requests",
            "Driver-Name",
            "Driver-Version",
        ]);
        for client in &clients {
            let of = |name: &str| client[name].as_str().unwrap_or_default().to_owned();
            // The cipher and the version of TLS are not kept.
            grid.row([
                format!("/{}", of("address")),
                text(&client["ssl"]),
                "undefined".to_owned(),
                "undefined".to_owned(),
                text(&client["protocol_version"]),
                of("username"),
                of("keyspace"),
                text(&client["requests"]),
                of("driver_name"),
                of("driver_version"),
            ]);
        }
        out.push_str(&grid.text(" "));
        out.push('\n');
    }
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for client in &clients {
        *users.entry(client["username"].as_str().unwrap_or_default()).or_default() += 1;
    }
    let mut grid = Grid::default();
    grid.row(["User".to_owned(), "Connections".to_owned()]);
    users.iter().for_each(|(user, count)| grid.row([(*user).to_owned(), count.to_string()]));
    out.push_str(&format!("Total connected clients: {}\n\n{}", clients.len(), grid.text(" ")));
    out
}
