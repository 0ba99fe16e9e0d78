//! Verbs about stored hints: listpendinghints, pausehandoff, resumehandoff, truncatehints.

use clap::Arg;
use serde_json::Value;

use super::api::escape;
use super::grid::Grid;
use super::ring::text;
use super::settings::setter;
use super::{Verb, given, utc};

pub(super) const LISTPENDINGHINTS: Verb = Verb {
    name: "listpendinghints",
    about: "Print all pending hints that this node has",
    arguments: Vec::new,
    ask: |api, _| api.get("/torc/hints"),
    show,
};

pub(super) const PAUSEHANDOFF: Verb =
    setter("pausehandoff", "Pause hints delivery process", Vec::new, |api, _| {
        api.post("/hinted_handoff/pause?pause=true")
    });

pub(super) const RESUMEHANDOFF: Verb =
    setter("resumehandoff", "Resume hints delivery process", Vec::new, |api, _| {
        api.post("/hinted_handoff/pause?pause=false")
    });

pub(super) const TRUNCATEHINTS: Verb = setter(
    "truncatehints",
    "Truncate all hints on the local node, or truncate hints for the endpoint(s) specified",
    || vec![Arg::new("endpoints").num_args(0..).help("Addresses of nodes; all nodes when not given")],
    |api, arguments| {
        let endpoints = given(arguments, "endpoints");
        if endpoints.is_empty() {
            return api.delete("/hinted_handoff/hints");
        }
        for endpoint in endpoints {
            api.delete(&format!("/hinted_handoff/hints?host={}", escape(endpoint)))?;
        }
        Ok(Value::Null)
    },
);

fn show(answer: &Value) -> String {
    let nodes = answer.as_array().map_or(&[][..], Vec::as_slice);
    if nodes.is_empty() {
        return "This node does not have any pending hints\n".to_owned();
    }
    let mut grid = Grid::default();
    grid.row(["Host ID", "Address", "Rack", "DC", "Status", "Total files", "Newest", "Oldest"]);
    for node in nodes {
        let of = |name: &str| text(&node[name]);
        let time = |name: &str| utc(node[name].as_i64().unwrap_or(0));
        grid.row([
            of("host_id"),
            of("address"),
            of("rack"),
            of("datacenter"),
            of("status"),
            of("files"),
            time("newest_ms"),
            time("oldest_ms"),
        ]);
    }
    grid.text(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_in_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00:00,000");
        assert_eq!(utc(1_795_705_307_123), "2026-11-26 15:01:47,123");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00,000");
        assert_eq!(show(&json!([])), "This node does not have any pending hints\n");
    }
}
