//! The S3-compatible service that has the files of exports and imports (`alternator_export_endpoint`), and its credentials.

use std::path::Path;
use std::sync::Arc;

use dynamo::ObjectStore;
use rt::Rt;

use crate::config::Endpoint;
use crate::directory::{ResolveHook, addresses, trust};
use crate::{Config, NodeError};

/// No file of credentials is longer.
const CREDENTIALS_LEN_MAX: usize = 64 << 10;

/// The id and the secret in a file of AWS's form.
fn credentials(text: &str) -> Option<(String, String)> {
    let value = |wanted: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        let found = lines.find(|(name, _)| name.trim() == wanted)?.1.trim();
        Some(found.to_owned()).filter(|found| !found.is_empty())
    };
    Some((value("aws_access_key_id")?, value("aws_secret_access_key")?))
}

/// The service of the configuration; none where it names none.
pub(crate) async fn open(
    rt: &Rt,
    config: &Config,
    resolve: Option<&ResolveHook>,
) -> Result<Option<ObjectStore>, NodeError> {
    let (Some(endpoint), Some(path)) =
        (Endpoint::parse(&config.alternator_export_endpoint), &config.alternator_export_credentials)
    else {
        return Ok(None);
    };
    let (key, secret) = read_credentials(rt, path).await?;
    let addresses = addresses(&endpoint.host, endpoint.port, resolve)
        .map_err(|error| NodeError::Open(format!("alternator_export_endpoint: {error}")))?;
    let trust = match &config.alternator_export_truststore {
        Some(path) if endpoint.is_secure => {
            Some(Arc::new(trust(rt, "alternator_export_truststore", path).await?))
        }
        _ => None,
    };
    Ok(Some(ObjectStore {
        authority: endpoint.authority,
        name: endpoint.host,
        addresses,
        trust,
        region: config.alternator_export_region.clone(),
        key,
        secret,
    }))
}

async fn read_credentials(rt: &Rt, path: &Path) -> Result<(String, String), NodeError> {
    let failed =
        |error: &dyn std::fmt::Display| NodeError::Open(format!("alternator_export_credentials: {error}"));
    let bytes = rt.disk().read_to_end(path, CREDENTIALS_LEN_MAX).await.map_err(|error| failed(&error))?;
    let read = std::str::from_utf8(&bytes).ok().and_then(credentials);
    read.ok_or_else(|| {
        let lacks = format!("{} lacks aws_access_key_id or aws_secret_access_key", path.display());
        failed(&lacks)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_the_form_of_aws() {
        let text = "[default]\naws_access_key_id = AKIA\n# x\naws_secret_access_key=a/b+c=\n";
        assert_eq!(credentials(text), Some(("AKIA".to_owned(), "a/b+c=".to_owned())));
        assert_eq!(credentials("aws_access_key_id = AKIA\naws_secret_access_key =\n"), None);
        assert_eq!(credentials(""), None);
    }
}
