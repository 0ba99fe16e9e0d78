//! Conditional writes and serial reads of one shard.

use mutation::{PartitionUpdate, Timestamp};
use replica::{Partitions, ReadCommand, ReadPage};
use rt::Instant;

use super::driver::{self, Decided, Driver};
use super::lwt::Lwt;
use super::options::{CasOptions, CasOutcome, serial_quorum};
use super::stats::PaxosStats;
use crate::latency::RequestFigures;
use crate::table_figures::Kind;
use crate::{Consistency, Coordinator, RequestError};

impl Lwt {
    /// Reads a partition with `command`, and writes the result of `decide`; nothing when that is `None`. `decide` gives the
    /// write the timestamp that it receives, and deletions one before it. It is called again after
    /// contention.
    pub(crate) async fn cas<E: From<RequestError>>(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
    ) -> Result<CasOutcome, E> {
        let began = self.context.rt().now();
        let mut counted = Ok(());
        let result = self.cas_uncounted(command, options, decide, &mut counted).await;
        let now = self.context.rt().now();
        self.state.writes.ended(now - began, &counted);
        self.context.count_request(command.table.id, Kind::Write, began, now);
        result
    }

    async fn cas_uncounted<E: From<RequestError>>(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
        counted: &mut Result<(), RequestError>,
    ) -> Result<CasOutcome, E> {
        let mut fail = |error: RequestError| {
            *counted = Err(error.clone());
            E::from(error)
        };
        let mut driver = Driver::new(self, command, options, false).map_err(&mut fail)?;
        driver.check_commit(options.commit).map_err(&mut fail)?;
        let _lock = driver.lock().await.map_err(&mut fail)?;
        let mut proposer = driver.proposer();
        let decided = loop {
            match driver.run(&mut proposer, decide).await {
                Ok(decided) => break decided,
                Err(driver::Failure::Decide(error)) => return Err(error),
                Err(driver::Failure::Request(error)) => {
                    match driver.anew(&error, &mut proposer).await.map_err(&mut fail)? {
                        Some(later) => driver = later,
                        None => {
                            let uncertain = matches!(error, RequestError::CasUncertain { .. });
                            self.state.count(|stats| stats.uncertain += u64::from(uncertain));
                            return Err(fail(error));
                        }
                    }
                }
            }
        };
        match decided {
            Decided::Nothing(page) => {
                self.state.count(|stats| stats.refused += 1);
                Ok(CasOutcome::Refused(page))
            }
            Decided::Chosen(proposal) => {
                self.state.count(|stats| stats.applied += 1);
                driver.commit(proposal, options.commit).await.map_err(fail)?;
                Ok(CasOutcome::Applied)
            }
            Decided::Committed => {
                self.state.count(|stats| stats.applied += 1);
                Ok(CasOutcome::Applied)
            }
        }
    }

    /// Reads a partition so that everything agreed on before is seen.
    pub(crate) async fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        let began = self.context.rt().now();
        let result = self.read_serial_uncounted(command, consistency, deadline).await;
        let now = self.context.rt().now();
        self.state.reads.ended(now - began, &result);
        self.context.count_request(command.table.id, Kind::of(command), began, now);
        result
    }

    async fn read_serial_uncounted(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        let is_one = matches!(&command.partitions, Partitions::Keys(keys) if keys.len() == 1);
        if !is_one || self.context.maps().is_computed(&command.table) {
            // There is nothing to agree on.
            return self.reads.read(&self.context, command, serial_quorum(consistency), deadline).await;
        }
        let options = CasOptions {
            serial: consistency,
            commit: Consistency::Any,
            deadline,
            contention_deadline: deadline,
        };
        let mut driver = Driver::new(self, command, options, true)?;
        let _lock = driver.lock().await?;
        let mut proposer = driver.proposer();
        let mut nothing = |_: &ReadPage, _: Timestamp| Ok::<_, RequestError>(None);
        loop {
            match driver.run(&mut proposer, &mut nothing).await {
                Ok(Decided::Nothing(page)) => return Ok(page),
                Ok(Decided::Chosen(_) | Decided::Committed) => panic!("a read proposes nothing"),
                Err(driver::Failure::Request(error) | driver::Failure::Decide(error)) => {
                    driver = driver.anew(&error, &mut proposer).await?.ok_or(error)?;
                }
            }
        }
    }
}

impl Coordinator {
    pub(crate) fn lwt(&self) -> Lwt {
        let (state, reads) = (self.operations().paxos.clone(), self.operations().reads.clone());
        Lwt { context: self.context().clone(), state, reads }
    }

    /// Reads a partition with `command`, and writes the result of `decide`; nothing when that is `None`. `decide` gives the
    /// write the timestamp that it receives, and deletions one before it. It is called again after
    /// contention.
    ///
    /// # Errors
    /// When too few replicas answer, others contend for too long, or `decide` fails.
    pub async fn cas<E: From<RequestError>>(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
    ) -> Result<CasOutcome, E> {
        self.lwt().cas(command, options, decide).await
    }

    /// Reads a partition so that everything agreed on before is seen.
    ///
    /// # Errors
    /// When too few replicas answer.
    pub async fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        self.lwt().read_serial(command, consistency, deadline).await
    }

    /// Conditional requests and serial reads of this shard: how long they took and how they failed.
    pub fn cas_figures(&self) -> (RequestFigures, RequestFigures) {
        (self.operations().paxos.reads.figures(), self.operations().paxos.writes.figures())
    }

    /// The counters of this shard of lightweight transactions.
    pub fn paxos_stats(&self) -> PaxosStats {
        self.operations().paxos.stats.get()
    }
}
