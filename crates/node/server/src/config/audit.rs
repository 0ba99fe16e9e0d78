//! The options of the audit log: their validation, and the requests that are audited.

use std::collections::BTreeSet;

use exec::audit::{AuditStyle, StatementFilter};

use super::auth::is_class;
use super::options::refused;
use super::{Config, ConfigError};
use crate::audit::SyslogTarget;

impl Config {
    /// Which requests are audited.
    ///
    /// # Errors
    /// The option with an unknown category.
    pub(crate) fn audit_filter(&self) -> Result<exec::audit::AuditFilter, ConfigError> {
        let lists = exec::audit::AuditLists {
            included_keyspaces: &self.audit_logging_options_included_keyspaces,
            excluded_keyspaces: &self.audit_logging_options_excluded_keyspaces,
            included_categories: &self.audit_logging_options_included_categories,
            excluded_categories: &self.audit_logging_options_excluded_categories,
            included_users: &self.audit_logging_options_included_users,
            excluded_users: &self.audit_logging_options_excluded_users,
        };
        let expected = "expected QUERY, DML, DDL, DCL, OTHER, AUTH, ERROR or PREPARE, separated by commas";
        let name = "audit_logging_options: included_categories or excluded_categories";
        exec::audit::AuditFilter::new(&lists).map_err(|wrong| refused(name, wrong, expected))
    }

    /// The entries that ScyllaDB's options want; none where they are off.
    ///
    /// # Errors
    /// The option with an unknown value.
    pub(crate) fn scylla_audit(&self) -> Result<Option<StatementFilter>, ConfigError> {
        let (categories, keyspaces, tables) =
            (&self.audit_categories, &self.audit_keyspaces, &self.audit_tables);
        let filter = StatementFilter::new(categories, keyspaces, tables).map_err(|(option, wrong)| {
            let expected = match option {
                "audit_tables" => "expected tables, each as keyspace.table, separated by commas",
                _ => "expected QUERY, DML, DDL, DCL, AUTH or ADMIN, separated by commas",
            };
            refused(option, wrong, expected)
        })?;
        Ok((!self.scylla_sinks()?.is_empty()).then_some(filter))
    }

    /// The places of ScyllaDB's option; no place when one of its words is `none`.
    fn scylla_sinks(&self) -> Result<BTreeSet<&str>, ConfigError> {
        let words: BTreeSet<&str> =
            self.audit.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        if let Some(wrong) = words.iter().find(|word| !["none", "table", "syslog"].contains(word)) {
            return Err(refused(
                "audit",
                (*wrong).to_owned(),
                "expected none, table, syslog, or table,syslog",
            ));
        }
        Ok(if words.contains("none") { BTreeSet::new() } else { words })
    }

    fn has_scylla_sink(&self, name: &str) -> bool {
        self.scylla_sinks().is_ok_and(|sinks| sinks.contains(name))
    }

    /// The form of the entries.
    pub(crate) fn audit_style(&self) -> AuditStyle {
        let is_scylla = self.scylla_sinks().is_ok_and(|sinks| !sinks.is_empty());
        if is_scylla { AuditStyle::Scylla } else { AuditStyle::Cassandra }
    }

    /// The server of syslog that the audit log goes to; none where it does not.
    pub(crate) fn audit_syslog_target(&self) -> Option<SyslogTarget> {
        if self.audit_style() == AuditStyle::Scylla {
            let path = self.has_scylla_sink("syslog").then_some(&self.audit_unix_socket_path);
            return path.and_then(|path| SyslogTarget::parse(path));
        }
        let is_syslog = is_class(&self.audit_logging_options_logger, "SyslogAuditLogger");
        is_syslog.then(|| SyslogTarget::parse(&self.audit_logging_options_syslog_target)).flatten()
    }

    /// Whether the audit log is a table.
    pub(crate) fn audits_to_table(&self) -> bool {
        if self.audit_style() == AuditStyle::Scylla {
            return self.has_scylla_sink("table");
        }
        is_class(&self.audit_logging_options_logger, "TableAuditLogger")
    }

    fn check_scylla_audit(&self) -> Result<(), ConfigError> {
        if self.scylla_audit()?.is_none() {
            return Ok(());
        }
        if self.audit_logging_options_enabled {
            return Err(ConfigError::Conflict(format!(
                "audit ({}) and audit_logging_options are two audit logs: set audit to none, or enabled of audit_logging_options to false",
                self.audit
            )));
        }
        let path = &self.audit_unix_socket_path;
        if !path.starts_with('/') {
            return Err(refused("audit_unix_socket_path", path.clone(), "expected an absolute path"));
        }
        Ok(())
    }

    pub(super) fn check_audit(&self) -> Result<(), ConfigError> {
        self.audit_filter()?;
        self.check_scylla_audit()?;
        let logger = &self.audit_logging_options_logger;
        let is_syslog = is_class(logger, "SyslogAuditLogger");
        let is_table = is_class(logger, "TableAuditLogger");
        let is_known = is_syslog || is_table || is_class(logger, "FileAuditLogger");
        if self.audit_logging_options_enabled && !is_known {
            let expected =
                "expected FileAuditLogger, lines of text in files, SyslogAuditLogger or TableAuditLogger";
            return Err(refused("audit_logging_options: logger", logger.clone(), expected));
        }
        let target = &self.audit_logging_options_syslog_target;
        if is_syslog && SyslogTarget::parse(target).is_none() {
            let expected = "expected an absolute path, or an address with its port";
            return Err(refused("audit_logging_options: syslog_target", target.clone(), expected));
        }
        let bytes = self.audit_logging_options_max_log_size.0;
        if bytes < 64 << 20 {
            let expected = "expected a size of at least 64 MiB";
            return Err(refused("audit_logging_options: max_log_size", bytes.to_string(), expected));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: &[(&str, &str)]) -> Result<Config, String> {
        let mut config = Config::default();
        for (name, value) in options {
            config.set(name, value).map_err(|error| error.to_string())?;
        }
        config.check_audit().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn scylladbs_options_choose_places_and_do_not_mix_with_cassandras() {
        let both =
            with(&[("audit", "syslog, table"), ("audit_unix_socket_path", "/run/x")]).expect("two places");
        assert!(both.audits_to_table() && both.audit_style() == AuditStyle::Scylla);
        assert_eq!(both.audit_syslog_target(), Some(SyslogTarget::Socket("/run/x".into())));
        let table = with(&[("audit", "table")]).expect("a place");
        assert_eq!(table.audit_syslog_target(), None);
        let none =
            with(&[("audit", "none"), ("audit_logging_options_logger", "TableAuditLogger")]).expect("off");
        assert!(none.audits_to_table() && none.audit_style() == AuditStyle::Cassandra);
        assert_eq!(none.scylla_audit().expect("it is checked"), None);
        for (options, why) in [
            (&[("audit", "tabel")][..], "expected none, table, syslog, or table,syslog"),
            (&[("audit_categories", "DML,X")], "audit_categories"),
            (&[("audit_tables", "t")], "each as keyspace.table"),
            (&[("audit", "syslog"), ("audit_unix_socket_path", "x")], "audit_unix_socket_path"),
            (&[("audit", "table"), ("audit_logging_options_enabled", "true")], "two audit logs"),
        ] {
            let error = with(options).expect_err("it is wrong");
            assert!(error.contains(why), "{options:?}: {error}");
        }
    }
}
