//! Reading `torc.yaml`.

use std::path::Path;

use serde_yaml_ng::Value;

use super::foreign::{LeftOut, Standing, standing};
use super::{Config, ConfigError, OptionValue};

/// The begin of the names of the option that the warning's must not exceed.
const BATCH_FAIL: &str = "batch_size_fail_threshold";

impl Config {
    /// Sets every option that the YAML text names, and returns Cassandra's options that have no effect.
    ///
    /// # Errors
    /// [`ConfigError::Yaml`] when the text is no YAML or no mapping; as [`Config::set`] of each option.
    pub fn set_from_yaml(&mut self, text: &str) -> Result<LeftOut, ConfigError> {
        let mut left_out = LeftOut::default();
        let value: Value =
            serde_yaml_ng::from_str(text).map_err(|error| ConfigError::Yaml(error.to_string()))?;
        let Value::Mapping(options) = value else {
            return if value.is_null() {
                Ok(left_out)
            } else {
                Err(ConfigError::Yaml("expected lines of the form `name: value`".to_owned()))
            };
        };
        let names_fail = options.keys().filter_map(Value::as_str).any(|name| name.starts_with(BATCH_FAIL));
        if let Some(directory) = options.get("workdir").and_then(Value::as_str) {
            self.set_workdir(Path::new(directory));
        }
        for (name, value) in options {
            let Value::String(name) = name else {
                return Err(ConfigError::Yaml(format!("an option's name is a word, not {name:?}")));
            };
            match value {
                Value::String(_) | Value::Null if name == "workdir" => {}
                Value::Mapping(group) if GROUPS.contains(&name.as_str()) => {
                    self.set_group(&name, &group, &mut left_out)?;
                }
                value => self.set_value(&name, &value, &mut left_out)?,
            }
        }
        if !names_fail {
            // ScyllaDB's default of the one that is not given is above any usual value of the other.
            self.batch_size_fail_threshold =
                self.batch_size_fail_threshold.max(self.batch_size_warn_threshold);
        }
        Ok(left_out)
    }

    /// ScyllaDB's directory above the others, of which each may be given all the same.
    fn set_workdir(&mut self, directory: &Path) {
        self.data_file_directories = directory.join("data");
        self.commitlog_directory = Some(directory.join("commitlog"));
        self.hints_directory = Some(directory.join("hints"));
    }

    /// Options that stand below a common name have it in front of theirs.
    fn set_group(
        &mut self,
        group: &str,
        options: &serde_yaml_ng::Mapping,
        left_out: &mut LeftOut,
    ) -> Result<(), ConfigError> {
        for (name, value) in options {
            let Value::String(name) = name else {
                return Err(ConfigError::Yaml(format!("an option's name is a word, not {name:?}")));
            };
            self.set_value(&format!("{group}_{name}"), value, left_out)?;
        }
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: &Value, left_out: &mut LeftOut) -> Result<(), ConfigError> {
        if let ("authenticator", Value::Mapping(class)) = (name, value) {
            for (name, value) in parameters(class)? {
                self.set_value(&format!("authenticator_{name}"), value, left_out)?;
            }
        }
        if let ("cidr_authorizer", Value::Mapping(class)) = (name, value) {
            // Cached groups have no counterpart: a change counts at once.
            let cached = ["cidr_groups_cache_refresh_interval", "ip_cache_max_size"];
            for (name, value) in parameters(class)?.into_iter().filter(|(name, _)| !cached.contains(&&**name))
            {
                self.set_value(name, value, left_out)?;
            }
        }
        // ScyllaDB's list of datacenters.
        if let ("hinted_handoff_enabled", Value::String(text)) = (name, value)
            && OptionValue::parse(text).map(|_: bool| ()).is_err()
        {
            return Err(ConfigError::Value {
                name: name.to_owned(),
                value: text.clone(),
                expected: "expected true or false: hints are stored for all datacenters or none".to_owned(),
            });
        }
        // The default, as ScyllaDB's file gives it.
        if name.starts_with("commitlog_total_space") && value.as_i64() == Some(-1) {
            return Ok(());
        }
        if !self.has(name)
            && let Some(standing) = standing(name)
        {
            return leave_out(name, value, standing, left_out);
        }
        match flatten(name, value)? {
            Some(text) => self.set(name, &text),
            None => Ok(()),
        }
    }
}

/// Notes an option that has no effect, or refuses one that must not be left out.
fn leave_out(
    name: &str,
    value: &Value,
    standing: Standing,
    left_out: &mut LeftOut,
) -> Result<(), ConfigError> {
    let refused = |expected: String| ConfigError::Value {
        name: name.to_owned(),
        value: flatten(name, value).ok().flatten().unwrap_or_default(),
        expected,
    };
    let asks = match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !["", "disabled", "ignore", "none"].contains(&text.as_str()),
        Value::Sequence(items) => !items.is_empty(),
        _ => true,
    };
    match standing {
        Standing::NoUse => left_out.of_no_use.push(name.to_owned()),
        Standing::NotBuilt if asks => left_out.not_built.push(name.to_owned()),
        Standing::NotBuilt => {}
        Standing::Only(allowed) => {
            let text = flatten(name, value)?.unwrap_or_default();
            let short = text.rsplit('.').next().unwrap_or(&text);
            if !text.is_empty() && !allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(short)) {
                return Err(refused(format!(
                    "anything else is not built yet; expected {}",
                    allowed.join(" or ")
                )));
            }
        }
        Standing::UnlessEnabled(instead) => {
            let is_enabled = value.get("enabled").is_some_and(|enabled| {
                enabled
                    .as_bool()
                    .unwrap_or_else(|| flatten(name, enabled).ok().flatten().as_deref() == Some("true"))
            });
            if is_enabled {
                let (name, value) = (format!("{name}_enabled"), "true".to_owned());
                return Err(ConfigError::Value { name, value, expected: instead.to_owned() });
            }
        }
        Standing::Refused(instead) if !value.is_null() => return Err(refused(instead.to_owned())),
        Standing::Refused(_) => {}
    }
    Ok(())
}

/// Options that have options.
const GROUPS: &[&str] = &[
    "server_encryption_options",
    "client_encryption_options",
    "alternator_encryption_options",
    "api_encryption_options",
    "audit_logging_options",
];

/// A value as the one text that flags take too: lists are joined by commas. `None` for an option left empty.
fn flatten(name: &str, value: &Value) -> Result<Option<String>, ConfigError> {
    let wrong = || ConfigError::Yaml(format!("option {name}: expected one value or a list of values"));
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => s.clone(),
        Value::Sequence(items) if name == "seed_provider" => seeds(items).ok_or_else(|| {
            ConfigError::Yaml(
                "option seed_provider: expected a list of one SimpleSeedProvider whose parameters have seeds: \
                 \"address, address\""
                    .to_owned(),
            )
        })?,
        Value::Sequence(items) if name == "auth_certificate_role_queries" => role_queries(items).ok_or_else(|| {
            ConfigError::Yaml(format!("option {name}: expected a list whose elements have source and query"))
        })?,
        Value::Sequence(items) => {
            let items = items.iter().map(|item| flatten(name, item).and_then(|text| text.ok_or_else(wrong)));
            items.collect::<Result<Vec<_>, _>>()?.join(",")
        }
        // A class with parameters, which are options of their own where it has any.
        Value::Mapping(options) => match options.get("class_name") {
            Some(Value::String(class)) => class.clone(),
            _ => return Err(wrong()),
        },
        Value::Tagged(_) => return Err(wrong()),
    }))
}

/// The parameters of a class: a mapping, or a list of them.
fn parameters(class: &serde_yaml_ng::Mapping) -> Result<Vec<(&str, &Value)>, ConfigError> {
    let wrong =
        || ConfigError::Yaml("the parameters of a class are lines of the form `name: value`".to_owned());
    let all: Vec<&Value> = match class.get("parameters") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Sequence(items)) => items.iter().collect(),
        Some(one) => vec![one],
    };
    let mut out = Vec::new();
    for mapping in all {
        for (name, value) in mapping.as_mapping().ok_or_else(wrong)? {
            out.push((name.as_str().ok_or_else(wrong)?, value));
        }
    }
    Ok(out)
}

/// ScyllaDB's `auth_certificate_role_queries: [{source: …, query: …}]`, each on a line.
fn role_queries(items: &[Value]) -> Option<String> {
    let line = |item: &Value| {
        let fields = item.as_mapping().filter(|fields| fields.len() == 2)?;
        let query = fields.get("query")?.as_str().filter(|query| !query.contains('\n'))?;
        Some(format!("{} {query}", fields.get("source")?.as_str()?))
    };
    items.iter().map(line).collect::<Option<Vec<_>>>().map(|lines| lines.join("\n"))
}

/// Cassandra's `seed_provider: [{class_name: …, parameters: [{seeds: "a,b"}]}]`.
fn seeds(items: &[Value]) -> Option<String> {
    let class = items.first()?.get("class_name").and_then(Value::as_str).unwrap_or("SimpleSeedProvider");
    if class.rsplit('.').next() != Some("SimpleSeedProvider") {
        return None;
    }
    let parameters = items.first()?.get("parameters")?.as_sequence()?;
    Some(parameters.first()?.get("seeds")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_the_same_in_any_letters() {
        let mut config = Config::default();
        let text = "
commitlog_sync: Batch
commit_failure_policy: STOP_COMMIT
disk_failure_policy: Die
internode_compression: ALL
internode_compressor: ZSTD
server_encryption_options: {internode_encryption: None}
";
        config.set_from_yaml(text).unwrap();
        config.check().unwrap();
        assert_eq!(config.commitlog_sync, "batch");
        assert_eq!((&*config.commit_failure_policy, &*config.disk_failure_policy), ("stop_commit", "die"));
        assert_eq!((&*config.internode_compression, &*config.internode_compressor), ("all", "zstd"));
        assert!(!config.encrypts_internode());
        assert_eq!(config.value_of("commitlog_sync").as_deref(), Some("batch"));
        for wrong in ["commitlog_sync: x.batch", "commitlog_sync: ''", "disk_failure_policy: org.die"] {
            assert!(super::super::checked(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_of_scylladbs_files_are_read() {
        let text = "
tablets_mode_for_new_keyspaces: disabled
rf_rack_valid_keyspaces: true
stream_io_throughput_mb_per_sec: 7
default_log_level: warn
logger_log_level: {storage_service: debug}
kms_hosts: {one: {}}
user_info_encryption: {enabled: false}
reader_concurrency_semaphore_serialize_limit_multiplier: 2
failure_detector_timeout_in_ms: 20000
batch_size_warn_threshold_in_kb: 128
prometheus_prefix: scylla
";
        let mut config = Config::default();
        let left_out = config.set_from_yaml(text).unwrap();
        config.check().unwrap();
        assert_eq!(left_out.not_built, ["rf_rack_valid_keyspaces", "kms_hosts"]);
        assert_eq!(config.stream_throughput_outbound, super::super::Size::mib(7));
        assert_eq!(config.log_level, "warn");
        for wrong in [
            "user_info_encryption: {enabled: true}",
            "enable_commitlog: false",
            "prometheus_prefix: torc",
            "maintenance_mode: true",
            "native_transport_port_proxy_protocol: 9043",
            "batch_size_warn_threshold_in_kb: 128\nbatch_size_fail_threshold_in_kb: 50",
        ] {
            assert!(super::super::checked(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_of_stock_files_are_read() {
        let text = "
commitlog_total_space_in_mb: -1
schema_commitlog_segment_size_in_mb: 128
force_schema_commit_log: true
strict_is_not_null_in_views: true
maintenance_socket: ignore
enable_tablets: true
enable_materialized_views: false
enable_sasi_indexes: false
enable_transient_replication: false
enable_drop_compact_storage: false
";
        let mut config = Config::default();
        let left_out = config.set_from_yaml(text).unwrap();
        assert_eq!(left_out.not_built, ["enable_tablets"]);
        assert!(!config.materialized_views_enabled);
        assert_eq!(config.commitlog_total_space, Config::default().commitlog_total_space);
    }

    #[test]
    fn the_lines_of_scylladbs_present_options_are_known() {
        let text = "
enforce_rack_list: true
maintenance_socket: workdir
fd_max_interval_ms: 2000
shutdown_announce_in_ms: 2000
group0_raft_op_timeout_in_ms: 60000
target_tablet_size_in_bytes: 5368709120
internode_compression_algorithms: [LZ4, ZSTD]
native_transport_port_proxy_protocol: 0
error_injections_at_startup: []
recovery_leader: ''
backup_io_throughput_mb_per_sec: 0
";
        let left_out = Config::default().set_from_yaml(text).unwrap();
        assert_eq!(left_out.not_built, ["enforce_rack_list", "maintenance_socket"]);
        let of_no_use = ["fd_max_interval_ms", "shutdown_announce_in_ms", "group0_raft_op_timeout_in_ms"];
        assert_eq!(left_out.of_no_use[..3], of_no_use);
    }

    #[test]
    fn refusals_of_scylladbs_values_name_the_way_to_the_same_end() {
        for (text, said) in [
            ("endpoint_snitch: Ec2Snitch", "give datacenter and rack"),
            ("hinted_handoff_enabled: dc1,dc2", "for all datacenters or none"),
            ("authenticator: com.scylladb.auth.TransitionalAuthenticator", "use PasswordAuthenticator"),
            ("authorizer: com.scylladb.auth.TransitionalAuthorizer", "and CassandraAuthorizer then"),
        ] {
            let error = super::super::checked(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        for fine in ["audit: ''", "audit: none", "hinted_handoff_enabled: 'true'"] {
            super::super::checked(fine).unwrap();
        }
    }

    #[test]
    fn a_workdir_has_the_directories_that_are_not_given() {
        let read = |text: &str| {
            let mut config = Config::default();
            config.set_from_yaml(text).unwrap();
            let names = ["data_file_directories", "commitlog_directory", "hints_directory"];
            names.map(|name| config.value_of(name).unwrap())
        };
        assert_eq!(read("workdir: /w"), ["/w/data", "/w/commitlog", "/w/hints"]);
        let some = "commitlog_directory: /c\ndata_file_directories: [/d]\nworkdir: /w";
        assert_eq!(read(some), ["/d", "/c", "/w/hints"]);
        assert!(super::super::checked("workdir: [/w]").is_err());
    }

    #[test]
    fn environment_variables_name_options_as_files_do() {
        let set = |name: &str, value: &str| {
            let mut config = Config::default();
            let variables = [(name.to_owned(), value.to_owned())];
            config.set_from_environment(variables.into_iter()).map(|()| config).map_err(|e| e.to_string())
        };
        let by_alias = set("TORC_READ_REQUEST_TIMEOUT_IN_MS", "700").unwrap();
        assert_eq!(by_alias.read_request_timeout, std::time::Duration::from_millis(700));
        assert!(set("TORC_AUTHENTICATER", "AllowAllAuthenticator").unwrap_err().contains("'authenticator'"));
        for other in ["TORC_CACHE", "TORC_SERVICE_PORT", "TORC_PORT", "TORC_HOME", "PATH", "TORC_"] {
            assert_eq!(set(other, "x"), Ok(Config::default()), "{other}");
        }
    }

    #[test]
    fn encryption_of_files_is_not_left_out_in_silence() {
        let asks = super::super::checked("transparent_data_encryption_options: {enabled: true, cipher: AES}");
        assert!(asks.unwrap_err().contains("transparent_data_encryption_options_enabled"));
        let off = "transparent_data_encryption_options: {enabled: false, chunk_length_kb: 64}";
        let mut config = Config::default();
        let left_out = config.set_from_yaml(off).unwrap();
        assert!(left_out.not_built.is_empty(), "{left_out:?}");
    }

    #[test]
    fn reads_the_options_of_cassandra_users() {
        let mut config = Config::default();
        let text = "
cluster_name: 'Test Cluster'
num_tokens: 8
data_file_directories:
    - /var/lib/torc/data
seed_provider:
    - class_name: org.apache.cassandra.locator.SimpleSeedProvider
      parameters:
          - seeds: \"127.0.0.1,127.0.0.2\"
commitlog_sync: batch
commitlog_segment_size_in_mb: 16
native_transport_port: 9142
read_request_timeout_in_ms: 700
hints_directory:
";
        config.set_from_yaml(text).unwrap();
        assert_eq!(config.cluster_name, "Test Cluster");
        assert_eq!(config.num_tokens, 8);
        assert_eq!(config.data_file_directories, std::path::PathBuf::from("/var/lib/torc/data"));
        assert_eq!(config.seeds, "127.0.0.1,127.0.0.2");
        assert_eq!(config.commitlog_segment_size, super::super::Size::mib(16));
        assert_eq!(config.read_request_timeout, std::time::Duration::from_millis(700));
        let text = "
client_encryption_options:
    enabled: true
    certificate: /etc/torc/node.pem
    truststore:
server_encryption_options: {internode_encryption: dc, require_client_auth: true}
";
        config.set_from_yaml(text).unwrap();
        assert!(config.client_encryption_options_enabled);
        let path = std::path::Path::new("/etc/torc/node.pem");
        assert_eq!(config.client_encryption_options_certificate.as_deref(), Some(path));
        assert_eq!(config.client_encryption_options_truststore, None);
        assert_eq!(config.server_encryption_options_internode_encryption, "dc");
        assert!(config.server_encryption_options_require_client_auth);
        let error = config.set_from_yaml("client_encryption_options: {certficate: x}").unwrap_err();
        assert!(
            error.to_string().contains("did you mean 'client_encryption_options_certificate'"),
            "{error}"
        );
        let named = "authenticator: {class_name: org.apache.cassandra.auth.AllowAllAuthenticator}";
        let mut plain = Config::default();
        plain.set_from_yaml(named).unwrap();
        plain.check().unwrap();
        assert!(config.set_from_yaml("- a\n- b\n").is_err());
        assert!(config.set_from_yaml("num_tokens: {a: 1}").is_err());
    }

    #[test]
    fn options_without_effect_are_reported_and_those_that_must_have_one_are_refused() {
        let mut config = Config::default();
        let text = "
ssl_storage_port: 7001
concurrent_reads: 32
key_cache_size:
memtable: {configurations: {default: {class_name: SkipListMemtable}}}
cdc_enabled: false
materialized_views_enabled: false
scripted_user_defined_functions_enabled: true
user_defined_functions_enabled: true
internode_authenticator: org.apache.cassandra.auth.AllowAllInternodeAuthenticator
server_encryption_options:
    internode_encryption: none
    keystore: conf/.keystore
num_tokens: 4
";
        let left_out = config.set_from_yaml(text).unwrap();
        let no_use = ["ssl_storage_port", "concurrent_reads", "key_cache_size", "memtable"];
        assert_eq!(left_out.of_no_use[..4], no_use);
        assert_eq!(left_out.of_no_use[4..], ["server_encryption_options_keystore"]);
        assert_eq!(left_out.not_built, ["scripted_user_defined_functions_enabled"]);
        assert!(config.user_defined_functions_enabled && !config.materialized_views_enabled);
        assert_eq!(config.num_tokens, 4);
        for (text, said) in [
            ("cdc_enabled: true", "option cdc_enabled: 'true' is not valid: anything else is not built yet"),
            ("listen_interface: eth0", "give the address with listen_address"),
            ("concurrent_raeds: 1", "unknown option 'concurrent_raeds'"),
        ] {
            let error = config.set_from_yaml(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
