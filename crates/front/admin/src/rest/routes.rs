//! The requests that the administration port answers, as `routes.txt` lists them: every other one is 404. `/api-doc` describes them with
//! ScyllaDB's lay-out (Swagger 1.2), and `/v2` as one document (Swagger 2.0).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::table_metrics;

/// A line for each request: its method, and its path with `{NAME}` for a segment that varies; its parameters, with `!` behind the mandatory
/// ones; the type of its answer; a summary.
const ROUTES: &str = include_str!("routes.txt");

/// A request that is answered.
struct Route {
    method: &'static str,
    path: &'static str,
    parameters: &'static str,
    kind: &'static str,
    summary: &'static str,
}

impl Route {
    fn parse(line: &'static str) -> Option<Self> {
        let mut parts = line.split('|').map(str::trim);
        let (method, path) = parts.next()?.split_once(' ')?;
        Some(Self { method, path, parameters: parts.next()?, kind: parts.next()?, summary: parts.next()? })
    }

    fn matches(&self, method: &str, segments: &[&str]) -> bool {
        self.method == method && fits(self.path, segments)
    }
}

/// Whether segments are those of a path, in which `{NAME}` is any segment, and `...` at the end are any segments.
pub(super) fn fits(path: &str, segments: &[&str]) -> bool {
    let mut given = segments.iter();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == "..." {
            return true;
        }
        match given.next() {
            Some(given) if part.starts_with('{') || part == *given => {}
            _ => return false,
        }
    }
    given.next().is_none()
}

fn routes() -> impl Iterator<Item = Route> {
    ROUTES.lines().filter_map(Route::parse)
}

/// Whether a request is answered.
pub(super) fn serves(method: &str, segments: &[&str]) -> bool {
    let is_figure = method == "GET" && segments.starts_with(&["column_family", "metrics"]);
    is_figure || routes().any(|route| route.matches(method, segments))
}

/// The answer to a GET of `/api-doc`, of one of its resources, or of `/v2`; none for another path.
pub(super) fn answer(segments: &[&str]) -> Option<Value> {
    match segments {
        ["api-doc"] => Some(resources()),
        ["api-doc", resource] => declaration(resource),
        ["v2"] => Some(swagger()),
        _ => None,
    }
}

/// A request in its description.
struct Operation {
    path: String,
    method: &'static str,
    nickname: String,
    kind: &'static str,
    summary: String,
    /// Names, whether they are part of the path, and whether they are mandatory.
    parameters: Vec<(String, bool, bool)>,
}

impl Operation {
    fn new(
        method: &'static str,
        path: String,
        parameters: &str,
        kind: &'static str,
        summary: String,
    ) -> Self {
        let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_query = parameters.split_whitespace().map(|name| match name.strip_suffix('!') {
            Some(name) => (name.to_owned(), false, true),
            None => (name.to_owned(), false, false),
        });
        let parameters = in_path.map(|name| (name.to_owned(), true, true)).chain(in_query).collect();
        let words =
            path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let nickname =
            [method.to_lowercase().as_str()].into_iter().chain(words).collect::<Vec<_>>().join("_");
        Self { path, method, nickname, kind, summary, parameters }
    }

    /// The first segment of the path.
    fn resource(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }
}

/// Whether a request has no resource: for a description, or the greeting.
fn is_description(route: &Route) -> bool {
    route.path.starts_with("/api-doc") || ["/", "/v2"].contains(&route.path)
}

/// All requests but those for a description.
fn operations() -> Vec<Operation> {
    let listed = routes().filter(|route| !is_description(route)).map(|route| {
        let Route { method, path, parameters, kind, summary } = route;
        Operation::new(method, path.to_owned(), parameters, kind, summary.to_owned())
    });
    let figures = table_metrics::paths().into_iter().map(|(path, kind, summary)| {
        Operation::new("GET", format!("/column_family/metrics/{path}"), "", kind, summary.to_owned())
    });
    listed.chain(figures).collect()
}

fn resources() -> Value {
    let operations = operations();
    let names: BTreeSet<&str> = operations.iter().map(Operation::resource).collect();
    let one = |name: &&str| json!({ "path": format!("/{name}"), "description": format!("The requests below /{name}") });
    json!({ "apiVersion": "0.0.1", "swaggerVersion": "1.2", "apis": names.iter().map(one).collect::<Vec<_>>() })
}

/// The requests below a first segment; none where there are none.
fn declaration(resource: &str) -> Option<Value> {
    let operations = operations();
    let mut by_path: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.resource() == resource) {
        let parameter = |(name, is_in_path, is_mandatory): &(String, bool, bool)| {
            json!({
                "name": name, "required": is_mandatory, "allowMultiple": false, "type": "string",
                "paramType": if *is_in_path { "path" } else { "query" },
            })
        };
        let mut described = json!({
            "method": operation.method, "summary": operation.summary, "type": operation.kind,
            "nickname": operation.nickname, "produces": ["application/json"],
            "parameters": operation.parameters.iter().map(parameter).collect::<Vec<_>>(),
        });
        if operation.kind == "array" {
            described["items"] = json!({ "type": "object" });
        }
        by_path.entry(&operation.path).or_default().push(described);
    }
    let apis: Vec<Value> = by_path
        .into_iter()
        .map(|(path, operations)| json!({ "path": path, "operations": operations }))
        .collect();
    (!apis.is_empty()).then(|| {
        json!({
            "apiVersion": "0.0.1", "swaggerVersion": "1.2", "basePath": "/", "resourcePath": format!("/{resource}"),
            "produces": ["application/json"], "apis": apis,
        })
    })
}

/// The document of Swagger 2.0.
fn swagger() -> Value {
    let mut paths: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for operation in operations() {
        let parameter = |(name, is_in_path, is_mandatory): &(String, bool, bool)| {
            let place = if *is_in_path { "path" } else { "query" };
            json!({ "name": name, "in": place, "required": is_mandatory, "type": "string" })
        };
        let schema = match operation.kind {
            "void" => None,
            "long" => Some(json!({ "type": "integer", "format": "int64" })),
            "double" => Some(json!({ "type": "number", "format": "double" })),
            "array" => Some(json!({ "type": "array", "items": {} })),
            kind => Some(json!({ "type": kind })),
        };
        let mut done = json!({ "description": "done" });
        if let Some(schema) = schema {
            done["schema"] = schema;
        }
        let described = json!({
            "summary": operation.summary, "operationId": operation.nickname,
            "parameters": operation.parameters.iter().map(parameter).collect::<Vec<_>>(),
            "responses": { "200": done, "400": { "description": "bad input" }, "404": { "description": "unknown" } },
        });
        paths.entry(operation.path).or_default().insert(operation.method.to_lowercase(), described);
    }
    json!({
        "swagger": "2.0", "info": { "title": "Torc", "version": "1.0.0" }, "basePath": "/",
        "produces": ["application/json"], "paths": paths,
    })
}
