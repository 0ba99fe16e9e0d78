//! The options of TLS, and their missing parts.

use std::path::{Path, PathBuf};

use super::{Config, ConfigError};

/// The files of one side of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncryptionFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) truststore: Option<PathBuf>,
}

impl Config {
    /// Whether anything is encrypted on the way to other nodes.
    pub(crate) fn encrypts_internode(&self) -> bool {
        self.server_encryption_options_internode_encryption != "none"
    }

    /// The files for other nodes, if they are used.
    pub(crate) fn internode_files(&self) -> Result<Option<EncryptionFiles>, ConfigError> {
        let files = files(
            "server_encryption_options",
            self.server_encryption_options_certificate.as_deref(),
            self.server_encryption_options_keyfile.as_deref(),
            self.server_encryption_options_truststore.as_deref(),
        );
        let needed = self.encrypts_internode().then(|| {
            files.and_then(|files| match files.truststore {
                Some(_) => Ok(files),
                // A node connects to others, and must verify its peers.
                None => Err(lacks("server_encryption_options", "truststore")),
            })
        });
        needed.transpose()
    }

    /// The files for clients, if they are used.
    pub(crate) fn client_files(&self) -> Result<Option<EncryptionFiles>, ConfigError> {
        let needed = self.client_encryption_options_enabled.then(|| {
            files(
                "client_encryption_options",
                self.client_encryption_options_certificate.as_deref(),
                self.client_encryption_options_keyfile.as_deref(),
                self.client_encryption_options_truststore.as_deref(),
            )
        });
        needed.transpose()
    }

    /// The files for the DynamoDB API, if it has a port with TLS: its own, else the certificate and key of CQL clients.
    pub(crate) fn alternator_files(&self) -> Result<Option<EncryptionFiles>, ConfigError> {
        if self.alternator_https_port == 0 {
            return Ok(None);
        }
        let own =
            (&self.alternator_encryption_options_certificate, &self.alternator_encryption_options_keyfile);
        let clients = (&self.client_encryption_options_certificate, &self.client_encryption_options_keyfile);
        let (certificate, key) = match (own, clients) {
            ((None, None), (Some(_), Some(_))) => clients,
            _ => own,
        };
        let files = files("alternator_encryption_options", certificate.as_deref(), key.as_deref(), None);
        let files = files
            .map_err(|error| ConfigError::Conflict(format!("alternator_https_port is set, but {error}")));
        Ok(Some(files?))
    }

    /// The files of administration and metrics, if they use TLS: their own, else the certificate and key of CQL clients. Whose certificates are
    /// trusted is never taken from there: clients of CQL are not administrators.
    pub(crate) fn api_files(&self) -> Result<Option<EncryptionFiles>, ConfigError> {
        if !self.api_encryption_options_enabled {
            return Ok(None);
        }
        let own = (&self.api_encryption_options_certificate, &self.api_encryption_options_keyfile);
        let clients = (&self.client_encryption_options_certificate, &self.client_encryption_options_keyfile);
        let (certificate, key) = match (own, clients) {
            ((None, None), (Some(_), Some(_))) => clients,
            _ => own,
        };
        let truststore = self.api_encryption_options_truststore.as_deref();
        let group = "api_encryption_options";
        let files = files(group, certificate.as_deref(), key.as_deref(), truststore)?;
        if self.api_encryption_options_require_client_auth != tls::ClientAuth::No
            && files.truststore.is_none()
        {
            return Err(lacks(group, "truststore"));
        }
        Ok(Some(files))
    }

    pub(super) fn check_encryption(&self) -> Result<(), ConfigError> {
        self.internode_files()?;
        let clients = self.client_files()?;
        self.alternator_files()?;
        self.api_files()?;
        if self.client_encryption_options_require_client_auth != tls::ClientAuth::No
            && clients.is_some_and(|files| files.truststore.is_none())
        {
            return Err(lacks("client_encryption_options", "truststore"));
        }
        for (name, port) in [
            ("native_transport_port_ssl", self.native_transport_port_ssl),
            ("native_shard_aware_transport_port_ssl", self.native_shard_aware_transport_port_ssl),
        ] {
            if port != 0 && !self.client_encryption_options_enabled {
                return Err(ConfigError::Conflict(format!(
                    "{name} is set, but client_encryption_options are not enabled"
                )));
            }
        }
        Ok(())
    }
}

fn lacks(group: &str, option: &str) -> ConfigError {
    ConfigError::Conflict(format!("{group} lack {option}"))
}

fn files(
    group: &str,
    certificate: Option<&Path>,
    key: Option<&Path>,
    truststore: Option<&Path>,
) -> Result<EncryptionFiles, ConfigError> {
    Ok(EncryptionFiles {
        certificate: certificate.ok_or_else(|| lacks(group, "certificate"))?.to_owned(),
        key: key.ok_or_else(|| lacks(group, "keyfile"))?.to_owned(),
        truststore: truststore.map(Path::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_options_are_named() {
        let with = |text: &str| {
            let mut config = Config::default();
            config.set_from_yaml(text).unwrap();
            config.check().map_err(|error| error.to_string())
        };
        for (text, lacks) in [
            (
                "server_encryption_options: {internode_encryption: all}",
                "server_encryption_options lack certificate",
            ),
            (
                "server_encryption_options: {internode_encryption: dc, certificate: c, keyfile: k}",
                "server_encryption_options lack truststore",
            ),
            (
                "client_encryption_options: {enabled: true, certificate: c}",
                "client_encryption_options lack keyfile",
            ),
            (
                "client_encryption_options: {enabled: true, certificate: c, keyfile: k, require_client_auth: true}",
                "client_encryption_options lack truststore",
            ),
            ("native_transport_port_ssl: 9142", "are not enabled"),
            (
                "alternator_https_port: 8043",
                "alternator_https_port is set, but alternator_encryption_options lack certificate",
            ),
            (
                "{alternator_https_port: 8043, alternator_encryption_options: {certificate: c}, \
                 client_encryption_options: {certificate: d, keyfile: k}}",
                "alternator_encryption_options lack keyfile",
            ),
            (
                "{alternator_https_port: 8000, alternator_port: 8000, alternator_encryption_options: {certificate: c, keyfile: k}}",
                "alternator_https_port and alternator_port are the same",
            ),
            ("alternator_export_directory: exports", "alternator_export_directory must be an absolute path"),
            (
                "{alternator_export_endpoint: \"http://h:9000\", alternator_export_directory: /x}",
                "alternator_export_endpoint is set, which needs alternator_export_credentials",
            ),
            (
                "{alternator_export_endpoint: \"https://h\", alternator_export_directory: /x, alternator_export_credentials: /c}",
                "which needs alternator_export_truststore",
            ),
            ("alternator_export_endpoint: h", "expected http://HOST:PORT or https://HOST:PORT"),
            ("server_encryption_options: {internode_encryption: some}", "none or all or dc or rack"),
        ] {
            let error = with(text).unwrap_err();
            assert!(error.contains(lacks), "{text}: {error}");
        }
        assert_eq!(with("client_encryption_options: {enabled: true, certificate: c, keyfile: k}"), Ok(()));
        assert_eq!(with("server_encryption_options: {certificate: c}"), Ok(()), "it is not used");
        assert_eq!(with("alternator_encryption_options: {certificate: c}"), Ok(()), "it is not used");
    }

    #[test]
    fn the_dynamodb_api_has_files_of_its_own_or_those_of_clients() {
        let certificate = |text: &str| {
            let mut config = Config::default();
            config.set_from_yaml(text).unwrap();
            let files = config.alternator_files().expect("nothing is missing")?;
            assert_eq!(files.truststore, None);
            Some((files.certificate.display().to_string(), files.key.display().to_string()))
        };
        let pair = |certificate: &str, key: &str| Some((certificate.to_owned(), key.to_owned()));
        let (own, clients) = (
            "alternator_encryption_options: {certificate: c, keyfile: k}",
            "client_encryption_options: {certificate: d, keyfile: l, truststore: t}",
        );
        assert_eq!(certificate(&format!("{own}\n{clients}")), None);
        let port = "alternator_https_port: 8043";
        assert_eq!(certificate(&format!("{port}\n{own}\n{clients}")), pair("c", "k"));
        assert_eq!(certificate(&format!("{port}\n{clients}")), pair("d", "l"));
    }
}
