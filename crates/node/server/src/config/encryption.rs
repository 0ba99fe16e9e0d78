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
                // A node connects to others, and must know whom it meets.
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

    pub(super) fn check_encryption(&self) -> Result<(), ConfigError> {
        self.internode_files()?;
        let clients = self.client_files()?;
        if self.client_encryption_options_require_client_auth
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
    fn what_is_missing_is_named() {
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
            ("server_encryption_options: {internode_encryption: some}", "none or all or dc or rack"),
        ] {
            let error = with(text).unwrap_err();
            assert!(error.contains(lacks), "{text}: {error}");
        }
        assert_eq!(with("client_encryption_options: {enabled: true, certificate: c, keyfile: k}"), Ok(()));
        assert_eq!(with("server_encryption_options: {certificate: c}"), Ok(()), "it is not used");
    }
}
