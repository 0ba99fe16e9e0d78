//! `cassandra-rackdc.properties`: where a node stands, in the file that Cassandra's and ScyllaDB's tools write.

use super::snitch::READS_FILE;
use super::{Config, ConfigError};

impl Config {
    /// The file's name, beside `torc.yaml`.
    pub const RACKDC_FILE: &'static str = "cassandra-rackdc.properties";

    /// Whether the snitch looks for [`Config::RACKDC_FILE`].
    pub fn reads_rackdc(&self) -> bool {
        self.endpoint_snitch.rsplit('.').next().is_some_and(|name| name.eq_ignore_ascii_case(READS_FILE))
    }

    /// Sets datacenter and rack from the text of [`Config::RACKDC_FILE`].
    ///
    /// # Errors
    /// [`ConfigError::Value`] with the first line that does not set `dc`, `rack` or `prefer_local=false`.
    pub fn set_from_rackdc(&mut self, text: &str) -> Result<(), ConfigError> {
        let wrong = |line: &str, expected: &str| ConfigError::Value {
            name: Self::RACKDC_FILE.to_owned(),
            value: line.to_owned(),
            expected: expected.to_owned(),
        };
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let Some((name, value)) = line.split_once(['=', ':']) else {
                return Err(wrong(line, "expected lines of the form name=value"));
            };
            match (name.trim(), value.trim()) {
                ("dc" | "rack", "") => return Err(wrong(line, "expected a name")),
                ("dc", value) => value.clone_into(&mut self.datacenter),
                ("rack", value) => value.clone_into(&mut self.rack),
                ("prefer_local", value) if value.eq_ignore_ascii_case("false") => {}
                ("prefer_local", _) => {
                    return Err(wrong(
                        line,
                        "other nodes are reached at their broadcast_address; expected false",
                    ));
                }
                _ => return Err(wrong(line, "expected dc, rack or prefer_local")),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_where_the_node_stands() {
        let mut config = Config::default();
        assert!(config.reads_rackdc());
        config.set_from_rackdc("# a comment\n dc = north\n\nrack=r-7\nprefer_local=false\n").unwrap();
        assert_eq!((config.datacenter.as_str(), config.rack.as_str()), ("north", "r-7"));
        for (text, said) in [
            ("dc", "name=value"),
            ("dc=", "expected a name"),
            ("prefer_local=true", "broadcast_address"),
            ("data_center=x", "expected dc, rack or prefer_local"),
        ] {
            let error = config.set_from_rackdc(text).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(Config::RACKDC_FILE), "{error}");
        }
        config.endpoint_snitch = "org.apache.cassandra.locator.SimpleSnitch".to_owned();
        assert!(!config.reads_rackdc());
    }
}
