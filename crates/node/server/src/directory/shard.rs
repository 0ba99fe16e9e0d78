//! A shard's use of the directory: few conversations at a time, passwords that were right a while ago, and the groups of its users,
//! which are looked up again and again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use auth::password::Hash;
use futures_util::stream::{self, StreamExt};
use rt::sync::Semaphore;
use rt::{Group, Instant, Rt, Task};

use super::connection::{DirectoryError, groups, verify};
use super::{Directory, Source};
use crate::cheap_hash::cheap_hash;

/// Conversations of a shard at a time, and logins that wait for one; more are refused.
const CONVERSATIONS_MAX: usize = 8;
const WAITING_MAX: usize = 256;
/// Users whose groups are looked up again at a time, so that logins get through meanwhile.
const REFRESHED_AT_ONCE: usize = CONVERSATIONS_MAX / 2;
/// Users of a shard whose password or groups are remembered; beyond that the least recently logged in are evicted.
const USERS_MAX: usize = 4096;
/// Groups that could not be looked up again count for this many times `ldap_cache_validity`.
const STALE_TIMES: u32 = 10;

/// Takes over the roles of a user; none for the end of them.
pub(crate) type Groups = Box<dyn Fn(&str, Option<BTreeSet<String>>)>;

/// A user whose groups are known.
struct Member {
    logged_in: Instant,
    looked_up: Instant,
    /// They were not found for so long that they count no longer.
    is_stale: bool,
}

/// The directory as a shard uses it.
pub(crate) struct ShardDirectory {
    rt: Rt,
    directory: Arc<Directory>,
    take_over: Groups,
    conversations: Semaphore,
    waiting: Cell<usize>,
    /// Cheap hashes of passwords that were right, and until when they count.
    verified: RefCell<BTreeMap<String, (Hash, Instant)>>,
    members: RefCell<BTreeMap<String, Member>>,
    is_failing: Cell<bool>,
    refresh: RefCell<Option<Task<()>>>,
}

impl ShardDirectory {
    /// Begins to look groups up again.
    pub(crate) fn start(rt: &Rt, directory: Arc<Directory>, take_over: Groups) -> Rc<Self> {
        let shard = Rc::new(Self {
            rt: rt.clone(),
            directory,
            take_over,
            conversations: Semaphore::new(CONVERSATIONS_MAX),
            waiting: Cell::new(0),
            verified: RefCell::default(),
            members: RefCell::default(),
            is_failing: Cell::new(false),
            refresh: RefCell::default(),
        });
        let validity = shard.directory.validity;
        if shard.directory.groups.is_some() && !validity.is_zero() {
            let weak = Rc::downgrade(&shard);
            let clock = rt.clone();
            let refresh = async move {
                loop {
                    clock.sleep(validity).await;
                    let Some(shard) = weak.upgrade() else { return };
                    shard.refresh().await;
                }
            };
            *shard.refresh.borrow_mut() = Some(rt.spawn(Group::Maintenance, refresh));
        }
        shard
    }

    /// Ends looking groups up.
    pub(crate) fn stop(&self) {
        drop(self.refresh.borrow_mut().take());
    }

    /// Whether the directory verifies passwords.
    pub(crate) fn logs_in(&self) -> bool {
        self.directory.login.is_some()
    }

    /// Whether a password is right; the error is for the client, and says nothing about the directory. `may_guess` decides when it is this
    /// login's turn to query the directory.
    pub(crate) async fn verify(
        &self,
        user: &str,
        password: &str,
        may_guess: impl Fn() -> Result<(), String>,
    ) -> Result<bool, String> {
        let Some(source) = &self.directory.login else { return Ok(false) };
        if password.is_empty() || user.is_empty() {
            return Ok(false);
        }
        let known = self.verified.borrow().get(user).filter(|(_, until)| *until > self.rt.now()).cloned();
        if let Some((hash, _)) = known
            && hash.matches(password).await
        {
            return Ok(true);
        }
        let conversation = async {
            match may_guess() {
                Ok(()) => verify(&self.rt, &self.directory, source, (user, password)).await.map(Ok),
                Err(why) => Ok(Err(why)),
            }
        };
        let right = self.converse(conversation).await??;
        if right {
            self.remember(user, password).await;
        } else {
            self.verified.borrow_mut().remove(user);
        }
        Ok(right)
    }

    async fn remember(&self, user: &str, password: &str) {
        if self.directory.validity.is_zero() {
            return;
        }
        let cheap = cheap_hash(&self.rt, password).await;
        let mut verified = self.verified.borrow_mut();
        if verified.len() >= USERS_MAX {
            verified.clear();
        }
        verified.insert(user.to_owned(), (cheap, self.rt.now() + self.directory.validity));
    }

    /// Sees to it that the roles of a user that logs in are those of its groups.
    pub(crate) async fn load_groups(&self, user: &str) -> Result<(), String> {
        let Some(source) = &self.directory.groups else { return Ok(()) };
        let now = self.rt.now();
        {
            let mut members = self.members.borrow_mut();
            if let Some(member) = members.get_mut(user)
                && now.duration_since(member.looked_up) < self.directory.validity
            {
                member.logged_in = now;
                return Ok(());
            }
        }
        let found = self.converse(groups(&self.rt, &self.directory, source, user)).await?;
        self.make_room(user);
        (self.take_over)(user, Some(found.into_iter().collect()));
        self.members
            .borrow_mut()
            .insert(user.to_owned(), Member { logged_in: now, looked_up: now, is_stale: false });
        Ok(())
    }

    /// Forgets the user that logged in longest ago where there are too many.
    fn make_room(&self, user: &str) {
        let mut members = self.members.borrow_mut();
        if members.len() < USERS_MAX || members.contains_key(user) {
            return;
        }
        let oldest = members.iter().min_by_key(|(_, member)| member.logged_in).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest {
            members.remove(&oldest);
            (self.take_over)(&oldest, None);
        }
    }

    /// Looks the groups of all users up again. Those that are not found for long are no longer theirs, until they are found again: drivers
    /// keep their connections and do not log in once more.
    async fn refresh(&self) {
        let Some(source) = &self.directory.groups else { return };
        self.forget_stale();
        let users: Vec<String> = self.members.borrow().keys().cloned().collect();
        let look_ups = users.into_iter().map(|user| self.refresh_user(source, user));
        // A directory that hangs must not make one user wait for the time limits of all others.
        stream::iter(look_ups).for_each_concurrent(REFRESHED_AT_ONCE, |done| done).await;
    }

    async fn refresh_user(&self, source: &(Source, String), user: String) {
        let found = self.converse(groups(&self.rt, &self.directory, source, &user)).await;
        let now = self.rt.now();
        let Ok(found) = found else { return self.forget_stale() };
        // Another login may have taken its place.
        if let Some(member) = self.members.borrow_mut().get_mut(&user) {
            (member.looked_up, member.is_stale) = (now, false);
            (self.take_over)(&user, Some(found.into_iter().collect()));
        }
    }

    /// Takes the groups from users for whom they were not found for long.
    fn forget_stale(&self) {
        let now = self.rt.now();
        for (user, member) in &mut *self.members.borrow_mut() {
            let age = now.duration_since(member.looked_up);
            if !member.is_stale && age >= self.directory.validity * STALE_TIMES {
                tracing::warn!("the groups of {user:?} were not looked up for {age:?} and count no longer");
                member.is_stale = true;
                (self.take_over)(user, None);
            }
        }
    }

    /// Does one conversation, within the limits of time and number.
    async fn converse<T>(
        &self,
        conversation: impl Future<Output = Result<T, DirectoryError>>,
    ) -> Result<T, String> {
        if self.waiting.get() >= WAITING_MAX {
            return Err(format!(
                "Unable to perform authentication: {WAITING_MAX} logins are waiting already"
            ));
        }
        let _waiting = Waiting::new(&self.waiting);
        let _permit = self.conversations.acquire(1).await;
        let outcome = self.rt.timeout(self.directory.timeout, conversation).await;
        let why = match outcome {
            Ok(Ok(done)) => {
                self.is_failing.set(false);
                return Ok(done);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not answer within {:?}", self.directory.timeout),
        };
        // Once, until it answers again: clients that try on would fill the log.
        if !self.is_failing.replace(true) {
            tracing::warn!("the directory of users (LDAP) cannot be used: {why}");
        }
        Err("Unable to perform authentication: the directory of users cannot be used".to_owned())
    }
}

/// Counts a login that waits.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
