//! The settings that an operator changes while the node runs: the options of [`Config::OPTIONS`] that are live. They last until the
//! node ends; `torc.yaml` holds the values for the next start.
//!
//! A change is made on shard 0, against the whole configuration as it then is, and handed to every shard ([`crate::orders::Configure`]),
//! which derives the settings of its parts from it as it does at its start.

use std::sync::Arc;

use rt::Replaceable;

use crate::Config;
use crate::audit::SyslogHook;
use crate::config::ConfigError;
use crate::directory::ResolveHook;

/// Changes the level of the process's log, which is the binary's; the error names an invalid level.
pub type LogLevelHook = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// A line of the process's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written, milliseconds since the epoch.
    pub millis: i64,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: &'static str,
    /// The module that wrote it.
    pub module: String,
    /// Its text.
    pub text: String,
}

/// Gives the last lines of the process's log, oldest first; their number and size are bounded.
pub type LogTailHook = Arc<dyn Fn() -> Vec<LogLine> + Send + Sync>;

/// The ways from a node into its process; none of them where several nodes share the process.
#[derive(Clone, Default)]
pub(crate) struct ProcessHooks {
    /// Changes the level of the log.
    pub(crate) log_level: Option<LogLevelHook>,
    /// Gives the last lines of the log.
    pub(crate) log_tail: Option<LogTailHook>,
    /// Opens the way to a server of syslog.
    pub(crate) syslog: Option<SyslogHook>,
    /// Finds the addresses of names.
    pub(crate) resolve: Option<ResolveHook>,
}

/// The configuration of a node as it is now, shared by the shards.
pub(crate) struct Settings {
    config: Replaceable<Config>,
    process: ProcessHooks,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Settings").field(&self.config).finish()
    }
}

impl Settings {
    /// That of the start. Without a hook the level of the log is not this node's to change.
    pub(crate) fn new(config: Config, process: ProcessHooks) -> Self {
        Self { config: Replaceable::new(config), process }
    }

    /// The ways from the node into its process.
    pub(crate) fn process(&self) -> &ProcessHooks {
        &self.process
    }

    /// The configuration as it is now.
    pub(crate) fn current(&self) -> Arc<Config> {
        self.config.get()
    }

    /// Changes one option, by its name or an alias. On shard 0, so that no change is lost to another.
    ///
    /// # Errors
    /// When there is no such option, it is not live, or the configuration would not be valid with that value.
    pub(crate) fn change(&self, name: &str, value: &str) -> Result<Arc<Config>, ConfigError> {
        let option = Config::option(name)?;
        if !option.is_live {
            return Err(ConfigError::NotLive { name: option.name });
        }
        let mut next = Config::clone(&self.config.get());
        next.set(name, value)?;
        next.check()?;
        if option.name == "log_level" {
            let Some(set) = &self.process.log_level else {
                return Err(ConfigError::NotLive { name: option.name });
            };
            set(&next.log_level).map_err(|expected| ConfigError::Value {
                name: name.to_owned(),
                value: value.to_owned(),
                expected,
            })?;
        }
        tracing::info!("{} is {} from now on", option.name, next.value_of(option.name).unwrap_or_default());
        self.config.replace(next);
        Ok(self.config.get())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_change_is_checked_like_the_file() {
        let settings = Settings::new(Config::default(), ProcessHooks::default());
        let changed = settings.change("read_request_timeout_in_ms", "700").unwrap();
        assert_eq!(changed.read_request_timeout, Duration::from_millis(700));
        assert_eq!(settings.current(), changed);
        let refused = |name, value| settings.change(name, value).unwrap_err().to_string();
        assert_eq!(
            refused("native_transport_port", "1"),
            "native_transport_port cannot be changed while the node runs: set it in torc.yaml and start the node again"
        );
        assert!(refused("read_request_timout", "1s").contains("did you mean 'read_request_timeout'?"));
        assert!(refused("concurrent_compactors", "0").contains("from 1 to 128"));
        assert!(refused("tombstone_warn_threshold", "200000").contains("must not be below"));
        assert!(refused("alternator_response_gzip_compression_level", "10").contains("from 0 to 9"));
        assert!(refused("alternator_timeout", "500us").contains("expected at least"));
        assert!(refused("trace_probability", "1.5").contains("from 0 to 1"));
        assert!(refused("trace_probability", "NaN").contains("from 0 to 1"));
        assert!(refused("log_level", "debug").contains("cannot be changed while the node runs"));
        assert_eq!(settings.current(), changed);
    }

    #[test]
    fn the_level_of_the_log_is_changed_where_it_is_this_nodes() {
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let set = seen.clone();
        let hook: LogLevelHook = Arc::new(move |level: &str| match level {
            "loud" => Err("a level".to_owned()),
            level => {
                set.lock().unwrap().push(level.to_owned());
                Ok(())
            }
        });
        let settings = Settings::new(
            Config::default(),
            ProcessHooks { log_level: Some(hook), ..ProcessHooks::default() },
        );
        assert_eq!(settings.change("log_level", "info,engine=debug").unwrap().log_level, "info,engine=debug");
        assert!(settings.change("log_level", "loud").unwrap_err().to_string().contains("loud"));
        assert_eq!(*seen.lock().unwrap(), ["info,engine=debug"]);
        assert_eq!(settings.current().log_level, "info,engine=debug");
    }
}
