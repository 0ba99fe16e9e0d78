//! ListBackups.

use exec::backend::Coordinator;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use super::backups::{backup_arn, summary};
use crate::backup::record::{Backup, Status};
use crate::error::{Result, invalid};
use crate::request::Request;
use crate::transfer::seconds;

/// Backups of a page at most.
const PAGE_MAX: i64 = 100;

/// A bound of the time of creation, seconds since 1970.
fn time(request: &Request, name: &str) -> Result<Option<f64>> {
    match request.get(name) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(seconds) => Ok(Some(seconds)),
            None => invalid!("{name}: a time is a number of seconds since 1970"),
        },
    }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn list_backups(&self, request: &Request) -> Result<Json> {
        let table = if request.has("TableName") { Some(request.table_name()?) } else { None };
        let limit = request.integer("Limit", 1, PAGE_MAX)?.unwrap_or(PAGE_MAX) as usize;
        let (from, to) = (time(request, "TimeRangeLowerBound")?, time(request, "TimeRangeUpperBound")?);
        if let (Some(from), Some(to)) = (from, to)
            && from > to
        {
            return invalid!("TimeRangeLowerBound must be before TimeRangeUpperBound");
        }
        let kind = request.one_of("BackupType", &["USER", "SYSTEM", "AWS_BACKUP", "ALL"])?;
        let after = match request.get("ExclusiveStartBackupArn") {
            Some(arn) => {
                let arn = backup_arn(arn, "exclusiveStartBackupArn")?;
                let Some((_, id)) = arn.rsplit_once("/backup/") else {
                    return invalid!("Invalid ExclusiveStartBackupArn: {arn}");
                };
                id
            }
            None => "",
        };
        let is_wanted = |backup: &Backup| {
            let created = seconds(backup.created);
            backup.status != Status::Deleting
                && matches!(
                    (kind, backup.is_system),
                    (Some("ALL"), _) | (None | Some("USER"), false) | (Some("SYSTEM"), true)
                )
                && backup.id.as_str() > after
                && table.as_ref().is_none_or(|table| *table == backup.table)
                && from.is_none_or(|from| created >= from)
                && to.is_none_or(|to| created < to)
        };
        let all = self.store().backups().await?;
        let mut wanted = all.iter().filter(|backup| is_wanted(backup));
        let page: Vec<&Backup> = wanted.by_ref().take(limit).collect();
        let mut answer = Map::new();
        if let (Some(_), Some(last)) = (wanted.next(), page.last()) {
            answer.insert("LastEvaluatedBackupArn".to_owned(), last.arn().into());
        }
        let summaries: Vec<Json> = page.into_iter().map(summary).collect();
        answer.insert("BackupSummaries".to_owned(), to_json!(summaries));
        Ok(Json::Object(answer))
    }
}
