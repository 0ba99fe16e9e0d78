//! DescribeContinuousBackups, UpdateContinuousBackups and RestoreTableToPointInTime (docs/design/pitr.md).

use exec::backend::Coordinator;
use items::json;
use schema::Schema;
use serde_json::{Value as Json, json as to_json};

use super::Dynamo;
use super::create_table::Origin;
use super::describe_table::description;
use super::estimate::Estimate;
use super::restore_table::refuse_encryption;
use super::stream_specification::check_name;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::recovery::definition::{DAYS_DEFAULT, DAYS_MAX, Recovery};
use crate::recovery::{Recovered, restored_from};
use crate::request::{Request, constraint, table_name, target_name};
use crate::streams::shard::shard_bits;
use crate::table::{self, ApiTable};

const PLACE: &str = "pointInTimeRecoverySpecification";

/// `PointInTimeRecoverySpecification`: the days of the period; none to disable it.
fn specification(request: &Request) -> Result<Option<i64>> {
    let part = Request::part(request.required("PointInTimeRecoverySpecification")?)?;
    let days = part.get("RecoveryPeriodInDays").map(json::read_integer).transpose()?;
    let bound = match days {
        Some(days) if days < 1 => Some("greater than or equal to 1".to_owned()),
        Some(days) if days > DAYS_MAX => Some(format!("less than or equal to {DAYS_MAX}")),
        _ => None,
    };
    if let (Some(bound), Some(days)) = (bound, days) {
        let place = format!("{PLACE}.recoveryPeriodInDays");
        return constraint(&days.to_string(), &place, &format!("Member must have value {bound}"));
    }
    match (part.boolean("PointInTimeRecoveryEnabled")?, days) {
        (None, _) => {
            constraint("null", &format!("{PLACE}.pointInTimeRecoveryEnabled"), "Member must not be null")
        }
        (Some(false), Some(_)) => {
            invalid!("RecoveryPeriodInDays cannot be specified when PointInTimeRecoveryEnabled is false")
        }
        (Some(enabled), days) => Ok(enabled.then(|| days.unwrap_or(DAYS_DEFAULT))),
    }
}

/// A time of a request, microseconds since 1970.
pub(super) fn micros(request: &Request, name: &str) -> Result<Option<i64>> {
    let Some(time) = request.get(name) else { return Ok(None) };
    // The largest time that is exact in microseconds.
    match time.as_f64().filter(|seconds| (0.0..=9.0e9).contains(seconds)) {
        Some(seconds) => Ok(Some((seconds * 1e6).round() as i64)),
        None => Err(ApiError::new(ErrorKind::Serialization, format!("{name} is no time"))),
    }
}

/// The table to restore from.
fn source_name(request: &Request) -> Result<String> {
    let read = |name| request.string(name)?.map(table_name).transpose();
    match (read("SourceTableName")?, read("SourceTableArn")?) {
        (None, None) => invalid!("Either SourceTableName or SourceTableArn must be given"),
        (Some(name), Some(other)) if name != other => {
            invalid!("SourceTableName and SourceTableArn must not be those of two tables")
        }
        (Some(name), _) | (None, Some(name)) => Ok(name.to_owned()),
    }
}

fn missing(name: &str) -> ApiError {
    ApiError::new(ErrorKind::TableNotFound, format!("Table not found: {name}"))
}

/// The error for a table without recovery.
pub(super) fn unavailable(name: &str) -> ApiError {
    let text = format!("Point in time recovery is not enabled for table '{name}'");
    ApiError::new(ErrorKind::PointInTimeRecoveryUnavailable, text)
}

impl<C: Coordinator> Dynamo<C> {
    /// The first and the last second since 1970 to which a table can be restored now; none when its recovery is disabled. The last
    /// is before the first shortly after it was enabled.
    pub(super) fn restorable(&self, schema: &Schema, recovery: &Recovery) -> Option<(i64, i64)> {
        let (now, window) = (self.executor.clock().wall_micros(), self.streams.window_micros);
        // Older streams of the log are not known any more.
        let known = schema.cdc_generations().first().map_or(i64::MAX, |oldest| oldest.start_millis);
        let earliest = recovery.earliest(now, window)?.max(-(-known).div_euclid(1000));
        Some((earliest, (now - window).div_euclid(1_000_000)))
    }

    fn continuous_backups(&self, name: &str) -> Result<Json> {
        let schema = self.schema();
        let recovery = table::find_named(&schema, name).map_err(|_| missing(name))?.recovery();
        let shown = match (recovery.days(), self.restorable(&schema, &recovery)) {
            (Some(days), Some((earliest, latest))) => to_json!({
                "PointInTimeRecoveryStatus": "ENABLED",
                "RecoveryPeriodInDays": days,
                "EarliestRestorableDateTime": earliest,
                "LatestRestorableDateTime": latest.max(earliest),
            }),
            _ => to_json!({ "PointInTimeRecoveryStatus": "DISABLED" }),
        };
        Ok(to_json!({ "ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": shown
        } }))
    }

    pub(super) fn describe_continuous_backups(&self, request: &Request) -> Result<Json> {
        self.continuous_backups(&request.table_name()?)
    }

    pub(super) async fn update_continuous_backups(&self, request: &Request) -> Result<Json> {
        let name = request.table_name()?;
        let days = specification(request)?;
        let busy = |text: String| ApiError::new(ErrorKind::ContinuousBackupsUnavailable, text);
        let find = |schema: &Schema| {
            let found = table::find_named(schema, &name).map_err(|_| missing(&name))?;
            match found.occupation() {
                Some(what) => {
                    Err(busy(format!("Backups have not yet been enabled for table '{name}': {what}")))
                }
                None => Ok(found),
            }
        };
        if find(&self.schema())?.recovery().days() == days {
            return self.continuous_backups(&name);
        }
        self.change_table_in(find, |schema, found, details| {
            let recovery = details.recovery.get_or_insert_default();
            match (days, restored_from(schema, found.table.id)) {
                (Some(days), _) => {
                    check_name(&name)?;
                    recovery.enable(days, self.executor.timestamp())
                }
                (None, Some(target)) => Err(busy(format!(
                    "Point in time recovery cannot be disabled while table {target} is being restored from '{name}'"
                ))),
                (None, None) => {
                    recovery.disable();
                    Ok(())
                }
            }
        })
        .await?;
        self.continuous_backups(&name)
    }

    pub(super) async fn restore_table_to_point_in_time(
        &self,
        request: &Request,
        role: Option<&str>,
    ) -> Result<Json> {
        let (target, source) = (target_name(request)?, source_name(request)?);
        refuse_encryption(request)?;
        let latest = request.boolean("UseLatestRestorableTime")?.unwrap_or(false);
        let wanted = match (micros(request, "RestoreDateTime")?, latest) {
            (Some(_), true) => {
                return invalid!("RestoreDateTime and UseLatestRestorableTime cannot both be specified");
            }
            (None, false) => {
                return invalid!("Either RestoreDateTime or UseLatestRestorableTime must be specified");
            }
            (wanted, _) => wanted,
        };
        let schema = self.schema();
        let table = table::find_named(&schema, &source).map_err(|_| missing(&source))?;
        if let Some(what) = table.occupation() {
            return Err(ApiError::new(ErrorKind::TableInUse, what));
        }
        self.check_target(&target)?;
        let micros = self.restorable_micros(&schema, &table, wanted)?;
        self.create_recovered(request, (&table, &target), micros, role).await
    }

    /// Creates the table that becomes the state of another at a time; the answer to the request.
    pub(super) async fn create_recovered(
        &self,
        request: &Request,
        (table, target): (&ApiTable, &str),
        micros: i64,
        role: Option<&str>,
    ) -> Result<Json> {
        let recovered = Recovered {
            source: table.name().to_owned(),
            source_id: table.table.id,
            micros,
            at_micros: self.executor.timestamp(),
            part_bits: shard_bits(&self.executor.coordinator().view()),
            done: 0,
            progress_millis: 0,
            ended_millis: 0,
        };
        // The table may be gone, or its recovery disabled, before the other is there.
        let (id, recovery, name) = (table.table.id, table.recovery(), table.name().to_owned());
        let check = move |schema: &Schema| {
            let found = schema.table_by_id(id).and_then(ApiTable::of);
            found.filter(|found| found.recovery() == recovery).map(|_| ()).ok_or_else(|| unavailable(&name))
        };
        let shown = description(table, table.status(), Estimate::default());
        let origin = Origin::Recovered(recovered, Box::new(check));
        self.create_restored(request, (&shown, target), role, origin).await
    }

    /// The point in time that is wanted, or the latest, microseconds since 1970.
    ///
    /// # Errors
    /// When a table cannot be restored to it.
    pub(super) fn restorable_micros(
        &self,
        schema: &Schema,
        table: &ApiTable,
        wanted: Option<i64>,
    ) -> Result<i64> {
        let Some((earliest, latest)) = self.restorable(schema, &table.recovery()) else {
            return Err(unavailable(table.name()));
        };
        let micros = wanted.unwrap_or(latest * 1_000_000);
        let settled = self.executor.clock().wall_micros() - self.streams.window_micros;
        if (earliest * 1_000_000..=settled).contains(&micros) {
            return Ok(micros);
        }
        let text = match latest < earliest {
            true => format!(
                "Point in time recovery of table '{}' was enabled just now: try again in {} seconds",
                table.name(),
                earliest - latest
            ),
            false => format!(
                "The time must be between EarliestRestorableDateTime ({earliest} seconds since 1970) and \
                 LatestRestorableDateTime ({latest}) of table '{}'",
                table.name()
            ),
        };
        Err(ApiError::new(ErrorKind::InvalidRestoreTime, text))
    }
}
