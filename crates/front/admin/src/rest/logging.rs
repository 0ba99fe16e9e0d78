//! Levels of the log by module, at ScyllaDB's paths; the setting `log_level` holds all of them.

use std::rc::Rc;

use serde_json::json;

use crate::names::{bad, mandatory};
use crate::{Answer, Call, Node};

/// The name of the level that modules without one of their own have.
const ROOT: &str = "ROOT";

/// The parts of a node that log; a module of one may be named, as in `coordinator::read`.
const LOGGERS: &[&str] = &[
    "admin",
    "auth",
    "catalog",
    "cluster",
    "commitlog",
    "coordinator",
    "dynamo",
    "engine",
    "exec",
    "gossip",
    "hints",
    "hyper",
    "ldap",
    "membership",
    "raft",
    "repair",
    "replica",
    "rpc",
    "rt",
    "rt_uring",
    "rustls",
    "server",
    "session",
    "sstable",
    "streaming",
    "tls",
    "torc",
    "udf",
];

/// The answer to a request about loggers; none when it is for something else.
pub(super) async fn answer(
    node: &Rc<dyn Node>,
    call: &Call,
    segments: &[&str],
) -> Option<Result<Answer, Answer>> {
    let levels =
        || Levels::parse(&node.setting("log_level").map(|setting| setting.value).unwrap_or_default());
    Some(match (call.method.as_str(), segments) {
        ("GET", ["storage_service", "logging_level"]) => {
            let pair = |(logger, level): &(String, String)| json!({ "key": logger, "value": level });
            Ok(Answer::json(&levels().0.iter().map(pair).collect()))
        }
        ("GET", ["system", "logger"]) => {
            let own = levels().0.into_iter().map(|(logger, _)| logger);
            let mut names: Vec<String> = LOGGERS.iter().map(|name| (*name).to_owned()).chain(own).collect();
            names.sort_unstable();
            names.dedup();
            Ok(Answer::json(&json!(names)))
        }
        ("GET", ["system", "logger", name]) => {
            known(name).map(|()| Answer::json(&json!(levels().level_of(name))))
        }
        ("POST", ["storage_service", "logging_level"]) => match mandatory(call, "class_qualifier") {
            Ok(name) => set(node, call, Some(name), levels()).await,
            Err(missing) => Err(missing),
        },
        ("POST", ["system", "logger"]) => set(node, call, None, levels()).await,
        ("POST", ["system", "logger", name]) => set(node, call, Some(name), levels()).await,
        _ => return None,
    })
}

fn known(name: &str) -> Result<(), Answer> {
    let part = name.split("::").next().unwrap_or_default();
    let is_path = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'));
    match name == ROOT || is_path && LOGGERS.contains(&part) {
        true => Ok(()),
        false => Err(bad(format!("Unknown logger name {name}"))),
    }
}

/// Sets the level of one logger, or that of all: then none has one of its own.
async fn set(
    node: &Rc<dyn Node>,
    call: &Call,
    name: Option<&str>,
    mut levels: Levels,
) -> Result<Answer, Answer> {
    name.map_or(Ok(()), known)?;
    let level = mandatory(call, "level")?.to_ascii_lowercase();
    if !matches!(&*level, "error" | "warn" | "info" | "debug" | "trace" | "off") {
        return Err(bad(format!("Unknown logging level {level}")));
    }
    match name {
        Some(name) => levels.set(name, &level),
        None => levels = Levels::parse(&level),
    }
    node.change_setting("log_level", &levels.to_string()).await.map(|()| Answer::done()).map_err(bad)
}

/// Levels by logger, as the option `log_level` has them; that of the process first.
struct Levels(Vec<(String, String)>);

impl Levels {
    fn parse(text: &str) -> Self {
        let mut levels = Self(vec![(ROOT.to_owned(), "error".to_owned())]);
        for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
            match directive.split_once('=') {
                Some((logger, level)) => levels.set(logger, level),
                None => levels.set(ROOT, directive),
            }
        }
        levels
    }

    fn set(&mut self, logger: &str, level: &str) {
        match self.0.iter_mut().find(|(known, _)| known == logger) {
            Some(known) => known.1 = level.to_owned(),
            None => self.0.push((logger.to_owned(), level.to_owned())),
        }
    }

    /// The level of a logger, or of the process.
    fn level_of(&self, logger: &str) -> &str {
        let own = self.0.iter().find(|(known, _)| known == logger).or(self.0.first());
        own.map_or("error", |(_, level)| level)
    }
}

impl std::fmt::Display for Levels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (logger, level)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match logger.as_str() {
                ROOT => write!(f, "{comma}{level}")?,
                logger => write!(f, "{comma}{logger}={level}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_changed_among_others() {
        let changed = |text: &str, logger: &str, level: &str| {
            let mut levels = Levels::parse(text);
            levels.set(logger, level);
            levels.to_string()
        };
        assert_eq!(changed("info", "engine", "debug"), "info,engine=debug");
        assert_eq!(changed("info,engine=debug", "engine", "trace"), "info,engine=trace");
        assert_eq!(changed("engine=debug, warn", "ROOT", "error"), "error,engine=debug");
        assert_eq!(changed("rpc::pool=off", "ROOT", "info"), "info,rpc::pool=off");
    }

    #[test]
    fn loggers_are_known_by_their_part() {
        assert!(known("engine").is_ok() && known("coordinator::read").is_ok() && known("ROOT").is_ok());
        for wrong in ["nope", "engine=debug", "engine,rpc", ""] {
            assert!(known(wrong).is_err(), "{wrong}");
        }
    }
}
