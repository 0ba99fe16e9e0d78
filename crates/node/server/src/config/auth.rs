//! Options of authentication and authorisation that must go together.

use auth::RoleQueries;
use auth::password::{COST_MAX, COST_MIN, Hash};
use tls::ClientAuth;

use super::options::refused;
use super::{Config, ConfigError};

/// How clients authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authentication {
    /// The class that does so, as AUTHENTICATE names it.
    pub(crate) class: &'static str,
    /// By the certificates that they show.
    pub(crate) certificates: Option<CertificateNaming>,
    /// By a password that the roles have; where certificates count, too, those clients that show none.
    pub(crate) passwords: bool,
    /// By a password that the directory has.
    pub(crate) directory: bool,
}

/// How a certificate gives the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateNaming {
    /// By an identity that ADD IDENTITY has given to the role: Cassandra's.
    Identity,
    /// By `auth_certificate_role_queries`: ScyllaDB's.
    Queries,
}

impl Authentication {
    /// The class that AUTHENTICATE names: clients know the mechanism by it, and a directory's is that of passwords.
    pub(crate) fn announced(&self) -> &'static str {
        if self.directory { "org.apache.cassandra.auth.PasswordAuthenticator" } else { self.class }
    }
}

const METHODS: [Authentication; 7] = [
    Authentication {
        class: "com.scylladb.auth.LdapAuthenticator",
        certificates: None,
        passwords: false,
        directory: true,
    },
    Authentication {
        class: "org.apache.cassandra.auth.AllowAllAuthenticator",
        certificates: None,
        passwords: false,
        directory: false,
    },
    Authentication {
        class: "org.apache.cassandra.auth.PasswordAuthenticator",
        certificates: None,
        passwords: true,
        directory: false,
    },
    Authentication {
        class: "org.apache.cassandra.auth.MutualTlsAuthenticator",
        certificates: Some(CertificateNaming::Identity),
        passwords: false,
        directory: false,
    },
    Authentication {
        class: "org.apache.cassandra.auth.MutualTlsWithPasswordFallbackAuthenticator",
        certificates: Some(CertificateNaming::Identity),
        passwords: true,
        directory: false,
    },
    Authentication {
        class: "com.scylladb.auth.CertificateAuthenticator",
        certificates: Some(CertificateNaming::Queries),
        passwords: false,
        directory: false,
    },
    Authentication {
        class: "com.scylladb.auth.CertificateOrPasswordAuthenticator",
        certificates: Some(CertificateNaming::Queries),
        passwords: true,
        directory: false,
    },
];

fn short(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

/// Whether an option names a class, short or in full.
pub(crate) fn is_class(value: &str, class: &str) -> bool {
    value.rsplit('.').next().is_some_and(|short| short.eq_ignore_ascii_case(class))
}

impl Config {
    /// Refuses ScyllaDB's classes that let everybody in meanwhile, with the way to the same end.
    pub(super) fn check_transitional(&self) -> Result<(), ConfigError> {
        let expected = "clients that cannot log in are never let in: give every client its role and password first, and use PasswordAuthenticator \
                        and CassandraAuthorizer then";
        for (name, value) in [("authenticator", &self.authenticator), ("authorizer", &self.authorizer)] {
            if short(value).to_ascii_lowercase().starts_with("transitional") {
                return Err(refused(name, value, expected));
            }
        }
        Ok(())
    }

    /// How clients authenticate; none when `authenticator` names no known class.
    pub(crate) fn authentication(&self) -> Option<Authentication> {
        METHODS.into_iter().find(|method| is_class(&self.authenticator, short(method.class)))
    }

    /// Refuses an unknown authenticator, and one that lacks the certificates of clients.
    fn check_authenticator(&self) -> Result<(), ConfigError> {
        let name = "authenticator";
        let Some(method) = self.authentication() else {
            let known: Vec<&str> = METHODS.iter().map(|method| short(method.class)).collect();
            return Err(refused(name, &self.authenticator, format!("expected {}", known.join(" or "))));
        };
        if !is_class(&self.authenticator_validator_class_name, "SpiffeCertificateValidator") {
            let expected = "expected SpiffeCertificateValidator";
            return Err(refused(
                "authenticator: validator_class_name",
                &self.authenticator_validator_class_name,
                expected,
            ));
        }
        RoleQueries::parse(&self.auth_certificate_role_queries).map_err(|error| {
            refused("auth_certificate_role_queries", &self.auth_certificate_role_queries, error)
        })?;
        let enabled = self.client_encryption_options_enabled;
        let asked = self.client_encryption_options_require_client_auth;
        let (fits, needed) = match (method.certificates, method.passwords) {
            (None, _) => return Ok(()),
            (Some(_), false) => (asked == ClientAuth::Required, "true"),
            (Some(_), true) => (asked != ClientAuth::No, "optional/true"),
        };
        if enabled && fits {
            return Ok(());
        }
        Err(ConfigError::Conflict(format!(
            "{} requires client_encryption_options.enabled to be true & client_encryption_options.require_client_auth to \
             be {needed}",
            short(method.class)
        )))
    }

    pub(super) fn check_auth(&self) -> Result<(), ConfigError> {
        let value = |name: &str, value: String, expected: &str| {
            Err(ConfigError::Value { name: name.to_owned(), value, expected: expected.to_owned() })
        };
        self.check_authenticator()?;
        self.check_directory()?;
        for (option, authorizer) in [
            ("authorizer", &self.authorizer),
            ("network_authorizer", &self.network_authorizer),
            ("cidr_authorizer", &self.cidr_authorizer),
        ] {
            let asks = is_class(authorizer, "CassandraAuthorizer")
                || is_class(authorizer, "CassandraNetworkAuthorizer")
                || is_class(authorizer, "CassandraCIDRAuthorizer");
            if asks && is_class(&self.authenticator, "AllowAllAuthenticator") {
                return Err(ConfigError::Conflict(format!(
                    "AllowAllAuthenticator can't be used with {authorizer}: set authenticator to another, as PasswordAuthenticator, or \
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
    use super::super::checked;
    use super::*;

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
        assert!(
            checked("authenticator: KerberosAuthenticator").unwrap_err().contains("PasswordAuthenticator")
        );
        assert!(checked("auth_bcrypt_gensalt_log2_rounds: 31").is_err());
    }

    #[test]
    fn the_authorizer_of_addresses_has_parameters() {
        let full = "authenticator: PasswordAuthenticator\ncidr_authorizer:\n  class_name: CassandraCIDRAuthorizer\n  parameters: ";
        let config = checked(&format!(
            "{full}{{cidr_authorizer_mode: ENFORCE, cidr_checks_for_superusers: false, ip_cache_max_size: 100}}"
        ));
        let config = config.expect("known parameters");
        assert_eq!((&*config.cidr_authorizer_mode, config.cidr_checks_for_superusers), ("ENFORCE", false));
        assert!(checked(&format!("{full}{{cidr_authorizer_mode: WATCH}}")).unwrap_err().contains("ENFORCE"));
        let error = checked("cidr_authorizer: CassandraCIDRAuthorizer").unwrap_err();
        assert!(error.contains("AllowAllAuthenticator can't be used with"), "{error}");
    }

    #[test]
    fn authentication_by_certificates_needs_them() {
        let tls = |asked: &str| {
            format!(
                "client_encryption_options: {{enabled: true, certificate: c, keyfile: k, truststore: t, require_client_auth: {asked}}}"
            )
        };
        let with =
            |authenticator: &str, rest: &str| checked(&format!("authenticator: {authenticator}\n{rest}"));
        for (strict, lenient) in [
            ("MutualTlsAuthenticator", "MutualTlsWithPasswordFallbackAuthenticator"),
            ("com.scylladb.auth.CertificateAuthenticator", "CertificateOrPasswordAuthenticator"),
        ] {
            let error = with(strict, &tls("optional")).unwrap_err();
            assert!(error.contains("client_encryption_options.require_client_auth to be true"), "{error}");
            let error = with(lenient, &tls("false")).unwrap_err();
            assert!(
                error.contains("client_encryption_options.require_client_auth to be optional/true"),
                "{error}"
            );
            assert!(with(lenient, "").unwrap_err().contains("client_encryption_options.enabled to be true"));
            for asked in ["true", "optional"] {
                with(lenient, &tls(asked)).expect("it may show a certificate");
            }
            let config = with(strict, &tls("true")).expect("it shows a certificate");
            assert!(!config.asks_nobody() && config.authentication().is_some_and(|how| !how.passwords));
        }
    }

    #[test]
    fn parameters_of_authenticators_are_read() {
        let tls = "client_encryption_options: {enabled: true, certificate: c, keyfile: k, truststore: t, require_client_auth: true}";
        let class =
            "authenticator:\n  class_name: org.apache.cassandra.auth.MutualTlsAuthenticator\n  parameters:";
        let with = |parameters: &str| checked(&format!("{tls}\n{class}{parameters}"));
        with(" {validator_class_name: org.apache.cassandra.auth.SpiffeCertificateValidator}").expect("known");
        with("\n  - validator_class_name: SpiffeCertificateValidator").expect("a list of parameters");
        let error = with(" {validator_class_name: com.example.Mine}").unwrap_err();
        assert!(error.contains("expected SpiffeCertificateValidator"), "{error}");
        assert!(with(" {validator: x}").unwrap_err().contains("authenticator_validator"));
        let queries = |text: &str| {
            checked(&format!(
                "{tls}\nauthenticator: CertificateAuthenticator\nauth_certificate_role_queries:\n{text}"
            ))
        };
        let config = queries(
            "  - source: SUBJECT\n    query: CN=([^,\\s]+)\n  - {source: ALTNAME, query: 'URI=(.*)$'}",
        );
        let queries_of = |config: Config| config.auth_certificate_role_queries;
        assert_eq!(queries_of(config.expect("two queries")), "SUBJECT CN=([^,\\s]+)\nALTNAME URI=(.*)$");
        assert!(queries("  - {source: ISSUER, query: (a)}").unwrap_err().contains("no source"));
        assert!(queries("  - {source: SUBJECT}").unwrap_err().contains("source and query"));
        assert!(
            queries("  - {source: SUBJECT, query: (a), more: b}").unwrap_err().contains("source and query")
        );
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
