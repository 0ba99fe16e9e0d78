//! DescribeEndpoints, DescribeLimits and DescribeContinuousBackups.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json};

use super::Dynamo;
use crate::error::{ApiError, ErrorKind, Result};
use crate::request::Request;
use crate::table;

/// The endpoint: clients come back to where they found it.
pub(super) fn endpoints(host: &str) -> Json {
    json!({ "Endpoints": [{ "Address": host, "CachePeriodInMinutes": 1440 }] })
}

/// AWS's limits of an account, none of which is enforced.
pub(super) fn limits() -> Json {
    json!({
        "AccountMaxReadCapacityUnits": 80_000,
        "AccountMaxWriteCapacityUnits": 80_000,
        "TableMaxReadCapacityUnits": 40_000,
        "TableMaxWriteCapacityUnits": 40_000,
    })
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) fn describe_continuous_backups(&self, request: &Request) -> Result<Json> {
        let name = request.table_name()?;
        table::find(&self.schema(), &name).map_err(|_| {
            let kind = ErrorKind::ResourceNotFound;
            ApiError::new(kind, format!("Table not found: {name}"))
        })?;
        Ok(json!({ "ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "DISABLED",
            "PointInTimeRecoveryDescription": { "PointInTimeRecoveryStatus": "DISABLED" },
        } }))
    }
}
