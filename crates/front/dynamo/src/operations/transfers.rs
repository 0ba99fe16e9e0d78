//! Common parts of exports and imports: tokens, descriptions and lists (DescribeExport, DescribeImport, ListExports, ListImports).

use std::rc::Rc;

use exec::backend::Coordinator;
use items::json;
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::request::{Request, constraint, fingerprint, table_name};
use crate::table::ApiTable;
use crate::transfer::record::{Kind, RECORD_BYTES_MAX, Record, Records};
use crate::transfer::{TOKEN_MILLIS, Transfers};

/// Entries of a page of a list.
const PAGE_MAX: i64 = 25;
/// Bytes of a token.
const TOKEN_BYTES_MAX: usize = 1024;

/// The members of the description of an export or import that lists show.
const EXPORT_SUMMARY: [&str; 3] = ["ExportArn", "ExportStatus", "ExportType"];
const IMPORT_SUMMARY: [&str; 7] =
    ["ImportArn", "ImportStatus", "TableArn", "S3BucketSource", "InputFormat", "StartTime", "EndTime"];

/// The name of a transfer inside its ARN.
fn id_of<'a>(kind: Kind, arn: &'a str) -> &'a str {
    let parts = arn.rsplit_once('/').and_then(|(table, id)| Some((table.rsplit_once('/')?.1, id)));
    parts.filter(|(part, _)| *part == kind.part()).map_or("", |(_, id)| id)
}

/// The error for an ARN of no transfer.
fn missing(kind: Kind, arn: &str) -> ApiError {
    match kind {
        Kind::Export => ApiError::new(ErrorKind::ExportNotFound, format!("Export not found: {arn}")),
        Kind::Import => ApiError::new(ErrorKind::ImportNotFound, format!("Import not found: {arn}")),
    }
}

/// A new transfer.
pub(super) struct NewTransfer {
    pub(super) kind: Kind,
    /// Its name: the time, and a number by its token.
    pub(super) id: String,
    fingerprint: String,
    token: Option<String>,
}

impl NewTransfer {
    /// The record of it, without the description.
    pub(super) fn record(&self, transfers: &Transfers, mut description: Map<String, Json>) -> Result<Record> {
        if let Some(token) = &self.token {
            description.insert("ClientToken".to_owned(), token.as_str().into());
        }
        let (node, fingerprint) = (transfers.node.clone(), self.fingerprint.clone());
        let record = Record { node, fingerprint, description };
        if Json::Object(record.description.clone()).to_string().len() > RECORD_BYTES_MAX / 2 {
            return invalid!("The request has more than {} bytes", RECORD_BYTES_MAX / 2);
        }
        Ok(record)
    }
}

impl<C: Coordinator> Dynamo<C> {
    /// The exports and imports of this node.
    ///
    /// # Errors
    /// When the operator allows none.
    pub(super) fn transfers(&self, operation: &str) -> Result<Rc<Transfers>> {
        match &self.transfers {
            Some(transfers) => Ok(transfers.clone()),
            None => invalid!(
                "{operation} needs a directory on the nodes for exports and imports: set the option \
                 alternator_export_directory"
            ),
        }
    }

    /// A new transfer; or the earlier one with the token of this request.
    ///
    /// # Errors
    /// When the token was that of another request, or the records cannot be read.
    pub(super) async fn new_transfer(
        &self,
        transfers: &Transfers,
        kind: Kind,
        request: &Request,
    ) -> Result<std::result::Result<NewTransfer, Record>> {
        let token = request.string("ClientToken")?;
        if let Some(token) = token
            && (token.is_empty() || token.contains('$') || token.len() > TOKEN_BYTES_MAX)
        {
            return constraint(
                token,
                "clientToken",
                "Member must satisfy regular expression pattern: ^[^\\$]+$",
            );
        }
        let fingerprint = format!("{:032x}", fingerprint(&request.without("ClientToken")));
        let now = self.executor.clock().wall_micros().div_euclid(1000);
        let number = match token {
            Some(token) => crc32fast::hash(token.as_bytes()),
            None => crc32fast::hash(&self.executor.clock().random()),
        };
        let (id, suffix) = (format!("{now:014}-{number:08x}"), format!("-{number:08x}"));
        let records = Records(&transfers.files.root);
        let since = format!("{:014}", now - TOKEN_MILLIS);
        let ids = if token.is_some() { records.ids(kind).await? } else { Vec::new() };
        for old in ids.into_iter().filter(|old| old.ends_with(&suffix) && *old >= since) {
            let record = records.read(kind, &old).await?;
            let same = record.filter(|record| token.is_some() && record.text("ClientToken") == token);
            match same {
                Some(record) if record.fingerprint == fingerprint => return Ok(Err(record)),
                Some(_) => {
                    let error = match kind {
                        Kind::Export => ErrorKind::ExportConflict,
                        Kind::Import => ErrorKind::ImportConflict,
                    };
                    let text = "ClientToken was used for a request with other parameters";
                    return Err(ApiError::new(error, text));
                }
                None => {}
            }
        }
        transfers.check_room()?;
        Ok(Ok(NewTransfer { kind, id, fingerprint, token: token.map(str::to_owned) }))
    }

    async fn record(&self, operation: &str, kind: Kind, member: &str, request: &Request) -> Result<Json> {
        let transfers = self.transfers(operation)?;
        let arn = json::read_string(request.required(member)?)?;
        let record = Records(&transfers.files.root).read(kind, id_of(kind, arn)).await?;
        // The ARN names a table, too.
        match record.filter(|record| record.text(member) == Some(arn)) {
            Some(record) => Ok(Json::Object(record.description)),
            None => Err(missing(kind, arn)),
        }
    }

    pub(super) async fn describe_export(&self, request: &Request) -> Result<Json> {
        let description = self.record("DescribeExport", Kind::Export, "ExportArn", request).await?;
        Ok(to_json!({ "ExportDescription": description }))
    }

    pub(super) async fn describe_import(&self, request: &Request) -> Result<Json> {
        let description = self.record("DescribeImport", Kind::Import, "ImportArn", request).await?;
        Ok(to_json!({ "ImportTableDescription": description }))
    }

    pub(super) async fn list_exports(&self, request: &Request) -> Result<Json> {
        let transfers = self.transfers("ListExports")?;
        let max = request.integer("MaxResults", 1, PAGE_MAX)?;
        self.list(&transfers, (Kind::Export, "ExportSummaries", &EXPORT_SUMMARY), max, request).await
    }

    pub(super) async fn list_imports(&self, request: &Request) -> Result<Json> {
        let transfers = self.transfers("ListImports")?;
        let max = request.integer("PageSize", 1, PAGE_MAX)?;
        self.list(&transfers, (Kind::Import, "ImportSummaryList", &IMPORT_SUMMARY), max, request).await
    }

    async fn list(
        &self,
        transfers: &Transfers,
        (kind, member, shown): (Kind, &str, &[&str]),
        max: Option<i64>,
        request: &Request,
    ) -> Result<Json> {
        let max = max.unwrap_or(PAGE_MAX) as usize;
        let after = request.string("NextToken")?.unwrap_or_default();
        let table = request.string("TableArn")?.map(|arn| table_name(arn).map(|_| arn)).transpose()?;
        let records = Records(&transfers.files.root);
        let ids = records.ids(kind).await?;
        let (mut found, mut last) = (Vec::new(), None);
        for id in ids.into_iter().filter(|id| id.as_str() > after) {
            let Some(record) = records.read(kind, &id).await? else { continue };
            if table.is_some_and(|arn| record.text("TableArn") != Some(arn)) {
                continue;
            }
            if found.len() == max {
                let answer = to_json!({ (member): found, "NextToken": last });
                return Ok(answer);
            }
            let members = shown
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), record.description.get(*name)?.clone())));
            found.push(Json::Object(members.collect()));
            last = Some(id);
        }
        Ok(to_json!({ (member): found }))
    }

    /// The members of a description that begin both kinds of transfers.
    pub(super) fn begun(&self, new: &NewTransfer, table: &ApiTable, micros: i64) -> Map<String, Json> {
        let arn = format!("{}/{}/{}", table.arn(), new.kind.part(), new.id);
        let name = match new.kind {
            Kind::Export => "ExportArn",
            Kind::Import => "ImportArn",
        };
        let members = [
            (name, to_json!(arn)),
            (new.kind.status(), to_json!("IN_PROGRESS")),
            ("StartTime", to_json!(crate::transfer::seconds(micros))),
            ("TableArn", to_json!(table.arn())),
            ("TableId", to_json!(table.table.id.to_string())),
        ];
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Has the exports and imports fail that an earlier process of this node has left behind. Before clients come.
    pub async fn fail_abandoned_transfers(&self) {
        if let Some(transfers) = &self.transfers {
            transfers.fail_abandoned().await;
        }
    }

    /// Ends the exports and imports of this shard, which fail; no more begin.
    pub async fn stop_transfers(&self) {
        if let Some(transfers) = &self.transfers {
            transfers.stop().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_names_a_transfer_of_its_kind() {
        let arn = "arn:aws:dynamodb:us-east-1:000000000000:table/t/export/01-ab";
        assert_eq!(id_of(Kind::Export, arn), "01-ab");
        assert_eq!(id_of(Kind::Import, arn), "");
        for arn in ["", "x", "/", "export/1", "a/export/"] {
            assert!(id_of(Kind::Export, arn).len() <= 1, "{arn}");
        }
    }
}
