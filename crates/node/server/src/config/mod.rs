//! The configuration of a node: `torc.yaml`, flags and environment variables, all by the same names.
//!
//! Names are Cassandra's, and ScyllaDB's where Cassandra has none. Old spellings with their unit in the name
//! (`commitlog_segment_size_in_mb`) are understood. Options that only mean something to another database are read and logged;
//! an unknown one is an error that names the nearest known one.

mod administration;
mod audit;
mod auth;
mod cluster;
mod connections;
mod directory;
mod encryption;
mod export;
mod foreign;
mod guardrails;
mod options;
mod rackdc;
mod snitch;
mod value;
mod yaml;

pub(crate) use auth::{Authentication, CertificateNaming, is_class};
pub(crate) use encryption::EncryptionFiles;
pub(crate) use export::Endpoint;
pub use foreign::LeftOut;
pub use options::{Config, OptionInfo};
pub(crate) use value::in_unit;
pub use value::{Keyword, OptionValue, Secret, Size};

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No option has this name.
    #[error("unknown option '{name}'{}; `torc server --help` lists the options", nearest.as_ref().map(|n| format!(", did you mean '{n}'?")).unwrap_or_default())]
    Unknown {
        /// The name as written.
        name: String,
        /// The nearest known name.
        nearest: Option<&'static str>,
    },
    /// A value that the option does not take.
    #[error("option {name}: '{value}' is not valid: {expected}")]
    Value {
        /// The option.
        name: String,
        /// The value as written.
        value: String,
        /// The expected form.
        expected: String,
    },
    /// An option that counts at the start only.
    #[error("{name} cannot be changed while the node runs: set it in torc.yaml and start the node again")]
    NotLive {
        /// The option.
        name: &'static str,
    },
    /// Not YAML, or not of the expected shape.
    #[error("the configuration file is not valid: {0}")]
    Yaml(String),
    /// Options that contradict each other.
    #[error("{0}")]
    Conflict(String),
}

/// The known name that is nearest to `name`, when it is near enough to be a slip.
pub(crate) fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 2 + candidate.len() / 5)
        .map(|(_, candidate)| candidate)
}

/// Edit distance (insertions, deletions, replacements).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// The configuration of a file, if nothing of it is refused.
#[cfg(test)]
fn checked(yaml: &str) -> Result<Config, String> {
    let mut config = Config::default();
    config.set_from_yaml(yaml).map_err(|error| error.to_string())?;
    config.check().map_err(|error| error.to_string())?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_the_name_that_was_meant() {
        let error = Config::default().set("comitlog_sync", "batch").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown option 'comitlog_sync', did you mean 'commitlog_sync'?; `torc server --help` lists the options"
        );
        assert!(matches!(
            Config::default().set("frobnicate", "1"),
            Err(ConfigError::Unknown { nearest: None, .. })
        ));
    }

    #[test]
    fn a_directory_has_a_name_of_one_line() {
        for (path, is_good) in
            [("/data/a b", true), ("/a,/b", false), ("/data\n/x", false), ("/data\u{7f}", false)]
        {
            let config = Config { data_file_directories: path.into(), ..Config::default() };
            let checked = config.check().map_err(|error| error.to_string());
            assert_eq!(checked.is_ok(), is_good, "{path:?}: {checked:?}");
        }
    }
}
