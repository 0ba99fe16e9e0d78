//! The options of the directory of users (LDAP): the uses that are on, and their requirements.

use std::time::Duration;

use ldap::{LdapError, UrlTemplate};

use super::auth::is_class;
use super::options::refused;
use super::{Config, ConfigError, OptionValue};

/// A conversation has this much time.
const TIMEOUT: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
/// The longest time for which an answer of the directory counts.
const VALIDITY_MAX: Duration = Duration::from_secs(24 * 3600);

impl Config {
    /// Whether the directory has the passwords of users.
    pub(crate) fn uses_directory_logins(&self) -> bool {
        self.authentication().is_some_and(|method| method.directory)
    }

    /// Whether the directory has the groups of users.
    pub(crate) fn uses_directory_groups(&self) -> bool {
        is_class(&self.role_manager, "LDAPRoleManager")
    }

    pub(super) fn check_directory(&self) -> Result<(), ConfigError> {
        if !self.uses_directory_groups() && !is_class(&self.role_manager, "CassandraRoleManager") {
            let expected = "expected CassandraRoleManager or LDAPRoleManager";
            return Err(refused("role_manager", self.role_manager.clone(), expected));
        }
        if !TIMEOUT.contains(&self.ldap_timeout) {
            return Err(refused(
                "ldap_timeout",
                self.ldap_timeout.show(),
                "expected a time from 10ms to 60s",
            ));
        }
        if self.ldap_cache_validity > VALIDITY_MAX {
            let expected = "expected a time of at most 24h";
            return Err(refused("ldap_cache_validity", self.ldap_cache_validity.show(), expected));
        }
        let logins = (self.uses_directory_logins(), "authenticator is LdapAuthenticator");
        let url = &self.ldap_authentication_url_template;
        if let Some(url) = self.directory_url("ldap_authentication_url_template", url, logins)?
            && url.has_user_in_name() == url.has_user_in_filter()
        {
            return Err(refused(
                "ldap_authentication_url_template",
                self.ldap_authentication_url_template.clone(),
                "expected {USER} in the name of the entry or in the filter of a search",
            ));
        }
        let groups = (self.uses_directory_groups(), "role_manager is LDAPRoleManager");
        let Some(url) = self.directory_url("ldap_url_template", &self.ldap_url_template, groups)? else {
            return Ok(());
        };
        if url.has_user_in_name() || !url.has_user_in_filter() {
            let expected = "expected {USER} in the filter alone";
            return Err(refused("ldap_url_template", self.ldap_url_template.clone(), expected));
        }
        if self.ldap_attr_role.is_empty() {
            return Err(ConfigError::Conflict("LDAPRoleManager needs ldap_attr_role".to_owned()));
        }
        Ok(())
    }

    /// The URL of an option that is needed where something is in use, and of no effect elsewhere.
    fn directory_url(
        &self,
        name: &str,
        text: &str,
        (used, by): (bool, &str),
    ) -> Result<Option<UrlTemplate>, ConfigError> {
        match (used, text.is_empty()) {
            (false, true) => return Ok(None),
            (false, false) => return Err(ConfigError::Conflict(format!("{name} has no effect unless {by}"))),
            (true, true) => return Err(ConfigError::Conflict(format!("{by}, which needs {name}"))),
            (true, false) => {}
        }
        let url =
            UrlTemplate::parse(text).map_err(|error: LdapError| refused(name, text, error.to_string()))?;
        if url.secure && self.ldap_start_tls {
            let why = format!("{name} is a URL of ldaps, which begins with TLS: ldap_start_tls is for ldap");
            return Err(ConfigError::Conflict(why));
        }
        if (url.secure || self.ldap_start_tls) && self.ldap_truststore.is_none() {
            return Err(ConfigError::Conflict(format!("{name} uses TLS, which needs ldap_truststore")));
        }
        Ok(Some(url))
    }
}

#[cfg(test)]
mod tests {
    use super::super::checked;

    #[test]
    fn scylladbs_options_are_understood() {
        let yaml = "role_manager: com.scylladb.auth.LDAPRoleManager
ldap_url_template: \"ldap://localhost:123/dc=example,dc=com?cn?sub?(uniqueMember=uid={USER},ou=People,dc=example,dc=com)\"
ldap_attr_role: cn
ldap_bind_dn: \"cn=root,dc=example,dc=com\"
ldap_bind_passwd: secret
";
        let config = checked(yaml).expect("its example");
        assert!(config.uses_directory_groups() && !config.uses_directory_logins());
        assert!(config.show().iter().all(|(_, value)| value != "secret"));
        let login = "authenticator: LDAPAuthenticator\nldap_authentication_url_template: \"ldap://h/uid={USER},dc=x\"";
        let config = checked(login).expect("a name");
        assert!(config.uses_directory_logins() && !config.uses_directory_groups() && !config.asks_nobody());
    }

    #[test]
    fn what_is_missing_or_has_no_effect_is_named() {
        let login = "authenticator: LdapAuthenticator";
        let url = |url: &str| format!("{login}\nldap_authentication_url_template: \"{url}\"");
        let groups = "role_manager: LDAPRoleManager";
        for (yaml, said) in [
            (login.to_owned(), "needs ldap_authentication_url_template"),
            (url("ldap://h/dc=x"), "expected {USER} in the name"),
            (url("ldap://h/uid={USER}??sub?(uid={USER})"), "expected {USER} in the name"),
            (url("http://h/{USER}"), "begins with ldap"),
            (url("ldaps://h/uid={USER}"), "needs ldap_truststore"),
            (format!("{}\nldap_start_tls: true", url("ldap://h/uid={USER}")), "needs ldap_truststore"),
            (
                format!("{}\nldap_start_tls: true\nldap_truststore: t", url("ldaps://h/uid={USER}")),
                "begins with TLS",
            ),
            ("ldap_authentication_url_template: \"ldap://h/uid={USER}\"".to_owned(), "has no effect unless"),
            ("ldap_url_template: \"ldap://h/??sub?(a={USER})\"".to_owned(), "has no effect unless"),
            (groups.to_owned(), "needs ldap_url_template"),
            (format!("{groups}\nldap_url_template: \"ldap://h/??sub?(a={{USER}})\""), "needs ldap_attr_role"),
            (format!("{groups}\nldap_url_template: \"ldap://h/dc=x??sub?(a=b)\""), "in the filter alone"),
            ("role_manager: MyRoleManager".to_owned(), "expected CassandraRoleManager or LDAPRoleManager"),
            ("ldap_timeout: 0s".to_owned(), "from 10ms to 60s"),
            ("ldap_cache_validity: 48h".to_owned(), "at most 24h"),
        ] {
            let error = checked(&yaml).expect_err(&yaml);
            assert!(error.contains(said), "{yaml}: {error}");
        }
    }
}
