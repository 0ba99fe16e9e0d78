//! The side of the pending replica: queries a source's shards, stores arriving files in a folder a transfer, and adopts them when all are
//! there.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::transfer::{Chunk, FileSink, Plan, Position, Sink};
use bytes::Bytes;
use engine::{AwaitedFiles, Incoming};
use rpc::{RpcError, Target, Verb};
use rt::LocalBoxFuture;
use schema::TableId;
use topology::{HostId, TokenRange};
use xxhash_rust::xxh3::Xxh3;

use crate::codec::{Answer, NO_ATTEMPT, Offered, Question, RequestId, SourceState};
use crate::source::{plan_of, wanted};
use crate::{FetchError, Inner, Streaming, remove_dir};

/// Pause before a source that did not answer is queried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// A truncation may reach this node so much before the source.
const TRUNCATION_SPREAD: Duration = Duration::from_secs(60);
/// The space that stays free on the disk beside the expected files.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// A source of a table's ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its role.
    pub host: HostId,
    /// How many shards it has.
    pub shards: u16,
}

/// The outcome of fetching a table's files from a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// SSTables that were taken over.
    pub sstables: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Whether this shard now has all that the source had at a moment after this was called. Not so when it had been fetched before.
    pub is_all: bool,
}

/// A request that is under way.
pub(crate) struct Waiting {
    dir: PathBuf,
    bytes_total: Cell<u64>,
    bytes_done: Cell<u64>,
    /// The reason why this node could not store received bytes.
    failure: RefCell<Option<String>>,
}

impl Waiting {
    pub(crate) fn bytes_total(&self) -> u64 {
        self.bytes_total.get().max(self.bytes_done.get())
    }

    /// Keeps why this node failed, which the source's answer would tell less clearly.
    fn failed(&self, error: String) -> String {
        *self.failure.borrow_mut() = Some(error.clone());
        error
    }

    pub(crate) fn bytes_done(&self) -> u64 {
        self.bytes_done.get()
    }
}

/// Makes the sink of a transfer that somebody here has asked for.
pub(crate) async fn accept(inner: Rc<Inner>, _: HostId, plan: Rc<Plan>) -> Result<Rc<dyn Sink>, String> {
    let request: Result<[u8; 16], _> = plan.purpose()[..].try_into();
    let awaited = request.ok().and_then(|id| inner.awaited.borrow().get(&RequestId(id)).cloned());
    let waiting = awaited.ok_or("nobody here waits for this transfer")?;
    match open_sink(&inner, &waiting, plan).await {
        Ok(sink) => Ok(Rc::new(Counted { sink, waiting })),
        Err(error) => Err(waiting.failed(error)),
    }
}

async fn open_sink(inner: &Inner, waiting: &Waiting, plan: Rc<Plan>) -> Result<FileSink, String> {
    let text = |error: rt::DiskError| error.to_string();
    let disk = inner.rt.disk();
    disk.create_dir_all(&waiting.dir).await.map_err(text)?;
    let folder = waiting.dir.join(plan.id().to_string());
    let (bytes, free) = (plan.known_bytes().0, disk.free_space(&waiting.dir).await.map_err(text)?);
    if !disk.exists(&folder).await.map_err(text)? && free < bytes.saturating_add(FREE_BYTES_MIN) {
        return Err(format!(
            "no space is left on the disk: an SSTable of {bytes} bytes comes, {free} are free"
        ));
    }
    let sink = FileSink::open(disk, folder, Rc::clone(&plan)).await.map_err(text)?;
    waiting.bytes_done.set(waiting.bytes_done.get() + plan.bytes_before(&sink.resume()));
    Ok(sink)
}

/// A sink that counts the received bytes.
struct Counted {
    sink: FileSink,
    waiting: Rc<Waiting>,
}

impl Sink for Counted {
    fn resume(&self) -> Position {
        self.sink.resume()
    }

    fn write(&self, chunk: Chunk) -> LocalBoxFuture<Result<(), String>> {
        let (bytes, waiting) = (chunk.data.len() as u64, Rc::clone(&self.waiting));
        let written = self.sink.write(chunk);
        Box::pin(async move {
            written.await.map_err(|error| waiting.failed(error))?;
            waiting.bytes_done.set(waiting.bytes_done.get() + bytes);
            Ok(())
        })
    }

    fn close(&self, complete: bool) -> LocalBoxFuture<Result<(), String>> {
        self.sink.close(complete)
    }
}

/// Leaves the list of requests when it ends, however.
struct Listed<'a>(&'a Inner, RequestId);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.0.awaited.borrow_mut().remove(&self.1);
    }
}

impl Streaming {
    /// Fetches a node's files of a table's tokens, as far as they are this shard's, and adopts them. `label` names the purpose: under
    /// the same one, fetching resumes where it was.
    ///
    /// # Errors
    /// [`FetchError::Silent`] when the source does not answer, [`FetchError::Source`] when it refuses,
    /// [`FetchError::NoPlace`] and [`FetchError::Disk`] when this node's disk has no room or fails,
    /// [`FetchError::Unusable`] when the data cannot be used, [`FetchError::Here`] when this shard cannot adopt it.
    /// Files that have arrived stay for the next call under the same label.
    pub async fn fetch(
        &self,
        from: Peer,
        table: TableId,
        ranges: &[TokenRange],
        label: &str,
    ) -> Result<Fetched, FetchError> {
        let inner = &self.0;
        let mut all = Fetched { is_all: true, ..Fetched::default() };
        for (target, mut question) in questions(inner, from, table, ranges, label) {
            if inner.adopted.borrow().contains(&question.request) {
                all.is_all = false;
                continue;
            }
            question.attempt = inner.rt.random_u64().max(NO_ATTEMPT + 1);
            let one = inner.fetch_one(target, &question, label).await?;
            all.sstables += one.sstables;
            all.bytes += one.bytes;
            all.is_all &= one.is_all;
        }
        Ok(all)
    }

    /// About how many bytes [`Streaming::fetch`] would bring; none when not all of the source's shards tell.
    pub async fn estimate(
        &self,
        from: Peer,
        table: TableId,
        ranges: &[TokenRange],
        label: &str,
    ) -> Option<u64> {
        let inner = &self.0;
        let deadline = inner.rt.now() + inner.config.answer_within;
        let mut bytes = 0;
        for (target, question) in questions(inner, from, table, ranges, label) {
            if inner.adopted.borrow().contains(&question.request) {
                continue;
            }
            let answer = inner.messenger.call(target, Verb::StreamFiles, question.encode(), deadline).await;
            match Answer::decode(&answer.ok()?).ok()?.0 {
                SourceState::UnderWay { bytes_total } => bytes += bytes_total,
                SourceState::Done { .. } | SourceState::Failed(_) => return None,
            }
        }
        Some(bytes)
    }
}

/// The request to each shard of a source that has some of it; no attempt is one yet.
fn questions(
    inner: &Inner,
    from: Peer,
    table: TableId,
    ranges: &[TokenRange],
    label: &str,
) -> Vec<(Target, Question)> {
    let (own, shards) = (inner.rt.shard().0, inner.rt.shard_count());
    let theirs = inner.engine.sharder(from.host, from.shards, table);
    let met = inner.engine.own_sharder(table).shards_in_common(own, &theirs).into_iter();
    let question = |source_shard| Question {
        request: request_id(inner, from, source_shard, table, ranges, label),
        attempt: NO_ATTEMPT,
        table,
        shard: own,
        shards,
        source_shards: from.shards,
        ranges: ranges.to_vec(),
    };
    met.map(|shard| (Target::Host { host: from.host, shard }, question(shard))).collect()
}

fn request_id(
    inner: &Inner,
    from: Peer,
    source_shard: u16,
    table: TableId,
    ranges: &[TokenRange],
    label: &str,
) -> RequestId {
    let mut hasher = Xxh3::new();
    for id in [inner.host.0, from.host.0, table.0] {
        hasher.update(&id);
    }
    for number in [source_shard, from.shards, inner.rt.shard().0, inner.rt.shard_count()] {
        hasher.update(&number.to_be_bytes());
    }
    for range in ranges {
        hasher.update(&range.after.to_be_bytes());
        hasher.update(&range.upto.to_be_bytes());
    }
    hasher.update(label.as_bytes());
    RequestId(hasher.digest128().to_be_bytes())
}

impl Inner {
    /// Fetches from one shard of a source.
    async fn fetch_one(&self, to: Target, question: &Question, label: &str) -> Result<Fetched, FetchError> {
        let dir = self.incoming().join(label).join(question.request.to_string());
        // From before the request to the source.
        let awaited = self.engine.await_files(question.table)?;
        let waiting = Rc::new(Waiting {
            dir: dir.clone(),
            bytes_total: Cell::default(),
            bytes_done: Cell::default(),
            failure: RefCell::default(),
        });
        self.awaited.borrow_mut().insert(question.request, Rc::clone(&waiting));
        let listed = Listed(self, question.request);
        let (truncated_at, offered, damaged) = self.ask(to, question, &waiting).await?;
        drop(listed);
        self.check_truncation(&awaited, truncated_at)?;
        let mut incoming = Vec::with_capacity(offered.len());
        for one in &offered {
            self.rt.buggify("streaming: the next file").await;
            if self.rt.buggify_fails("streaming: a file is not there") {
                return Err(FetchError::Silent("the stream broke off".to_owned()));
            }
            incoming.push(self.arrived(question, one, &dir).await?);
        }
        let wanted = wanted(self.engine.own_sharder(question.table), question);
        let engine = self.engine.clone();
        // To its end, also when nobody waits for it any more: on disk the files might be a part of the table, and in memory not.
        let adopting = async move { engine.adopt(&awaited, &incoming, &wanted).await };
        let adopted = self.rt.uncancelled(rt::Group::Streaming, adopting).await;
        let adopted = match adopted.map_err(FetchError::from) {
            Ok(adopted) => adopted,
            Err(error) => {
                // Damaged files, or ones not wanted any more, are removed.
                if !error.is_disk() {
                    remove_dir(self, &dir).await?;
                }
                return Err(error);
            }
        };
        self.adopted.borrow_mut().insert(question.request);
        remove_dir(self, &dir).await?;
        if damaged > 0 {
            tracing::warn!(
                "{damaged} SSTables of table {} were left out by their source, where they are damaged (its log names them): their \
                 readable part is streamed as rows; `nodetool repair` of the table repairs them there",
                question.table
            );
        }
        Ok(Fetched { sstables: adopted.sstables, bytes: adopted.bytes, is_all: damaged == 0 })
    }

    /// Asks until everything was sent: the time of the source's last truncation, the set of SSTables that are its content, and how many it
    /// left out.
    async fn ask(
        &self,
        to: Target,
        question: &Question,
        waiting: &Waiting,
    ) -> Result<(i64, Vec<Offered>, u32), FetchError> {
        let body: Bytes = question.encode();
        let mut heard_at = self.rt.now();
        loop {
            if self.stopped.get() {
                return Err(FetchError::Silent("this node stops".to_owned()));
            }
            let deadline = self.rt.now() + self.config.answer_within * 2;
            let answer = self.messenger.call(to, Verb::StreamFiles, body.clone(), deadline).await;
            let answer = match answer {
                Ok(answer) => Answer::decode(&answer),
                Err(RpcError::Refused(refused)) => return Err(FetchError::Source(refused.to_string())),
                Err(error) => {
                    if self.rt.now() >= heard_at + self.config.silent_max {
                        return Err(FetchError::Silent(error.to_string()));
                    }
                    self.rt.sleep(RETRY_PAUSE).await;
                    continue;
                }
            };
            heard_at = self.rt.now();
            match answer.map_err(|error| FetchError::Unusable(error.to_string()))?.0 {
                SourceState::UnderWay { bytes_total } => waiting.bytes_total.set(bytes_total),
                SourceState::Done { truncated_at, offered, damaged } => {
                    return Ok((truncated_at, offered, damaged));
                }
                SourceState::Failed(why) => {
                    let here = waiting.failure.borrow_mut().take();
                    return Err(here.map_or(FetchError::Source(why), FetchError::NoPlace));
                }
            }
        }
    }

    /// A truncation that has come here and may not have come to the source yet: its files would bring back rows that it is to remove.
    fn check_truncation(&self, awaited: &AwaitedFiles, source_at: i64) -> Result<(), FetchError> {
        let own_at = awaited.truncated_at();
        let spread = TRUNCATION_SPREAD.as_micros() as i64;
        if own_at > source_at && self.rt.wall_micros() < own_at.saturating_add(spread) {
            return Err(FetchError::Here(engine::MaintenanceError::Truncated));
        }
        Ok(())
    }

    /// The files of an SSTable that has come, which must be there to their ends.
    async fn arrived(
        &self,
        question: &Question,
        offered: &Offered,
        dir: &std::path::Path,
    ) -> Result<Incoming, FetchError> {
        let plan = plan_of(question, offered).map_err(|error| FetchError::Unusable(error.to_string()))?;
        let (plan, folder) =
            (Rc::new(plan), dir.join(crate::transfer::TransferId(offered.transfer).to_string()));
        let sink = FileSink::open(self.rt.disk(), folder.clone(), Rc::clone(&plan)).await?;
        if sink.resume() != plan.end() {
            return Err(FetchError::Unusable(format!("the transfer {} is not complete here", plan.id())));
        }
        let at = |(item, (component, _)): (u32, &(sstable::Component, u64))| {
            (*component, FileSink::path_of(&folder, item))
        };
        Ok(Incoming { files: (0..).zip(&offered.files).map(at).collect() })
    }
}
