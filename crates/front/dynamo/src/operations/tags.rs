//! TagResource, UntagResource and ListTagsOfResource.

use exec::backend::Coordinator;
use items::json;
use schema::Schema;
use serde_json::{Value as Json, json as to_json};

use super::Dynamo;
use crate::Isolation;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::request::{Request, constraint};
use crate::table::{self, ApiTable, Details, ISOLATION_TAG};

const TAGS_MAX: usize = 50;
const KEY_MAX: usize = 128;
const VALUE_MAX: usize = 256;
/// The tags that mean something to a node, beside which all of this namespace are refused.
const SYSTEM_TAGS: [&str; 2] = [ISOLATION_TAG, "system:initial_tablets"];

/// Refuses a key of the namespaces that are not the user's.
fn check_owned(key: &str) -> Result<()> {
    if key.starts_with("aws:") || (key.starts_with("system:") && !SYSTEM_TAGS.contains(&key)) {
        return invalid!("Tag key '{key}' is reserved for internal use");
    }
    Ok(())
}

fn check_length(key: &str) -> Result<()> {
    if key.is_empty() || key.chars().count() > KEY_MAX {
        return invalid!(
            "One or more parameter values were invalid: A tag key has 1 to {KEY_MAX} characters"
        );
    }
    Ok(())
}

fn is_allowed(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "+-=._:/".contains(c))
}

/// `Tags`.
pub(super) fn read(tags: &Json) -> Result<Vec<(String, String)>> {
    let mut out: Vec<(String, String)> = Vec::new();
    for tag in json::read_list(tags)? {
        let fields = json::read_map(tag)?;
        let field = |name: &str| match fields.get(name).filter(|value| !value.is_null()) {
            Some(value) => Ok(json::read_string(value)?.to_owned()),
            None => {
                constraint("null", &format!("tags.member.{}", name.to_lowercase()), "Member must not be null")
            }
        };
        let (key, value) = (field("Key")?, field("Value")?);
        check_length(&key)?;
        if value.chars().count() > VALUE_MAX {
            return invalid!(
                "One or more parameter values were invalid: A tag value has at most {VALUE_MAX} characters"
            );
        }
        for (what, text) in [("Key", &key), ("Value", &value)] {
            if !is_allowed(text) {
                return invalid!("A tag {what} can only contain letters, spaces, and [+-=._:/]");
            }
        }
        check_owned(&key)?;
        if out.iter().any(|(known, _)| *known == key) {
            return invalid!("One or more parameter values were invalid: The tag key {key} is given twice");
        }
        out.push((key, value));
    }
    Ok(out)
}

/// Refuses tags that a table cannot have.
pub(super) fn check(details: &Details) -> Result<()> {
    if details.tags.len() > TAGS_MAX {
        return invalid!(
            "One or more parameter values were invalid: Number of tags exceeds the limit of {TAGS_MAX}"
        );
    }
    match details.tags.get(ISOLATION_TAG) {
        Some(mode) if Isolation::from_name(mode).is_none() => invalid!(
            "Incorrect write isolation tag {mode}. Allowed values: f, forbid, forbid_rmw, a, always, always_use_lwt, o, \
             only_rmw_uses_lwt, u, unsafe, unsafe_rmw"
        ),
        _ => Ok(()),
    }
}

/// The table that `ResourceArn` names.
fn resource(schema: &Schema, request: &Request) -> Result<ApiTable> {
    let arn = json::read_string(request.required("ResourceArn")?)?;
    if !arn.starts_with("arn:") || arn.split(':').count() < 6 {
        // As in ScyllaDB and DynamoDB: nobody has permissions on a text that names no resource.
        let text = format!("Incorrect resource identifier: {arn}");
        return Err(ApiError::new(ErrorKind::AccessDenied, text));
    }
    let Some((_, name)) = arn.strip_prefix("arn:").and_then(|rest| rest.rsplit_once(":table/")) else {
        return invalid!("Invalid TableArn: Invalid ResourceArn provided as input {arn}");
    };
    table::find(schema, name).map_err(|_| {
        let text = format!("Requested resource not found: ResourcArn: {arn} not found");
        ApiError::new(ErrorKind::ResourceNotFound, text)
    })
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn tag_resource(&self, request: &Request) -> Result<Json> {
        let tags = read(request.required("Tags")?)?;
        if tags.is_empty() {
            return invalid!("The number of tags must be at least 1");
        }
        let find = |schema: &Schema| resource(schema, request);
        self.change_table(find, |_, details| {
            details.tags.extend(tags.iter().cloned());
            check(details)
        })
        .await?;
        Ok(to_json!({}))
    }

    pub(super) async fn untag_resource(&self, request: &Request) -> Result<Json> {
        let mut keys = Vec::new();
        for key in json::read_list(request.required("TagKeys")?)? {
            let key = json::read_string(key)?;
            check_length(key)?;
            check_owned(key)?;
            keys.push(key);
        }
        if keys.is_empty() {
            return invalid!("The number of tag keys must be at least 1");
        }
        let find = |schema: &Schema| resource(schema, request);
        self.change_table(find, |_, details| {
            details.tags.retain(|key, _| !keys.contains(&key.as_str()));
            Ok(())
        })
        .await?;
        Ok(to_json!({}))
    }

    pub(super) fn list_tags_of_resource(&self, request: &Request) -> Result<Json> {
        let details = resource(&self.schema(), request)?.details();
        // All tags are in one answer: no token was given to anybody.
        if request.has("NextToken") {
            return invalid!("Invalid NextToken");
        }
        let tags: Vec<Json> =
            details.tags.iter().map(|(key, value)| to_json!({ "Key": key, "Value": value })).collect();
        Ok(to_json!({ "Tags": tags }))
    }
}
