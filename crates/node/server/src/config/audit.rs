//! The options of the audit log: their validation, and the requests that are audited.

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

    /// The server of syslog that the audit log goes to; none where it goes to files.
    pub(crate) fn audit_syslog_target(&self) -> Option<SyslogTarget> {
        let is_syslog = is_class(&self.audit_logging_options_logger, "SyslogAuditLogger");
        is_syslog.then(|| SyslogTarget::parse(&self.audit_logging_options_syslog_target)).flatten()
    }

    /// Whether the audit log is a table.
    pub(crate) fn audits_to_table(&self) -> bool {
        is_class(&self.audit_logging_options_logger, "TableAuditLogger")
    }

    pub(super) fn check_audit(&self) -> Result<(), ConfigError> {
        self.audit_filter()?;
        let logger = &self.audit_logging_options_logger;
        let is_syslog = is_class(logger, "SyslogAuditLogger");
        let is_known = is_syslog || self.audits_to_table() || is_class(logger, "FileAuditLogger");
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
