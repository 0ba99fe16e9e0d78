//! The ways into a node for its operators: REST administration in ScyllaDB's shape, and Prometheus metrics.
//!
//! The node is behind [`Node`], so that this crate knows neither CQL nor how a node is wired.

mod cidr_figures;
mod derived_checks;
mod entrance;
mod escapes;
mod guard;
mod http;
mod http_config;
mod http_connections;
mod metrics;
mod names;
mod node;
mod node_metrics;
mod prometheus;
mod repair_options;
mod repairs;
mod rest;
mod topology_changes;

pub use cidr_figures::CidrFigures;
pub use entrance::{Entrance, LoggedIn, Login};
pub use guard::Access;
pub use http::HttpServer;
pub use http_config::HttpServerConfig;
pub use metrics::exposition;
pub use node::{ClientFigures, Mode, Node, NodeInfo, Setting, SettingKind, ShardFigures};
pub use rest::{MetricsService, RestService, load};

use rt::LocalBoxFuture;

/// An identity as text.
fn uuid(id: &[u8; 16]) -> String {
    schema::TableId(*id).to_string()
}

/// The identity that a text names; none for any other text.
fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.split('-').collect();
    let is_uuid =
        text.len() == 36 && digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_uuid)?;
    Some(number.to_be_bytes())
}

/// An answer to an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Content type.
    pub content_type: &'static str,
    /// Body.
    pub body: String,
}

impl Answer {
    /// 200 with a JSON body.
    pub fn json(value: &serde_json::Value) -> Self {
        Self { status: 200, content_type: "application/json", body: value.to_string() }
    }

    /// 200 of a request that answers nothing: an empty body.
    pub fn done() -> Self {
        Self { status: 200, content_type: "application/json", body: String::new() }
    }

    /// An error in the form that ScyllaDB's API gives.
    pub fn error(status: u16, message: impl Into<String>) -> Self {
        let body = serde_json::json!({ "message": message.into(), "code": status });
        Self { status, content_type: "application/json", body: body.to_string() }
    }
}

/// A request as services see it: the body, if any, was read and dropped, for no verb needs one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Method in capitals.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Decoded parameters of the query.
    pub query: Vec<(String, String)>,
}

impl Call {
    /// A parameter of the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Answers requests of one port.
pub trait Service {
    /// Answers one request.
    fn call(&self, call: Call) -> LocalBoxFuture<Answer>;

    /// Whether a request changes something, so that it is carried out to its end when its client goes.
    fn outlives_client(&self, call: &Call) -> bool {
        let _ = call;
        false
    }
}
