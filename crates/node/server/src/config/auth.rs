//! Options of authentication and authorisation that must go together.

use auth::password::{COST_MAX, COST_MIN, Hash};

use super::{Config, ConfigError};

/// Whether an option names a class, short or in full.
pub(crate) fn is_class(value: &str, class: &str) -> bool {
    value.rsplit('.').next().is_some_and(|short| short.eq_ignore_ascii_case(class))
}

impl Config {
    pub(super) fn check_auth(&self) -> Result<(), ConfigError> {
        let value = |name: &str, value: String, expected: &str| {
            Err(ConfigError::Value { name: name.to_owned(), value, expected: expected.to_owned() })
        };
        for (option, authorizer) in
            [("authorizer", &self.authorizer), ("network_authorizer", &self.network_authorizer)]
        {
            let asks = is_class(authorizer, "CassandraAuthorizer")
                || is_class(authorizer, "CassandraNetworkAuthorizer");
            if asks && is_class(&self.authenticator, "AllowAllAuthenticator") {
                return Err(ConfigError::Conflict(format!(
                    "AllowAllAuthenticator can't be used with {authorizer}: set authenticator to PasswordAuthenticator, or \
                     {option} to its default"
                )));
            }
        }
        if self.auth_superuser_name.is_empty() {
            return value("auth_superuser_name", String::new(), "expected the name of a role");
        }
        let hash = &self.auth_superuser_salted_password.0;
        if !hash.is_empty() && Hash::parse(hash).is_none() {
            let expected = "expected a bcrypt hash, as `htpasswd -nbBC 10 \"\" PASSWORD` makes one";
            return value("auth_superuser_salted_password", "(a secret)".to_owned(), expected);
        }
        if !(COST_MIN..=COST_MAX).contains(&self.auth_bcrypt_gensalt_log2_rounds) {
            let given = self.auth_bcrypt_gensalt_log2_rounds.to_string();
            let expected = format!("expected a number from {COST_MIN} to {COST_MAX}");
            return value("auth_bcrypt_gensalt_log2_rounds", given, &expected);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(yaml: &str) -> Result<Config, String> {
        let mut config = Config::default();
        config.set_from_yaml(yaml).map_err(|error| error.to_string())?;
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn authorisation_needs_authentication() {
        let full = "authenticator: org.apache.cassandra.auth.PasswordAuthenticator";
        assert!(checked(&format!("{full}\nauthorizer: CassandraAuthorizer")).is_ok());
        assert!(checked(&format!("{full}\nnetwork_authorizer: CassandraNetworkAuthorizer")).is_ok());
        for yaml in ["authorizer: CassandraAuthorizer", "network_authorizer: CassandraNetworkAuthorizer"] {
            let error = checked(yaml).unwrap_err();
            assert!(error.contains("AllowAllAuthenticator can't be used with"), "{error}");
        }
        let unnamed = Config { auth_superuser_name: String::new(), ..Config::default() };
        assert!(unnamed.check().is_err());
        assert!(checked("authenticator: LdapAuthenticator").unwrap_err().contains("PasswordAuthenticator"));
        assert!(checked("auth_bcrypt_gensalt_log2_rounds: 31").is_err());
    }

    #[test]
    fn the_hash_of_the_superuser_is_shown_nowhere() {
        let hash = "$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe";
        let config = checked(&format!("auth_superuser_salted_password: {hash}")).unwrap();
        assert_eq!(config.auth_superuser_salted_password.0, hash);
        assert!(config.show().iter().all(|(_, value)| !value.contains("$2a")));
        assert!(!format!("{config:?}").contains("$2a"));
        let error = checked("auth_superuser_salted_password: secret").unwrap_err();
        assert!(error.contains("bcrypt") && !error.contains("secret'"), "{error}");
    }
}
