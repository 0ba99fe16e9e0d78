//! Access to administration and metrics: nobody beyond loopback without credentials.

use std::net::IpAddr;

use tls::ClientAuth;

use super::{Config, ConfigError};

impl Config {
    /// Whether clients of administration and metrics can log in, by name and password of a role.
    pub(crate) fn has_passwords(&self) -> bool {
        !self.asks_nobody() && self.authentication().is_some_and(|method| method.passwords)
    }

    /// Whether every client of these ports beyond loopback shows a certificate.
    fn asks_for_certificates(&self) -> bool {
        self.api_encryption_options_enabled
            && self.api_encryption_options_require_client_auth == ClientAuth::Required
    }

    pub(super) fn check_administration(&self) -> Result<(), ConfigError> {
        if self.api_local_login && !self.has_passwords() {
            return Err(ConfigError::Conflict(
                "api_local_login is set, but clients have no passwords: set authenticator, too".to_owned(),
            ));
        }
        let asked = self.api_encryption_options_require_client_auth != ClientAuth::No;
        if asked && !self.api_encryption_options_enabled {
            return Err(ConfigError::Conflict(
                "api_encryption_options: require_client_auth is set, but they are not enabled".to_owned(),
            ));
        }
        Ok(())
    }

    /// Refuses ports of administration and metrics that would serve every client that reaches them. It is apart from [`Config::check`], for a simulated
    /// network has no strangers.
    ///
    /// # Errors
    /// When an address is not loopback, and neither passwords nor certificates are asked for.
    pub fn check_reach(&self) -> Result<(), ConfigError> {
        let is_safe = |address: IpAddr, port: u16| port == 0 || address.to_canonical().is_loopback();
        for (option, address, port) in [
            ("api_address", self.api_address, self.api_port),
            ("prometheus_address", self.prometheus_address, self.prometheus_port),
        ] {
            if is_safe(address, port) || self.has_passwords() || self.asks_for_certificates() {
                continue;
            }
            return Err(ConfigError::Conflict(format!(
                "{option} is {address}, which is not loopback, and everybody who reaches it would be served: set authenticator (PasswordAuthenticator), so that \
                 its clients log in as roles; or api_encryption_options with enabled, certificate, keyfile, truststore and require_client_auth: true, so \
                 that they show certificates; or leave {option} at 127.0.0.1"
            )));
        }
        Ok(())
    }

    /// Whether passwords of administrators may go over the network in the clear.
    pub(crate) fn exposes_passwords(&self) -> bool {
        let far = |address: IpAddr, port: u16| port != 0 && !address.to_canonical().is_loopback();
        self.has_passwords()
            && !self.api_encryption_options_enabled
            && (far(self.api_address, self.api_port) || far(self.prometheus_address, self.prometheus_port))
    }
}

#[cfg(test)]
mod tests {
    use super::super::checked;

    fn reach(yaml: &str) -> Result<bool, String> {
        let config = checked(yaml)?;
        config.check_reach().map_err(|error| error.to_string())?;
        Ok(config.exposes_passwords())
    }

    #[test]
    fn an_address_beyond_loopback_asks_who_comes() {
        let tls = "api_encryption_options: {enabled: true, certificate: c, keyfile: k, truststore: t, require_client_auth: ";
        for option in ["api_address", "prometheus_address"] {
            for address in ["10.0.0.1", "0.0.0.0", "\"::\"", "\"::ffff:10.0.0.1\""] {
                let with = |rest: &str| reach(&format!("{option}: {address}\n{rest}"));
                let refused = with("").unwrap_err();
                let named = ["api_encryption_options", "require_client_auth", "authenticator", option];
                assert!(named.iter().all(|name| refused.contains(name)), "{refused}");
                assert_eq!(with(&format!("{tls} optional}}")).unwrap_err(), refused);
                assert_eq!(with(&format!("{tls} true}}")), Ok(false));
                assert_eq!(with("authenticator: PasswordAuthenticator"), Ok(true));
                let both = format!("authenticator: PasswordAuthenticator\n{tls} false}}");
                assert_eq!(with(&both), Ok(false));
                let port = option.replace("address", "port");
                assert_eq!(with(&format!("{port}: 0")), Ok(false), "it is closed");
            }
            for address in ["127.0.62.1", "\"::1\""] {
                assert_eq!(reach(&format!("{option}: {address}")), Ok(false));
            }
        }
    }

    #[test]
    fn options_without_effect_are_refused() {
        let refused = |yaml: &str| checked(yaml).unwrap_err();
        assert!(refused("api_local_login: true").contains("set authenticator"));
        assert!(checked("api_local_login: true\nauthenticator: PasswordAuthenticator").is_ok());
        let lacks = refused(
            "api_encryption_options: {enabled: true, certificate: c, keyfile: k, require_client_auth: optional}",
        );
        assert_eq!(lacks, "api_encryption_options lack truststore");
        let lacks = refused("api_encryption_options: {enabled: true}");
        assert_eq!(lacks, "api_encryption_options lack certificate");
        assert!(refused("api_encryption_options: {require_client_auth: true}").contains("not enabled"));
        // The certificate may be that of CQL, the authorities may not.
        let cql = "client_encryption_options: {enabled: true, certificate: c, keyfile: k, truststore: t}";
        assert!(checked(&format!("{cql}\napi_encryption_options: {{enabled: true}}")).is_ok());
        let trusting = format!("{cql}\napi_encryption_options: {{enabled: true, require_client_auth: true}}");
        assert_eq!(refused(&trusting), "api_encryption_options lack truststore");
    }
}
