//! The directory (LDAP) that knows the passwords of users and the groups that they are in (docs/design/ldap.md).

mod connection;
mod shard;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ldap::UrlTemplate;
use rt::{Replaceable, Rt};
use tls::Trust;

use crate::{Config, NodeError};

pub(crate) use shard::ShardDirectory;

/// The present addresses of a name, which the process keeps up to date as long as they are held.
pub type Addresses = Arc<Replaceable<Vec<SocketAddr>>>;
/// Finds the addresses of a name with a port, without waiting for them.
pub type ResolveHook = Arc<dyn Fn(&str, u16) -> Result<Addresses, String> + Send + Sync>;

/// No truststore is longer.
const TRUSTSTORE_LEN_MAX: usize = 1 << 20;

/// A directory, and the search or name there that a URL gives.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) url: UrlTemplate,
    addresses: Addresses,
}

/// The directory of a node, shared by its shards.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Where passwords are verified.
    login: Option<Source>,
    /// Where groups are found, and the attribute that has their role.
    groups: Option<(Source, String)>,
    /// The name and password by which searches are made; none for anonymous ones.
    searcher: Option<(String, String)>,
    start_tls: bool,
    trust: Option<Trust>,
    timeout: Duration,
    validity: Duration,
}

impl Directory {
    /// That of the configuration; none where it names none.
    pub(crate) async fn open(
        rt: &Rt,
        config: &Config,
        resolve: Option<&ResolveHook>,
    ) -> Result<Option<Arc<Directory>>, NodeError> {
        let (logs_in, has_groups) = (config.uses_directory_logins(), config.uses_directory_groups());
        if !logs_in && !has_groups {
            return Ok(None);
        }
        let wrong = |error: &dyn std::fmt::Display| NodeError::Open(format!("LDAP: {error}"));
        let source = |url: &str| -> Result<Source, NodeError> {
            let url = UrlTemplate::parse(url).map_err(|error| wrong(&error))?;
            let addresses = addresses(&url.host, url.port, resolve).map_err(|error| wrong(&error))?;
            Ok(Source { url, addresses })
        };
        let login = if logs_in { Some(source(&config.ldap_authentication_url_template)?) } else { None };
        let groups = match has_groups {
            true => Some((source(&config.ldap_url_template)?, config.ldap_attr_role.clone())),
            false => None,
        };
        let searcher = (config.ldap_bind_dn.clone(), config.ldap_bind_passwd.0.clone());
        let trust = match &config.ldap_truststore {
            Some(path) => Some(trust(rt, "ldap_truststore", path).await?),
            None => None,
        };
        Ok(Some(Arc::new(Directory {
            login,
            groups,
            searcher: Some(searcher).filter(|(name, _)| !name.is_empty()),
            start_tls: config.ldap_start_tls,
            trust,
            timeout: config.ldap_timeout,
            validity: config.ldap_cache_validity,
        })))
    }
}

/// The authorities in the file of an option.
pub(crate) async fn trust(rt: &Rt, option: &str, path: &PathBuf) -> Result<Trust, NodeError> {
    let failed = |error: &dyn std::fmt::Display| NodeError::Open(format!("{option}: {error}"));
    let pem = rt.disk().read_to_end(path, TRUSTSTORE_LEN_MAX).await.map_err(|error| failed(&error))?;
    Trust::new(&pem).map_err(|error| failed(&error))
}

/// The present addresses of a host, which may be one.
pub(crate) fn addresses(host: &str, port: u16, resolve: Option<&ResolveHook>) -> Result<Addresses, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Arc::new(Replaceable::new(vec![SocketAddr::new(address, port)])));
    }
    let resolve =
        resolve.ok_or_else(|| format!("names such as {host:?} are not resolved here; give an address"))?;
    resolve(host, port)
}
