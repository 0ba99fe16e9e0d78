//! `apply`: the state after a command. Pure, and the same on every node: no clock, no randomness, no setting is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schema::Schema;
use topology::HostId;

use super::change::replicas_move;
use super::command::{Command, Outcome, Proposal, Refused};
use super::member::{Member, MemberInfo, MemberStatus};
use super::topology_change::ChangeStep;
use super::{ClusterState, OUTCOMES_MAX, REMOVED_MAX, transition};
use crate::edit::{self, EditError, SchemaEdit};
use crate::steps::{self, Steps};
use crate::store;

impl ClusterState {
    /// The state after a command, and the outcome. A command that was applied already changes nothing and has the outcome
    /// of then.
    pub fn apply(&self, proposal: Proposal) -> (Self, Outcome) {
        steps::at_once(self.apply_with(proposal, &mut Steps::none()))
    }

    /// [`ClusterState::apply`] for asynchronous callers: yields to other tasks while the version of a large schema is computed.
    pub async fn apply_in_steps(&self, proposal: Proposal) -> (Self, Outcome) {
        self.apply_with(proposal, &mut Steps::new()).await
    }

    async fn apply_with(&self, proposal: Proposal, steps: &mut Steps) -> (Self, Outcome) {
        let Proposal { id, command } = proposal;
        if let Some(outcome) = self.outcome(id) {
            return (self.clone(), outcome.clone());
        }
        let mut next = self.clone();
        let outcome = next.change(command, steps).await.unwrap_or_else(Outcome::Refused);
        next.resume_alteration();
        if matches!(outcome, Outcome::Refused(_)) {
            next = self.clone();
        }
        next.recent.push_back((id, outcome.clone()));
        if next.recent.len() > OUTCOMES_MAX {
            next.recent.pop_front();
        }
        transition::assert_follows(self, &next, &outcome);
        (next, outcome)
    }

    /// Applies a command, perhaps in part when it is refused.
    async fn change(&mut self, command: Command, steps: &mut Steps) -> Result<Outcome, Refused> {
        match command {
            Command::SchemaChange { base, edits } => self.change_schema(base, edits, steps).await,
            Command::AddMember { host, info, replaces } => self.add_member(host, info, replaces),
            Command::UpdateMember { host, info } => self.update_member(host, info),
            Command::SetStatus { host, status } => self.set_status(host, status),
            Command::SetTokens { host, tokens, base } => self.set_tokens(host, tokens, base),
            Command::RemoveMember { host } => self.remove_member(host),
            Command::TakeStep { change, step } => self.take_step(change, step),
            Command::Fetched { change, host } => self.note_fetched(change, host),
            Command::EndAlteration { change } => self.end_alteration(change),
        }
    }

    async fn change_schema(
        &mut self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
        steps: &mut Steps,
    ) -> Result<Outcome, Refused> {
        if base != self.schema.version() {
            return Err(Refused::SchemaMoved);
        }
        self.check_replication_stays(&edits)?;
        let changed = edit::apply(Schema::clone(&self.schema), edits).map_err(|error| match error {
            EditError::Moved => Refused::SchemaMoved,
            EditError::NoKeyspace(_) => Refused::InvalidEdit(error.to_string()),
        })?;
        let alters = if self.change.is_none() { self.moved_by(&changed) } else { BTreeMap::new() };
        self.schema = Arc::new(store::stamp(changed, steps).await);
        self.schema_number += 1;
        self.end_void_alteration();
        if !alters.is_empty() {
            self.begin_alteration(alters);
        }
        Ok(Outcome::SchemaChanged { number: self.schema_number, version: self.schema.version() })
    }

    /// The streams of a topology change follow from the replication at its begin.
    fn check_replication_stays(&self, edits: &[SchemaEdit]) -> Result<(), Refused> {
        let Some(change) = &self.change else { return Ok(()) };
        for edit in edits {
            if let SchemaEdit::PutKeyspace(keyspace) = edit
                && let Some(known) = self.schema.keyspace(&keyspace.name)
                && known.replication != keyspace.replication
            {
                if let Some(host) = change.joins.or(change.leaves) {
                    return Err(Refused::ReplicationFixed { keyspace: keyspace.name.clone(), host });
                }
                // Back to the earlier replication, which reads still use.
                let before = change.alters.get(&keyspace.name);
                let is_back = before == Some(&keyspace.replication) && change.step != ChangeStep::Switched;
                if !is_back {
                    return Err(replicas_move(change));
                }
            }
        }
        Ok(())
    }

    fn add_member(
        &mut self,
        host: HostId,
        info: MemberInfo,
        replaces: Option<HostId>,
    ) -> Result<Outcome, Refused> {
        if self.was_removed(host) {
            return Err(Refused::WasRemoved { host });
        }
        self.check_info(host, &info, replaces)?;
        if let Some(known) = self.members.get_mut(&host) {
            // A node that asked, and crashed before the answer, asks again.
            let again = known.status == MemberStatus::Joining && known.info.internode == info.internode;
            if !again || known.replaces != replaces {
                let (address, status) = (known.info.internode, known.status);
                return Err(Refused::HostExists { host, address, status });
            }
            known.info = info;
            return Ok(Outcome::Added { number: known.number });
        }
        if let Some(old) = replaces {
            let member = self.members.get(&old).ok_or(Refused::UnknownHost { host: old })?;
            let taken = self.members.values().any(|other| other.replaces == Some(old));
            if taken || member.status != MemberStatus::Normal {
                return Err(Refused::NotReplaceable { host: old, status: member.status });
            }
        }
        let number = self.next_number;
        self.next_number += 1;
        let member = Member { number, info, status: MemberStatus::Joining, tokens: Vec::new(), replaces };
        self.members.insert(host, member);
        self.topology_version += 1;
        Ok(Outcome::Added { number })
    }

    fn update_member(&mut self, host: HostId, info: MemberInfo) -> Result<Outcome, Refused> {
        let replaces = self.members.get(&host).and_then(|member| member.replaces);
        self.check_info(host, &info, replaces)?;
        let member = self.members.get_mut(&host).ok_or(Refused::UnknownHost { host })?;
        if member.info != info {
            member.info = info;
            self.topology_version += 1;
        }
        Ok(self.done())
    }

    fn set_status(&mut self, host: HostId, status: MemberStatus) -> Result<Outcome, Refused> {
        let last = self.owners().all(|owner| owner == host);
        let member = self.members.get(&host).ok_or(Refused::UnknownHost { host })?;
        let (from, empty) = (member.status, member.tokens.is_empty());
        if !from.may_become(status) {
            return Err(Refused::NoSuchStep { from, to: status });
        }
        if from == status {
            return Ok(self.done());
        }
        match status {
            MemberStatus::Normal if empty => return Err(Refused::BadTokens),
            MemberStatus::Normal if from == MemberStatus::Joining => self.end_join(host),
            MemberStatus::Normal => {
                if let Some(replacing) = self.replacing(host) {
                    return Err(Refused::ChangeUnderWay { host: replacing });
                }
                self.end_change_of(host);
            }
            MemberStatus::Leaving | MemberStatus::Left | MemberStatus::Removing if last => {
                return Err(Refused::LastMember);
            }
            MemberStatus::Leaving | MemberStatus::Removing => {
                if status == MemberStatus::Removing {
                    self.defer_alteration();
                }
                self.check_no_other_change(host)?;
                self.begin_change(None, Some(host));
            }
            MemberStatus::Left => self.end_change_of(host),
            MemberStatus::Joining => {}
        }
        let member = self.members.get_mut(&host).expect("it was found above");
        member.status = status;
        if status == MemberStatus::Left {
            member.tokens.clear();
        }
        self.topology_version += 1;
        Ok(self.done())
    }

    /// A host owns its tokens from now on; the one that it replaces is gone.
    fn end_join(&mut self, host: HostId) {
        let replaced = self.members.get_mut(&host).and_then(|member| member.replaces.take());
        if let Some(replaced) = replaced {
            self.forget(replaced);
        }
        self.end_change_of(host);
    }

    /// The node that is to replace a host.
    fn replacing(&self, host: HostId) -> Option<HostId> {
        let replaces = |member: &Member| member.replaces == Some(host) && !member.tokens.is_empty();
        self.members.iter().find(|(_, member)| replaces(member)).map(|(other, _)| *other)
    }

    fn set_tokens(&mut self, host: HostId, mut tokens: Vec<i64>, base: u64) -> Result<Outcome, Refused> {
        let member = self.members.get(&host).ok_or(Refused::UnknownHost { host })?;
        if base != self.topology_version {
            return Err(Refused::MembersMoved);
        }
        if member.status != MemberStatus::Joining {
            return Err(Refused::TokensFixed { status: member.status });
        }
        let replaces = member.replaces;
        if replaces.is_some() {
            self.defer_alteration();
        }
        self.check_no_other_change(host)?;
        tokens.sort_unstable();
        if tokens.is_empty() || tokens.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Refused::BadTokens);
        }
        let others = self.members.iter().filter(|(other, _)| **other != host && Some(**other) != replaces);
        let taken: BTreeSet<i64> = others.flat_map(|(_, member)| &member.tokens).copied().collect();
        if let Some(token) = tokens.iter().find(|token| taken.contains(token)) {
            return Err(Refused::TokenTaken { token: *token });
        }
        if let Some(old) = replaces {
            let replaced = self.members.get_mut(&old).ok_or(Refused::UnknownHost { host: old })?;
            if replaced.tokens != tokens {
                return Err(Refused::MembersMoved);
            }
            if !replaced.status.may_become(MemberStatus::Removing) {
                return Err(Refused::NotReplaceable { host: old, status: replaced.status });
            }
            replaced.status = MemberStatus::Removing;
        }
        self.members.get_mut(&host).expect("it was found above").tokens = tokens;
        self.begin_change(Some(host), replaces);
        self.topology_version += 1;
        Ok(self.done())
    }

    fn remove_member(&mut self, host: HostId) -> Result<Outcome, Refused> {
        if self.was_removed(host) {
            return Ok(self.done());
        }
        if !self.members.contains_key(&host) {
            return Err(Refused::UnknownHost { host });
        }
        if self.owners().all(|owner| owner == host) {
            return Err(Refused::LastMember);
        }
        if let Some(replacing) = self.replacing(host) {
            return Err(Refused::ChangeUnderWay { host: replacing });
        }
        let owns = self.owners().any(|owner| owner == host);
        if let Some(change) = self.change.as_ref().filter(|change| owns && !change.alters.is_empty()) {
            return Err(replicas_move(change));
        }
        self.end_change_of(host);
        self.forget(host);
        self.topology_version += 1;
        Ok(self.done())
    }

    /// Takes a host out for good.
    fn forget(&mut self, host: HostId) {
        self.members.remove(&host);
        self.removed.push_back(host);
        if self.removed.len() > REMOVED_MAX {
            self.removed.pop_front();
        }
    }

    /// The owners whose tokens are in force.
    pub(super) fn owners(&self) -> impl Iterator<Item = HostId> + '_ {
        let owns = |member: &Member| {
            matches!(member.status, MemberStatus::Normal | MemberStatus::Leaving | MemberStatus::Removing)
        };
        self.members.iter().filter(move |(_, member)| owns(member)).map(|(host, _)| *host)
    }

    /// Every node must find the same in each version: a node that applies an entry again after an upgrade, too. So the
    /// required version follows from the members, and not from the code.
    fn check_info(&self, host: HostId, info: &MemberInfo, replaces: Option<HostId>) -> Result<(), Refused> {
        let needed = self.members.values().map(|member| member.info.state_version).min().unwrap_or(0);
        if info.state_version < needed {
            return Err(Refused::TooOld { found: info.state_version, needed });
        }
        let address = info.internode;
        let mut others =
            self.members.iter().filter(|(other, _)| **other != host && Some(**other) != replaces);
        match others.find(|(_, member)| member.info.internode == address) {
            Some((other, _)) => Err(Refused::AddressTaken { address, host: *other }),
            None => Ok(()),
        }
    }

    pub(super) fn done(&self) -> Outcome {
        Outcome::Done { topology_version: self.topology_version }
    }
}
