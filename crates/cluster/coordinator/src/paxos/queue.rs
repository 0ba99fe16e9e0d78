//! The queue of those who want the same partition, on whatever shard of this node they are: it stands on the shard that owns the
//! partition, which lends turns to the others. So shards of one node wait for each other instead of drawing ever higher ballots.

use std::cell::RefCell;
use std::rc::Rc;

use mutation::DecoratedKey;
use rt::{Group, Instant, ShardId};
use schema::TableId;
use stdx::HashMap;

use super::turns::Turn;
use crate::Coordinator;
use crate::schema_change::{NodeRequest, NodeResponse};

/// A shard's wish for a turn: who wishes, its number there, and until when it can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    pub(crate) from: ShardId,
    pub(crate) number: u64,
    pub(crate) until: Instant,
}

enum Lent {
    /// Somebody else's turn is not over yet.
    Waiting,
    Given {
        _turn: Turn,
    },
    /// The wish was taken back, perhaps before it was heard.
    TakenBack,
}

/// Turns that a shard lends to others of its node.
#[derive(Default)]
pub(crate) struct Lending(RefCell<HashMap<(u16, u64), (Instant, Lent)>>);

/// One's turn, until it is dropped.
pub(super) enum Held {
    Here { _turn: Turn },
    Away { _turn: Borrowed },
}

/// A turn that another shard lends, or a wish for one.
pub(super) struct Borrowed {
    coordinator: Rc<Coordinator>,
    owner: ShardId,
    wish: Wish,
}

impl Coordinator {
    /// Waits for those of this node who came before to a partition; none when that takes too long.
    pub(super) async fn queue(
        &self,
        table: TableId,
        key: &DecoratedKey,
        until: Instant,
        end: Instant,
    ) -> Option<Held> {
        let owner = ShardId(self.replica().shard_of(key.token));
        if owner == self.rt().shard() {
            let turn = self.paxos().requests.take(table, key);
            return self.rt().timeout_at(until, turn).await.ok().map(|_turn| Held::Here { _turn });
        }
        let wish = Wish { from: self.rt().shard(), number: self.paxos().next_wish(), until: end };
        // Given back when this is dropped, also while it waits.
        let turn = Borrowed { coordinator: Rc::new(self.clone()), owner, wish };
        let ask = NodeRequest::BorrowTurn { table, key: key.clone(), wish };
        match self.rt().timeout_at(until, self.port().call(owner, ask)).await {
            Ok(NodeResponse::Turn(true)) => Some(Held::Away { _turn: turn }),
            _ => None,
        }
    }

    /// Lends a turn to another shard, when it comes; whether it came in time.
    pub(crate) async fn lend_turn(&self, table: TableId, key: &DecoratedKey, wish: Wish) -> bool {
        let name = (wish.from.0, wish.number);
        let lending = &self.paxos().lending;
        {
            let mut lent = lending.0.borrow_mut();
            let now = self.rt().now();
            lent.retain(|_, (until, _)| *until > now);
            if lent.remove(&name).is_some() {
                return false;
            }
            lent.insert(name, (wish.until, Lent::Waiting));
        }
        let turn = self.rt().timeout_at(wish.until, self.paxos().requests.take(table, key)).await;
        let mut lent = lending.0.borrow_mut();
        match (turn, lent.get_mut(&name)) {
            (Ok(_turn), Some((_, lent @ Lent::Waiting))) => {
                *lent = Lent::Given { _turn };
                true
            }
            _ => {
                lent.remove(&name);
                false
            }
        }
    }

    /// Another shard does not want its turn any more.
    pub(crate) fn take_turn_back(&self, wish: Wish) {
        let mut lent = self.paxos().lending.0.borrow_mut();
        if lent.remove(&(wish.from.0, wish.number)).is_none() {
            lent.insert((wish.from.0, wish.number), (wish.until, Lent::TakenBack));
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let (coordinator, owner, wish) = (self.coordinator.clone(), self.owner, self.wish);
        let give_back = async move {
            coordinator.port().call(owner, NodeRequest::ReturnTurn(wish)).await;
        };
        self.coordinator.rt().spawn(Group::Statement, give_back).detach();
    }
}
