//! DescribeContinuousBackups, UpdateContinuousBackups and RestoreTableToPointInTime: there is no recovery to a point in time, and nothing pretends that.

use exec::backend::Coordinator;
use items::json;
use serde_json::{Value as Json, json as to_json};

use super::Dynamo;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::request::{Request, constraint, table_name, target_name};
use crate::table;

fn disabled() -> Json {
    to_json!({ "ContinuousBackupsDescription": {
        "ContinuousBackupsStatus": "DISABLED",
        "PointInTimeRecoveryDescription": { "PointInTimeRecoveryStatus": "DISABLED" },
    } })
}

impl<C: Coordinator> Dynamo<C> {
    /// Refuses a table that is not there.
    fn check_source(&self, name: &str) -> Result<()> {
        let found = table::find_named(&self.schema(), name);
        let missing = |_| ApiError::new(ErrorKind::TableNotFound, format!("Table not found: {name}"));
        found.map(|_| ()).map_err(missing)
    }

    pub(super) fn describe_continuous_backups(&self, request: &Request) -> Result<Json> {
        self.check_source(&request.table_name()?)?;
        Ok(disabled())
    }

    pub(super) fn update_continuous_backups(&self, request: &Request) -> Result<Json> {
        let name = request.table_name()?;
        let specification = Request::part(request.required("PointInTimeRecoverySpecification")?)?;
        let Some(enabled) = specification.boolean("PointInTimeRecoveryEnabled")? else {
            let place = "pointInTimeRecoverySpecification.pointInTimeRecoveryEnabled";
            return constraint("null", place, "Member must not be null");
        };
        self.check_source(&name)?;
        if enabled {
            let text = "Torc has no point in time recovery: use CreateBackup, or the table's stream";
            return Err(ApiError::new(ErrorKind::ContinuousBackupsUnavailable, text));
        }
        Ok(disabled())
    }

    pub(super) fn restore_table_to_point_in_time(&self, request: &Request) -> Result<Json> {
        target_name(request)?;
        let source = ["SourceTableName", "SourceTableArn"].iter().find_map(|name| request.get(name));
        let Some(source) = source else {
            return invalid!("Either SourceTableName or SourceTableArn must be given");
        };
        let source = table_name(json::read_string(source)?)?;
        self.check_source(&source)?;
        let text = format!("Point in time recovery is not enabled for table '{source}'");
        Err(ApiError::new(ErrorKind::PointInTimeRecoveryUnavailable, text))
    }
}
