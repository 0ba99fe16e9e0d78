//! `StreamSpecification` of CreateTable and UpdateTable, and its form in DescribeTable.

use coordinator::ClusterView;
use serde_json::{Map, Value as Json, json as to_json};

use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::request::{Request, TABLE_NAME_MAX, constraint};
use crate::streams::definition::{STREAMS_MAX, Stream, ViewType};
use crate::streams::shard::shard_bits;
use crate::table::{ApiTable, Details};

/// The state of a table's stream that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Specification {
    Enabled(ViewType),
    Disabled,
}

/// Refuses names whose log would have too long a one.
pub(super) fn check_name(table: &str) -> Result<()> {
    let most = TABLE_NAME_MAX - schema::CDC_LOG_SUFFIX.len();
    if table.len() > most {
        return invalid!(
            "TableName: Torc allows names of at most {most} characters for tables with streams or recovery to a point in time"
        );
    }
    Ok(())
}

/// `StreamSpecification`, where it is given; `table` is the name of the table.
pub(super) fn read(request: &Request, table: &str) -> Result<Option<Specification>> {
    const PLACE: &str = "streamSpecification";
    let Some(json) = request.get("StreamSpecification") else { return Ok(None) };
    let specification = Request::part(json)?;
    let view = specification.string("StreamViewType")?;
    let view = match view.map(|name| (name, ViewType::from_name(name))) {
        None => None,
        Some((_, Some(view))) => Some(view),
        Some((name, None)) => {
            let bound = format!("Member must satisfy enum value set: [{}]", ViewType::NAMES.join(", "));
            return constraint(name, &format!("{PLACE}.streamViewType"), &bound);
        }
    };
    match (specification.boolean("StreamEnabled")?, view) {
        (None, _) => constraint("null", &format!("{PLACE}.streamEnabled"), "Member must not be null"),
        (Some(true), None) => invalid!(
            "One or more parameter values were invalid: StreamViewType must be specified when StreamEnabled is true"
        ),
        (Some(false), Some(_)) => invalid!(
            "One or more parameter values were invalid: StreamViewType must not be specified when StreamEnabled is false"
        ),
        (Some(true), Some(view)) => check_name(table).map(|()| Some(Specification::Enabled(view))),
        (Some(false), None) => Ok(Some(Specification::Disabled)),
    }
}

/// Enables or disables the stream of a table.
pub(super) fn update(
    details: &mut Details,
    specification: Specification,
    table: &str,
    (view, now_micros): (&ClusterView, i64),
) -> Result<()> {
    let open = details.streams.last_mut().filter(|stream| stream.is_open());
    match (specification, open) {
        (Specification::Enabled(_), Some(_)) => {
            invalid!("Table already has an enabled stream: TableName: {table}")
        }
        (Specification::Disabled, None) => invalid!("Table has no stream to disable: TableName: {table}"),
        (Specification::Disabled, Some(open)) => {
            open.end_micros = Some(now_micros.max(open.start_micros() + 1));
            Ok(())
        }
        (Specification::Enabled(shown), None) => enable(details, shown, table, (view, now_micros)),
    }
}

/// Adds a stream that is enabled.
pub(super) fn enable(
    details: &mut Details,
    shown: ViewType,
    table: &str,
    (view, now_micros): (&ClusterView, i64),
) -> Result<()> {
    details.streams.retain(|stream| stream.is_readable(now_micros));
    if details.streams.len() >= STREAMS_MAX {
        let text = format!(
            "Table {table} has had {STREAMS_MAX} streams within a day: no more are enabled until one of them ends"
        );
        return Err(ApiError::new(ErrorKind::LimitExceeded, text));
    }
    // Behind all changes of the stream before.
    let before = details.streams.last().and_then(|stream| stream.end_micros);
    let after = before.map_or(i64::MIN, |end| end.div_euclid(1000) + 1);
    details.streams.push(Stream {
        start_millis: now_micros.div_euclid(1000).max(after),
        end_micros: None,
        view: shown,
        shard_bits: shard_bits(view),
    });
    Ok(())
}

/// Adds the stream members to the description of a table.
pub(super) fn describe(table: &ApiTable, members: &mut Map<String, Json>) {
    let streams = table.streams();
    let Some(latest) = streams.last() else { return };
    if latest.is_open() {
        let specification = to_json!({ "StreamEnabled": true, "StreamViewType": latest.view.name() });
        members.insert("StreamSpecification".to_owned(), specification);
    }
    members.insert("LatestStreamLabel".to_owned(), latest.label().into());
    members.insert("LatestStreamArn".to_owned(), latest.arn(table.name()).into());
}
