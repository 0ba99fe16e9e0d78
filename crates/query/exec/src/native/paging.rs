//! The paging state: the position at which a result resumes. It travels through the client, so it carries a version, the table it
//! belongs to and a checksum, and every part of it is checked before use.
//!
//! Layout: version (1 byte), table id (16), rows left of the LIMIT (8), rows of the partition that were returned (8),
//! partition key (16-bit length and bytes), flags (1 bit: a clustering follows), number of clustering components (16),
//! each as 32-bit length (-1 for null) and bytes, CRC-32 of all before (4).

use bytes::{BufMut, Bytes, BytesMut};
use cql::ast::Statement;
use mutation::{Clustering, DecoratedKey};
use replica::Resume;
use schema::TableId;
use stdx::Reader;

use crate::error::{ExecError, Result};
use crate::keys::COMPONENT_LEN_MAX;
use crate::plan::Plan;
use crate::select::SelectPlan;
use crate::sink::{PagingState, RowsPosition};

const VERSION: u8 = 1;
/// The first byte of the state of a DESCRIBE, which continues with the schema's version (16) and an offset (4).
const DESCRIPTION_VERSION: u8 = 2;
const CHECKSUM_LEN: usize = 4;

fn refused<T>(why: &str) -> Result<T> {
    Err(ExecError::Protocol(format!("Invalid value for the paging state: {why}")))
}

/// The bytes for the client.
pub fn encode(state: &PagingState) -> Bytes {
    match state {
        PagingState::Rows(position) => encode_rows(position),
        PagingState::Description { schema, offset } => {
            let mut out = BytesMut::new();
            out.put_u8(DESCRIPTION_VERSION);
            out.put_slice(schema);
            out.put_u32(*offset);
            out.freeze()
        }
    }
}

/// Decodes the state that a client sent for a statement. Statements whose results are not paged ignore it.
///
/// # Errors
/// When the bytes are none that this server made for the statement.
pub fn decode(bytes: &Bytes, plan: &Plan) -> Result<Option<PagingState>> {
    match plan {
        Plan::Select(plan) => decode_rows(bytes, plan).map(PagingState::Rows).map(Some),
        Plan::Other(Statement::Describe(_)) => match decode_description(bytes) {
            Some(state) => Ok(Some(state)),
            None => Err(ExecError::Protocol("Invalid value for the paging state".to_owned())),
        },
        Plan::Modification(_)
        | Plan::Batch(_)
        | Plan::Truncate(_)
        | Plan::Prune(_)
        | Plan::Setting(_)
        | Plan::Other(_) => Ok(None),
    }
}

fn decode_description(bytes: &Bytes) -> Option<PagingState> {
    let mut reader = Reader::new(bytes);
    let version = reader.u8().ok()?;
    let schema = <[u8; 16]>::try_from(reader.bytes(16).ok()?).ok()?;
    let offset = reader.u32().ok()?;
    let whole = version == DESCRIPTION_VERSION && reader.is_empty();
    whole.then_some(PagingState::Description { schema, offset })
}

#[expect(clippy::expect_used, reason = "the length of keys is checked before")]
fn encode_rows(position: &RowsPosition) -> Bytes {
    let resume = &position.resume;
    let mut out = Vec::with_capacity(64 + resume.key.key.len());
    out.push(VERSION);
    out.extend_from_slice(&position.table.0);
    out.extend_from_slice(&position.left.to_be_bytes());
    out.extend_from_slice(&resume.rows_in_partition.to_be_bytes());
    let len = u16::try_from(resume.key.key.len()).expect("a key is shorter than 64 KiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&resume.key.key);
    match &resume.clustering {
        None => out.push(0),
        Some(clustering) => {
            out.push(1);
            let count = clustering.components().count() as u16;
            out.extend_from_slice(&count.to_be_bytes());
            for component in clustering.components() {
                let len = component.map_or(-1, |c| i32::try_from(c.len()).unwrap_or(-1));
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(component.unwrap_or_default());
            }
        }
    }
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out.into()
}

fn decode_rows(bytes: &Bytes, plan: &SelectPlan) -> Result<RowsPosition> {
    let Some(body_len) = bytes.len().checked_sub(CHECKSUM_LEN) else {
        return refused("it is too short");
    };
    let (body, checksum) = bytes.split_at(body_len);
    if crc32fast::hash(body).to_be_bytes() != checksum {
        return refused("its checksum is wrong; it is not one that this server made, or it was changed");
    }
    match decode_body(body, plan) {
        Some(Ok(state)) => Ok(state),
        Some(Err(why)) => refused(why),
        None => refused("it ends too soon"),
    }
}

fn decode_body(body: &[u8], plan: &SelectPlan) -> Option<Result<RowsPosition, &'static str>> {
    let table = &plan.table;
    let mut reader = Reader::new(body);
    if reader.u8().ok()? != VERSION {
        return Some(Err("it is of another version"));
    }
    let named = TableId(<[u8; 16]>::try_from(reader.bytes(16).ok()?).ok()?);
    // The state of a statement about fragments names the node, too: it is looked at where that is known.
    if named != table.id && plan.fragments_of.is_none() {
        return Some(Err("it belongs to another table"));
    }
    let left = u64::try_from(reader.i64().ok()?).ok()?;
    let rows_in_partition = u64::try_from(reader.i64().ok()?).ok()?;
    let key = reader.bytes_u16().ok()?;
    let components = DecoratedKey::components(key, table.partition_key().len());
    if key.is_empty() || components.is_none() {
        return Some(Err("its partition key is none of the table's"));
    }
    let clustering = match reader.u8().ok()? {
        0 => None,
        _ => {
            let count = usize::from(reader.u16().ok()?);
            if count != table.clustering().len() {
                return Some(Err("its clustering is none of the table's"));
            }
            let mut values = Vec::with_capacity(count);
            for (ty, _) in table.clustering_types() {
                let value = match usize::try_from(reader.i32().ok()?) {
                    Err(_) => None,
                    Ok(len) if len > COMPONENT_LEN_MAX => return Some(Err("a value is too long")),
                    Ok(len) => Some(reader.bytes(len).ok()?),
                };
                if value.is_some_and(|value| ty.validate(value).is_err()) {
                    return Some(Err("a clustering value is not of its type"));
                }
                values.push(value);
            }
            Some(Clustering::new(table, &values))
        }
    };
    if !reader.is_empty() {
        return Some(Err("there is more in it than there should be"));
    }
    let key = DecoratedKey::new(Bytes::copy_from_slice(key));
    let resume = Resume { key, clustering, rows_in_partition };
    Some(Ok(RowsPosition { table: named, resume, left }))
}
