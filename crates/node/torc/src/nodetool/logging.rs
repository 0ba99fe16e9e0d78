//! Verbs about the level of the log: of the whole process, and of modules.

use clap::Arg;
use serde_json::json;

use super::settings::change;
use super::{Verb, silent};

/// The name of the level that modules without one of their own have.
const ROOT: &str = "ROOT";

pub(super) const GETLOGGINGLEVELS: Verb = Verb {
    name: "getlogginglevels",
    about: "Get the log levels of the process and of modules that have one of their own",
    arguments: Vec::new,
    ask: |api, _| {
        let levels = Levels::parse(&api.text("/v2/config/log_level")?);
        Ok(levels.0.into_iter().map(|(logger, level)| json!({ "logger": logger, "level": level })).collect())
    },
    show: |answer| {
        let mut out = format!("\n{:<50}{:>10}\n", "Logger Name", "Log Level");
        for one in answer.as_array().into_iter().flatten() {
            let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            out.push_str(&format!("{:<50}{:>10}\n", text("logger"), text("level").to_uppercase()));
        }
        out
    },
};

pub(super) const SETLOGGINGLEVEL: Verb = Verb {
    name: "setlogginglevel",
    about: "Set the log level of the process (ROOT) or of a module until the node ends",
    arguments: || {
        let value = |name: &'static str, help: &'static str| Arg::new(name).required(true).help(help);
        vec![
            value("logger", "ROOT, or a module such as engine or coordinator::read"),
            value("level", "ERROR, WARN, INFO, DEBUG, TRACE or OFF"),
        ]
    },
    ask: |api, arguments| {
        let given = |name: &str| arguments.get_one::<String>(name).expect("clap asks for it");
        let (logger, level) = (given("logger"), given("level").to_lowercase());
        if !matches!(&*level, "error" | "warn" | "info" | "debug" | "trace" | "off") {
            return Err(format!("'{level}' is no level: ERROR, WARN, INFO, DEBUG, TRACE or OFF"));
        }
        if logger.contains([',', '=']) || logger.is_empty() {
            return Err(format!(
                "'{logger}' is no module: ROOT, or a name such as engine or coordinator::read"
            ));
        }
        let mut levels = Levels::parse(&api.text("/v2/config/log_level")?);
        levels.set(logger, &level);
        change(api, "log_level", &levels.to_string())
    },
    show: silent,
};

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
    fn levels_are_shown_as_cassandra_does() {
        let answer = json!([{ "logger": "ROOT", "level": "info" }, { "logger": "engine", "level": "debug" }]);
        let shown = (GETLOGGINGLEVELS.show)(&answer);
        let expected = "\nLogger Name                                        Log Level\n\
                        ROOT                                                    INFO\n\
                        engine                                                 DEBUG\n";
        assert_eq!(shown, expected);
    }
}
