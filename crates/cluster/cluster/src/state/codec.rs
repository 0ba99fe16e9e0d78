//! Bytes of commands, outcomes and states: a version, then JSON, which a person can read in an emergency and to which a later
//! version can add fields with defaults.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rt::preempt::yield_now;
use schema::{Keyspace, Replication, Schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use topology::HostId;

use super::command::{Command, CommandId, Outcome, Proposal};
use super::member::{Member, MemberInfo, MemberStatus};
use super::split::{Split, split};
use super::topology_change::{ChangeStep, TopologyChange};
use super::{ClusterState, Recovery, text};
use crate::cdc::StoredCdcGeneration;
use crate::codec::{self, StoredKeyspace, StoredSchema, StoredTable, StoredType};
use crate::edit::SchemaEdit;
use crate::error::SchemaCodecError;
use crate::objects::{
    self, StoredAggregate, StoredCidrGroup, StoredFunction, StoredRole, StoredServiceLevel, StoredSignature,
};
use crate::steps::{self, Steps};
use crate::written;

/// The version of the forms here.
const FORMAT: u8 = 1;

/// Numbers that rise by one with a command stay far below it.
const NUMBER_MAX: u64 = 1 << 62;

/// Bytes that are no command, outcome or state.
#[derive(Debug, thiserror::Error)]
pub enum StateCodecError {
    /// Another version wrote them.
    #[error(
        "format {found} of the cluster's state, this version reads up to {FORMAT}; upgrade this node's software"
    )]
    Newer {
        /// The format found.
        found: u8,
    },
    /// There is not even a version.
    #[error("no bytes")]
    Empty,
    /// Not the JSON that was expected.
    #[error("no entry of the cluster's log: {0}")]
    Json(#[from] serde_json::Error),
    /// A part of the schema.
    #[error("{0}")]
    Schema(#[from] SchemaCodecError),
    /// Numbers of a state that no sequence of commands results in.
    #[error("no state of a cluster: {what} is {found}")]
    Impossible {
        /// Which number.
        what: &'static str,
        /// Its value.
        found: u64,
    },
    /// The decoded command differs from the proposed one.
    #[error("other nodes would decode another command than the proposed one")]
    Differs,
}

#[derive(Serialize, Deserialize)]
struct StoredProposal {
    #[serde(with = "text::id")]
    id: [u8; 16],
    command: StoredCommand,
}

#[derive(Serialize, Deserialize)]
enum StoredCommand {
    SchemaChange {
        #[serde(with = "text::id")]
        base: [u8; 16],
        edits: Vec<StoredEdit>,
    },
    AddMember {
        #[serde(with = "text::host")]
        host: HostId,
        info: MemberInfo,
        #[serde(with = "text::maybe_host", default)]
        replaces: Option<HostId>,
    },
    UpdateMember {
        #[serde(with = "text::host")]
        host: HostId,
        info: MemberInfo,
    },
    SetStatus {
        #[serde(with = "text::host")]
        host: HostId,
        status: MemberStatus,
    },
    SetTokens {
        #[serde(with = "text::host")]
        host: HostId,
        tokens: Vec<i64>,
        base: u64,
    },
    RemoveMember {
        #[serde(with = "text::host")]
        host: HostId,
    },
    TakeStep {
        change: u64,
        step: ChangeStep,
    },
    Fetched {
        change: u64,
        #[serde(with = "text::host")]
        host: HostId,
    },
    EndAlteration {
        change: u64,
    },
}

#[derive(Serialize, Deserialize)]
enum StoredEdit {
    PutKeyspace(StoredKeyspace),
    DropKeyspace(String),
    PutTable { keyspace: String, table: StoredTable },
    DropTable { keyspace: String, name: String },
    PutType { keyspace: String, ty: StoredType },
    DropType { keyspace: String, name: String },
    PutFunction { keyspace: String, function: StoredFunction },
    DropFunction { keyspace: String, signature: StoredSignature },
    PutAggregate { keyspace: String, aggregate: StoredAggregate },
    DropAggregate { keyspace: String, signature: StoredSignature },
    PutRole(StoredRole),
    DropRole(String),
    PutServiceLevel(StoredServiceLevel),
    DropServiceLevel(String),
    PutCdcGeneration(StoredCdcGeneration),
    PutCidrGroup(StoredCidrGroup),
    DropCidrGroup(String),
}

#[derive(Serialize, Deserialize)]
struct StoredMember {
    #[serde(with = "text::host")]
    host: HostId,
    member: Member,
}

#[derive(Serialize, Deserialize)]
struct StoredHost(#[serde(with = "text::host")] HostId);

#[derive(Serialize, Deserialize)]
struct StoredOutcome {
    #[serde(with = "text::id")]
    id: [u8; 16],
    outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
struct StoredState<S = StoredSchema> {
    cluster_name: String,
    #[serde(with = "text::id", default)]
    cluster_id: [u8; 16],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery: Option<Recovery>,
    schema_number: u64,
    topology_version: u64,
    next_number: u64,
    #[serde(default)]
    change: Option<TopologyChange>,
    #[serde(default, with = "text::replications")]
    deferred: BTreeMap<String, Replication>,
    #[serde(default)]
    last_change: u64,
    #[serde(default)]
    fence: u64,
    members: Vec<StoredMember>,
    removed: Vec<StoredHost>,
    recent: Vec<StoredOutcome>,
    /// Comes last: it is written on its own ([`written`]).
    schema: S,
}

impl StoredState {
    /// Checks the numbers against the possible results of commands: they rise from small ones, and no member has another's.
    fn check_numbers(&self) -> Result<(), StateCodecError> {
        let rising = [
            ("schema_number", self.schema_number),
            ("topology_version", self.topology_version),
            ("next_number", self.next_number),
            ("last_change", self.last_change),
        ];
        for (what, found) in rising {
            if found >= NUMBER_MAX {
                return Err(StateCodecError::Impossible { what, found });
            }
        }
        let (since, change) = self.change.as_ref().map_or((0, 0), |change| (change.since, change.number));
        for (what, found, limit) in [
            ("fence", self.fence, self.topology_version),
            ("since", since, self.topology_version),
            ("number of the change", change, self.last_change),
        ] {
            if found > limit {
                return Err(StateCodecError::Impossible { what, found });
            }
        }
        if let Some(stored) = self.members.iter().find(|stored| stored.member.replaces == Some(stored.host)) {
            let found = stored.member.number;
            return Err(StateCodecError::Impossible {
                what: "a member that replaces itself, whose number",
                found,
            });
        }
        let mut numbers: Vec<u64> = self.members.iter().map(|stored| stored.member.number).collect();
        numbers.sort_unstable();
        let repeated = numbers.iter().zip(numbers.iter().skip(1)).find(|(one, next)| one == next);
        let repeated = repeated.map(|(one, _)| *one);
        let unknown = numbers.last().copied().filter(|number| *number >= self.next_number);
        match repeated.or(unknown) {
            Some(found) => Err(StateCodecError::Impossible { what: "number of a member", found }),
            None => Ok(()),
        }
    }
}

#[expect(clippy::expect_used, reason = "plain values have a JSON form")]
fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = vec![FORMAT];
    serde_json::to_writer(&mut out, value).expect("only string keys, and memory takes them");
    out
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StateCodecError> {
    match bytes.split_first() {
        None => Err(StateCodecError::Empty),
        Some((&FORMAT, json)) => Ok(serde_json::from_slice(json)?),
        Some((&found, _)) => Err(StateCodecError::Newer { found }),
    }
}

/// The bytes of an outcome.
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    encode(outcome)
}

/// Decodes the bytes of [`encode_outcome`].
///
/// # Errors
/// [`StateCodecError::Newer`] and [`StateCodecError::Empty`] by the version in front, [`StateCodecError::Json`] when
/// the rest is no outcome.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, StateCodecError> {
    decode(bytes)
}

impl Proposal {
    /// The bytes that stand in the log.
    pub fn encode(&self) -> Vec<u8> {
        let command = match &self.command {
            Command::SchemaChange { base, edits } => {
                StoredCommand::SchemaChange { base: *base, edits: edits.iter().map(store_edit).collect() }
            }
            Command::AddMember { host, info, replaces } => {
                StoredCommand::AddMember { host: *host, info: info.clone(), replaces: *replaces }
            }
            Command::UpdateMember { host, info } => {
                StoredCommand::UpdateMember { host: *host, info: info.clone() }
            }
            Command::SetStatus { host, status } => StoredCommand::SetStatus { host: *host, status: *status },
            Command::SetTokens { host, tokens, base } => {
                StoredCommand::SetTokens { host: *host, tokens: tokens.clone(), base: *base }
            }
            Command::RemoveMember { host } => StoredCommand::RemoveMember { host: *host },
            Command::TakeStep { change, step } => StoredCommand::TakeStep { change: *change, step: *step },
            Command::Fetched { change, host } => StoredCommand::Fetched { change: *change, host: *host },
            Command::EndAlteration { change } => StoredCommand::EndAlteration { change: *change },
        };
        encode(&StoredProposal { id: self.id.0, command })
    }

    /// The entry's bytes, if every node decodes the proposed command from them. Nothing else may be proposed: an entry that no
    /// node can read stops all of them. Gives way to other tasks between the steps where the command is large.
    ///
    /// # Errors
    /// Bytes that cannot be read, or from which another command is read.
    pub async fn encode_checked(&self) -> Result<Vec<u8>, StateCodecError> {
        let bytes = self.encode();
        check(&bytes).await?;
        Ok(bytes)
    }

    /// Decodes the bytes of [`Proposal::encode`].
    ///
    /// # Errors
    /// [`StateCodecError::Newer`] and [`StateCodecError::Empty`] by the version in front, [`StateCodecError::Json`]
    /// when the rest is no command, [`StateCodecError::Schema`] when an edit is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateCodecError> {
        let StoredProposal { id, command } = decode(bytes)?;
        let command = match command {
            StoredCommand::SchemaChange { base, edits } => {
                let edits = edits.into_iter().map(load_edit).collect::<Result<_, _>>()?;
                Command::SchemaChange { base, edits }
            }
            StoredCommand::AddMember { host, info, replaces } => Command::AddMember { host, info, replaces },
            StoredCommand::UpdateMember { host, info } => Command::UpdateMember { host, info },
            StoredCommand::SetStatus { host, status } => Command::SetStatus { host, status },
            StoredCommand::SetTokens { host, tokens, base } => Command::SetTokens { host, tokens, base },
            StoredCommand::RemoveMember { host } => Command::RemoveMember { host },
            StoredCommand::TakeStep { change, step } => Command::TakeStep { change, step },
            StoredCommand::Fetched { change, host } => Command::Fetched { change, host },
            StoredCommand::EndAlteration { change } => Command::EndAlteration { change },
        };
        Ok(Self { id: CommandId(id), command })
    }
}

/// Commands of so many bytes are encoded, decoded and applied with a yield between the steps.
pub(crate) const LARGE_COMMAND_BYTES: usize = 64 << 10;

/// Lets other tasks run where a command of so many bytes is large.
pub(crate) async fn yield_if_large(bytes: usize) {
    if bytes >= LARGE_COMMAND_BYTES {
        yield_now().await;
    }
}

/// Reads a proposal, if it is in the one form that [`Proposal::encode`] gives it. Gives way to other tasks between the steps where
/// the command is large.
pub(crate) async fn check(bytes: &[u8]) -> Result<Proposal, StateCodecError> {
    yield_if_large(bytes.len()).await;
    let proposal = Proposal::decode(bytes)?;
    yield_if_large(bytes.len()).await;
    if proposal.encode() != bytes {
        return Err(StateCodecError::Differs);
    }
    yield_if_large(bytes.len()).await;
    Ok(proposal)
}

/// The kind of an entry's command, as far as its bytes show, also when they cannot be decoded; for operators.
pub(crate) fn command_kind(bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Head {
        command: serde_json::Map<String, serde_json::Value>,
    }
    let head = bytes.split_first().and_then(|(_, json)| serde_json::from_slice::<Head>(json).ok());
    let kind = head.and_then(|head| head.command.into_iter().next());
    kind.map_or_else(|| "of no known kind".to_owned(), |(kind, _)| kind)
}

fn store_edit(edit: &SchemaEdit) -> StoredEdit {
    match edit {
        SchemaEdit::PutKeyspace(keyspace) => StoredEdit::PutKeyspace(codec::store_keyspace(keyspace)),
        SchemaEdit::DropKeyspace(name) => StoredEdit::DropKeyspace(name.clone()),
        SchemaEdit::PutTable(table) => {
            StoredEdit::PutTable { keyspace: table.keyspace.clone(), table: codec::store_table(table) }
        }
        SchemaEdit::DropTable { keyspace, name } => {
            StoredEdit::DropTable { keyspace: keyspace.clone(), name: name.clone() }
        }
        SchemaEdit::PutType(ty) => {
            StoredEdit::PutType { keyspace: ty.keyspace.clone(), ty: codec::store_type(ty) }
        }
        SchemaEdit::DropType { keyspace, name } => {
            StoredEdit::DropType { keyspace: keyspace.clone(), name: name.clone() }
        }
        SchemaEdit::PutFunction(function) => StoredEdit::PutFunction {
            keyspace: function.keyspace.clone(),
            function: objects::store_function(function),
        },
        SchemaEdit::DropFunction { keyspace, signature } => StoredEdit::DropFunction {
            keyspace: keyspace.clone(),
            signature: objects::store_signature(signature),
        },
        SchemaEdit::PutAggregate(aggregate) => StoredEdit::PutAggregate {
            keyspace: aggregate.keyspace.clone(),
            aggregate: objects::store_aggregate(aggregate),
        },
        SchemaEdit::DropAggregate { keyspace, signature } => StoredEdit::DropAggregate {
            keyspace: keyspace.clone(),
            signature: objects::store_signature(signature),
        },
        SchemaEdit::PutRole(role) => StoredEdit::PutRole(objects::store_role(role)),
        SchemaEdit::DropRole(name) => StoredEdit::DropRole(name.clone()),
        SchemaEdit::PutServiceLevel(level) => {
            StoredEdit::PutServiceLevel(objects::store_service_level(level))
        }
        SchemaEdit::DropServiceLevel(name) => StoredEdit::DropServiceLevel(name.clone()),
        SchemaEdit::PutCdcGeneration(generation) => {
            StoredEdit::PutCdcGeneration(StoredCdcGeneration::from(generation))
        }
        SchemaEdit::PutCidrGroup(group) => StoredEdit::PutCidrGroup(objects::store_cidr_group(group)),
        SchemaEdit::DropCidrGroup(name) => StoredEdit::DropCidrGroup(name.clone()),
    }
}

fn load_edit(stored: StoredEdit) -> Result<SchemaEdit, SchemaCodecError> {
    Ok(match stored {
        StoredEdit::PutKeyspace(keyspace) => SchemaEdit::PutKeyspace(codec::load_keyspace(keyspace)?),
        StoredEdit::DropKeyspace(name) => SchemaEdit::DropKeyspace(name),
        StoredEdit::PutTable { keyspace, table } => {
            SchemaEdit::PutTable(codec::load_table(&keyspace, table)?)
        }
        StoredEdit::DropTable { keyspace, name } => SchemaEdit::DropTable { keyspace, name },
        StoredEdit::PutType { keyspace, ty } => SchemaEdit::PutType(codec::load_user_type(&keyspace, ty)?),
        StoredEdit::DropType { keyspace, name } => SchemaEdit::DropType { keyspace, name },
        StoredEdit::PutFunction { keyspace, function } => {
            SchemaEdit::PutFunction(objects::load_function(&keyspace, function)?)
        }
        StoredEdit::DropFunction { keyspace, signature } => {
            SchemaEdit::DropFunction { keyspace, signature: objects::load_signature(signature) }
        }
        StoredEdit::PutAggregate { keyspace, aggregate } => {
            SchemaEdit::PutAggregate(objects::load_aggregate(&keyspace, aggregate)?)
        }
        StoredEdit::DropAggregate { keyspace, signature } => {
            SchemaEdit::DropAggregate { keyspace, signature: objects::load_signature(signature) }
        }
        StoredEdit::PutRole(role) => SchemaEdit::PutRole(objects::load_role(role)),
        StoredEdit::DropRole(name) => SchemaEdit::DropRole(name),
        StoredEdit::PutServiceLevel(level) => {
            SchemaEdit::PutServiceLevel(objects::load_service_level(level)?)
        }
        StoredEdit::DropServiceLevel(name) => SchemaEdit::DropServiceLevel(name),
        StoredEdit::PutCdcGeneration(generation) => SchemaEdit::PutCdcGeneration(generation.load()?),
        StoredEdit::PutCidrGroup(group) => SchemaEdit::PutCidrGroup(objects::load_cidr_group(group)?),
        StoredEdit::DropCidrGroup(name) => SchemaEdit::DropCidrGroup(name),
    })
}

impl ClusterState {
    /// The bytes of a snapshot.
    pub fn encode(&self) -> Vec<u8> {
        steps::at_once(self.encode_with(&mut Steps::none()))
    }

    /// [`ClusterState::encode`] for asynchronous callers: yields to other tasks between the tables.
    pub async fn encode_in_steps(&self) -> Vec<u8> {
        self.encode_with(&mut Steps::new()).await
    }

    #[expect(clippy::expect_used, reason = "the last field is an empty schema")]
    async fn encode_with(&self, steps: &mut Steps) -> Vec<u8> {
        let member =
            |(host, member): (&HostId, &Member)| StoredMember { host: *host, member: member.clone() };
        let outcome =
            |(id, outcome): &(CommandId, Outcome)| StoredOutcome { id: id.0, outcome: outcome.clone() };
        let mut bytes = encode(&StoredState {
            cluster_name: self.cluster_name.clone(),
            cluster_id: self.cluster_id,
            recovery: self.recovery,
            schema_number: self.schema_number,
            topology_version: self.topology_version,
            next_number: self.next_number,
            change: self.change.clone(),
            deferred: self.deferred.clone(),
            last_change: self.last_change,
            fence: self.fence,
            members: self.members.iter().map(member).collect(),
            removed: self.removed.iter().map(|host| StoredHost(*host)).collect(),
            recent: self.recent.iter().map(outcome).collect(),
            schema: (),
        });
        let head = bytes.strip_suffix(b"null}").map(<[u8]>::len).expect("the schema comes last");
        bytes.truncate(head);
        let mut bytes = written::append(&self.schema, bytes, steps).await;
        bytes.push(b'}');
        bytes
    }

    /// The last recovery of a state that [`ClusterState::encode`] wrote, without reading the rest; none also of other bytes, which
    /// is found when it is read.
    pub(crate) fn recovery_of(bytes: &[u8]) -> Option<Recovery> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            recovery: Option<Recovery>,
        }
        decode::<Head>(bytes).ok()?.recovery
    }

    /// Decodes the bytes of [`ClusterState::encode`] for a process that has used `self` until now: tables that both have keep the ids of
    /// their columns.
    ///
    /// # Errors
    /// Bytes that are no state, or one to which no commands lead, from nothing or from `self`: the next command could not be applied
    /// to it.
    pub fn decode_after(&self, bytes: &[u8]) -> Result<Self, StateCodecError> {
        steps::at_once(self.decode_with(bytes, &mut Steps::none()))
    }

    /// [`ClusterState::decode_after`] for asynchronous callers: yields to other tasks between the tables.
    ///
    /// # Errors
    /// As [`ClusterState::decode_after`].
    pub async fn decode_after_in_steps(&self, bytes: &[u8]) -> Result<Self, StateCodecError> {
        self.decode_with(bytes, &mut Steps::new()).await
    }

    async fn decode_with(&self, bytes: &[u8], steps: &mut Steps) -> Result<Self, StateCodecError> {
        let Split { rest, tables: texts } = split(bytes, steps).await;
        let mut stored: StoredState = decode(&rest)?;
        let mut tables: Vec<Vec<StoredTable>> = Vec::with_capacity(texts.len());
        for texts in texts {
            let mut of_keyspace = Vec::with_capacity(texts.len());
            for text in texts {
                of_keyspace.push(serde_json::from_slice(text)?);
                steps.made(text.len()).await;
            }
            tables.push(of_keyspace);
        }
        if !stored.schema.add_tables(tables) {
            // Written in another way than [`ClusterState::encode`] does.
            stored = decode(bytes)?;
        }
        stored.check_numbers()?;
        for (what, known, found) in [
            ("schema_number", self.schema_number, stored.schema_number),
            ("topology_version", self.topology_version, stored.topology_version),
        ] {
            if found < known {
                return Err(StateCodecError::Impossible { what, found });
            }
        }
        let schema = codec::load_with(stored.schema, self.own.clone(), steps).await?;
        let schema = keep_ids(schema, &self.schema, steps).await;
        Ok(Self {
            cluster_name: stored.cluster_name,
            cluster_id: stored.cluster_id,
            recovery: stored.recovery,
            schema: Arc::new(crate::store::stamp(schema, steps).await),
            schema_number: stored.schema_number,
            members: stored.members.into_iter().map(|stored| (stored.host, stored.member)).collect(),
            topology_version: stored.topology_version,
            change: stored.change,
            deferred: stored.deferred,
            last_change: stored.last_change,
            fence: stored.fence,
            own: self.own.clone(),
            next_number: stored.next_number,
            removed: stored.removed.into_iter().map(|StoredHost(host)| host).collect(),
            recent: stored
                .recent
                .into_iter()
                .map(|stored| (CommandId(stored.id), stored.outcome))
                .collect::<VecDeque<_>>(),
        })
    }
}

/// `schema` with the column ids of `old`, and its values where nothing differs.
async fn keep_ids(mut schema: Schema, old: &Schema, steps: &mut Steps) -> Schema {
    let keyspaces: Vec<Arc<Keyspace>> = schema.keyspaces().cloned().collect();
    for keyspace in keyspaces {
        let mut keyspace = Keyspace::clone(&keyspace);
        for table in keyspace.tables.values_mut() {
            if let Some(known) = old.table_by_id(table.id) {
                let kept = table.with_ids_of(known);
                assert_eq!(kept.columns().len(), table.columns().len(), "ids of columns change no column");
                *table = if kept == **known { known.clone() } else { Arc::new(kept) };
            }
            steps.made(0).await;
        }
        schema = schema.with_keyspace(keyspace);
    }
    schema
}
