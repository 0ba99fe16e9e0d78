//! Verbs about the level of the log: of the whole process, and of modules.

use clap::Arg;
use serde_json::json;

use super::api::escape;
use super::{Verb, pairs, silent};

pub(super) const GETLOGGINGLEVELS: Verb = Verb {
    name: "getlogginglevels",
    about: "Get the log levels of the process and of modules that have one of their own",
    arguments: Vec::new,
    ask: |api, _| {
        let levels = pairs(&api.get("/storage_service/logging_level")?);
        Ok(levels.into_iter().map(|(logger, level)| json!({ "logger": logger, "level": level })).collect())
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
        let (logger, level) = (escape(given("logger")), escape(given("level")));
        api.post(&format!("/system/logger/{logger}?level={level}"))
    },
    show: silent,
};

#[cfg(test)]
mod tests {
    use super::*;

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
