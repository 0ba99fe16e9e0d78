//! Lightweight transactions: a partition is read, and written if what was read is as it should be.

mod turns;

use mutation::{PartitionUpdate, Timestamp};
use replica::{Partitions, ReadCommand, ReadPage};
use rt::Instant;

use crate::{Consistency, Coordinator, RequestError, WriteKind, WriteOptions};
pub(crate) use turns::Turns;

/// How a conditional request is to be done.
#[derive(Clone, Copy, Debug)]
pub struct CasOptions {
    /// Where there must be agreement: SERIAL or LOCAL_SERIAL.
    pub serial: Consistency,
    /// How many replicas must have the write before the client is told.
    pub commit: Consistency,
    /// When to give up waiting.
    pub deadline: Instant,
    /// When to give up trying to get one's turn.
    pub contention_deadline: Instant,
}

/// What became of a conditional request.
#[derive(Debug)]
pub enum CasOutcome {
    /// The conditions held, and the write is done.
    Applied,
    /// They did not hold for this.
    Refused(ReadPage),
}

impl Coordinator {
    /// Reads a partition with `command`, and writes what `decide` says for what was read at the time that the write will
    /// have; nothing when it says none.
    pub async fn cas<E: From<RequestError>>(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
    ) -> Result<CasOutcome, E> {
        let Partitions::Keys(keys) = &command.partitions else {
            return Err(
                RequestError::Invalid("a conditional statement names its partition".to_owned()).into()
            );
        };
        let table = &command.table;
        let quorum = if options.serial == Consistency::Serial {
            Consistency::Quorum
        } else {
            Consistency::LocalQuorum
        };
        let turn = self.turns().take(table.id, &keys[0]);
        let Ok(_turn) = self.rt().timeout_at(options.contention_deadline, turn).await else {
            let (consistency, kind) = (options.serial, WriteKind::Cas);
            return Err(RequestError::WriteTimeout { consistency, received: 0, required: 1, kind }.into());
        };
        let page = self.read(command, quorum, options.deadline).await?;
        match decide(&page, self.next_timestamp())? {
            None => Ok(CasOutcome::Refused(page)),
            Some(update) => {
                let write = WriteOptions {
                    consistency: options.commit,
                    kind: WriteKind::Cas,
                    deadline: options.deadline,
                };
                self.write(vec![update], write).await?;
                Ok(CasOutcome::Applied)
            }
        }
    }

    /// Reads a partition so that everything agreed on before is seen.
    pub async fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        let quorum =
            if consistency == Consistency::Serial { Consistency::Quorum } else { Consistency::LocalQuorum };
        self.read(command, quorum, deadline).await
    }
}
