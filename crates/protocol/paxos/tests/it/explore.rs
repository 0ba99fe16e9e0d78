//! Every interleaving of two proposers, three replicas and a fourth node that takes the place of one of them; and of two proposers,
//! three replicas and a power failure. Acknowledged writes are there whichever quorum is read, after every step.
//!
//! The voters and proposers are those of this crate; votes, data and topology versions go with the range as `coordinator` has them go
//! (docs/design/lwt.md, docs/design/topology.md). A message is handled and answered in one step, and one that is never handled is lost.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use paxos::{AcceptorState, Action, Ballot, Proposal, Proposer, Reply, Request, step};
use stdx::HashSet;

/// Bugs that the explorer must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Replicas of before follow requests of before while their votes are fetched.
    NoFence,
    /// The rows of a source are streamed before it refuses requests of before.
    StreamedBeforeFence,
    /// The node that joins begins without votes.
    VotesNotCarried,
    /// It takes over that a write was committed, and not its cells.
    CommitsWithoutValues,
    /// Requests during the change do not wait for the pending replica.
    PendingNotAsked,
    /// A proposer ignores unfinished proposals of others.
    UnfinishedIgnored,
    /// A voter that is given the last commit answers before it is on disk.
    RepairNotSynced,
    /// Node 3, which still has its old rows of the range, drops them and fetches at once: writes that it acknowledged since the change
    /// was announced are dropped too, and requests that counted it may end yet.
    DroppedWithoutWait,
    /// An author that chooses anew by a newer topology version has forgotten that its write may be chosen already.
    OwnForgotten,
}

/// Which topology change is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Nodes 0, 1 and 2 are the replicas.
    Fixed,
    /// Node 3 takes the place of node 2.
    Replaces,
    /// The same. Node 3 was a replica in earlier times, and drops its rows of them before it fetches.
    Regains,
    /// Node 0 is the only replica; nodes 1 and 2 become replicas, too.
    Grows,
    /// Node 1 takes the place of node 0, the only replica.
    Moves,
}

/// A step of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// From now on coordinators use the next topology version, and pending replicas refuse the previous one.
    Announce,
    /// A pending replica drops the rows that it has.
    Drop(usize),
    /// The time of all requests begun so far is over.
    Wait,
    /// A source refuses the previous topology version.
    Fence(usize),
    /// All rows of a source go to a pending replica.
    Stream(usize, usize),
    /// The votes of a source go to a pending replica.
    Votes(usize, usize),
    /// Reads go over.
    Switch,
}

impl Shape {
    /// The replicas that are read, by topology version.
    fn replicas(self, version: u8) -> &'static [usize] {
        match (self, version) {
            (Self::Fixed, _) | (Self::Replaces | Self::Regains, 1 | 2) => &[0, 1, 2],
            (Self::Replaces | Self::Regains, _) => &[0, 1, 3],
            (Self::Grows | Self::Moves, 1 | 2) => &[0],
            (Self::Moves, _) => &[1],
            (Self::Grows, _) => &[0, 1, 2],
        }
    }

    fn pending(self) -> &'static [usize] {
        match self {
            Self::Fixed => &[],
            Self::Replaces | Self::Regains => &[3],
            Self::Grows => &[1, 2],
            Self::Moves => &[1],
        }
    }

    /// Those that vote, and how many make a quorum.
    fn voters(self, version: u8, bug: Bug) -> (&'static [usize], usize) {
        match (self, version) {
            (Self::Replaces | Self::Regains, 2) if bug != Bug::PendingNotAsked => (&[0, 1, 2, 3], 3),
            (Self::Grows, 2) if bug != Bug::PendingNotAsked => (&[0, 1, 2], 3),
            (Self::Moves, 2) if bug != Bug::PendingNotAsked => (&[0, 1], 2),
            _ => {
                let replicas = self.replicas(version);
                (replicas, replicas.len() / 2 + 1)
            }
        }
    }

    /// The steps of the change, in the order of `membership::change` and `coordinator::pull`: a source is fenced before anything is
    /// fetched from it, the rows that come as files come before the votes, and the rows of the other sources after them. So the data that a
    /// pending replica is given is as old as it can be. Interleavings differ in the times of the steps. Node 1 is no source where
    /// there are three, and follows requests of the previous version for as long as they come.
    fn ops(self, bug: Bug) -> Vec<Op> {
        let mut ops = match self {
            Self::Fixed => vec![],
            Self::Moves => {
                vec![Op::Announce, Op::Fence(0), Op::Stream(0, 1), Op::Votes(0, 1), Op::Switch]
            }
            Self::Grows => vec![
                Op::Announce,
                Op::Fence(0),
                Op::Stream(0, 1),
                Op::Stream(0, 2),
                Op::Votes(0, 1),
                Op::Votes(0, 2),
                Op::Switch,
            ],
            Self::Replaces | Self::Regains => vec![
                Op::Announce,
                Op::Drop(3),
                Op::Wait,
                Op::Fence(2),
                Op::Stream(2, 3),
                Op::Fence(0),
                Op::Votes(2, 3),
                Op::Votes(0, 3),
                Op::Stream(0, 3),
                Op::Switch,
            ],
        };
        ops.retain(|op| match op {
            Op::Drop(_) => self == Self::Regains,
            Op::Wait => self == Self::Regains && bug != Bug::DroppedWithoutWait,
            Op::Fence(_) => bug != Bug::NoFence,
            Op::Votes(..) => bug != Bug::VotesNotCarried,
            Op::Announce | Op::Stream(..) | Op::Switch => true,
        });
        if bug == Bug::StreamedBeforeFence {
            let first = ops.iter().position(|op| matches!(op, Op::Fence(_))).expect("a source is fenced");
            ops.swap(first, first + 1);
        }
        ops
    }
}

#[derive(Clone, Copy)]
struct Plan {
    bug: Bug,
    shape: Shape,
    /// Rounds that each proposer may begin.
    rounds: [u8; 2],
    /// A proposer that a voter refuses, for it uses a stale topology version, continues by the newer one, once.
    continues: bool,
    power_failures: u8,
}

const NODES: usize = 4;
const MEMORY_MICROS: i64 = 1 << 40;

/// A write: which of two rows, and which of them its author had read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Write {
    row: u8,
    read: u8,
}

/// The rows of the partition, each with the value that its author had read.
type Rows = [Option<u8>; 2];

fn put(rows: &mut Rows, write: Write) {
    rows[usize::from(write.row)] = Some(write.read);
}

fn merge(one: Rows, two: Rows) -> Rows {
    [one[0].or(two[0]), one[1].or(two[1])]
}

fn present(rows: Rows) -> u8 {
    u8::from(rows[0].is_some()) | u8::from(rows[1].is_some()) << 1
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    state: AcceptorState<Write>,
    rows: Rows,
    /// The state that a power failure leaves of both; kept only where one may come.
    stored: (AcceptorState<Write>, Rows),
    /// No request of a topology version before this one is followed.
    fence: u8,
}

impl Node {
    /// Votes; `may_fail` when a power failure may come, so that the surviving state is to be known.
    fn vote(&mut self, plan: &Plan, may_fail: bool, request: Request<Write>) -> Reply<Write> {
        let syncs = match &request {
            Request::Commit(_) => false,
            Request::Repair(_) => plan.bug != Bug::RepairNotSynced,
            Request::Prepare(_) | Request::Propose(_) => true,
        };
        let step = step(&self.state, request, 1, MEMORY_MICROS);
        let changed = step.state.is_some() || step.apply.is_some();
        if let Some(state) = step.state {
            self.state = state;
        }
        if let Some(write) = step.apply {
            put(&mut self.rows, write);
        }
        if may_fail && syncs && changed {
            self.stored = (self.state.clone(), self.rows);
        }
        step.reply
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Outcome {
    NotBegun,
    Running,
    Applied,
    /// It is not known, or never will be applied.
    Failed,
}

/// A request on its way.
#[derive(Clone, Debug, Hash)]
struct Message {
    /// The topology version by which its voter was chosen.
    version: u8,
    sending: u32,
    /// Its place among the voters of that version.
    voter: usize,
    request: Request<Write>,
}

#[derive(Clone, Debug, Hash)]
struct Client {
    outcome: Outcome,
    proposer: Option<Proposer<Write>>,
    version: u8,
    rounds: u8,
    asked: Vec<Message>,
    decides: bool,
    again: Option<Ballot>,
    /// It has continued by a newer topology version.
    has_continued: bool,
}

impl Client {
    /// Its time is over. Its messages may arrive all the same.
    fn expire(&mut self) {
        if self.outcome == Outcome::Running {
            (self.outcome, self.proposer, self.decides, self.again) = (Outcome::Failed, None, false, None);
        }
    }
}

#[derive(Clone, Debug, Hash)]
struct State {
    nodes: [Node; NODES],
    clients: [Client; 2],
    /// The topology version: 1 before the change, 2 while data moves, 3 when reads have gone over.
    version: u8,
    /// How many steps of the change are done.
    done: usize,
    power_failures: u8,
}

impl State {
    fn new() -> Self {
        let client = Client {
            outcome: Outcome::NotBegun,
            proposer: None,
            version: 0,
            rounds: 0,
            asked: Vec::new(),
            decides: false,
            again: None,
            has_continued: false,
        };
        let node = Node { fence: 1, ..Node::default() };
        Self {
            nodes: std::array::from_fn(|_| node.clone()),
            clients: [client.clone(), client],
            version: 1,
            done: 0,
            power_failures: 0,
        }
    }

    fn fingerprint(&self) -> u128 {
        let mut hasher = Fingerprint([0xcbf2_9ce4_8422_2325, 0x9e37_79b9_7f4a_7c15]);
        self.hash(&mut hasher);
        u128::from(hasher.0[0]) << 64 | u128::from(hasher.finish())
    }

    /// All that can happen next.
    fn next(&self, plan: &Plan) -> Vec<State> {
        let mut out = Vec::new();
        for at in 0..self.clients.len() {
            self.client_steps(plan, at, &mut out);
        }
        if let Some(op) = plan.shape.ops(plan.bug).get(self.done) {
            let mut next = self.clone();
            next.done += 1;
            next.change(plan, *op);
            out.push(next);
        }
        // Which node it is does not matter where all are alike.
        let node = &self.nodes[0];
        if self.power_failures < plan.power_failures
            && (&node.state, node.rows) != (&node.stored.0, node.stored.1)
        {
            let mut next = self.clone();
            next.power_failures += 1;
            let node = &mut next.nodes[0];
            (node.state, node.rows) = std::mem::take(&mut node.stored);
            out.push(next);
        }
        out.iter_mut().for_each(|next| next.forget_refused(plan));
        out
    }

    fn client_steps(&self, plan: &Plan, at: usize, out: &mut Vec<State>) {
        let client = &self.clients[at];
        if client.outcome == Outcome::NotBegun {
            let mut next = self.clone();
            next.start(plan, at);
            out.push(next);
        }
        if let Some(above) = client.again {
            let mut next = self.clone();
            next.clients[at].again = None;
            next.begin(plan, at, above);
            out.push(next);
        }
        if client.decides {
            for rows in reads(&self.nodes, plan.shape.replicas(client.version), 7) {
                let mut next = self.clone();
                next.clients[at].decides = false;
                let write = Write { row: at as u8, read: present(rows) };
                let action = next.clients[at].proposer.as_mut().expect("it runs").decided(Some(write));
                next.carry_out(plan, at, action);
                out.push(next);
            }
        }
        for message in 0..client.asked.len() {
            let mut next = self.clone();
            next.deliver(plan, at, message);
            out.push(next);
        }
        if plan.continues && self.is_refused(plan, client) {
            let mut next = self.clone();
            next.continue_anew(plan, at);
            out.push(next);
        }
    }

    /// Whether a voter refuses a client's requests, for they use a stale topology version, and it may continue by the newer one.
    fn is_refused(&self, plan: &Plan, client: &Client) -> bool {
        let all = plan.shape.voters(client.version.max(1), plan.bug).0;
        client.outcome == Outcome::Running
            && !client.has_continued
            && client.version < self.version
            && all.iter().any(|node| self.refuses(plan, *node, client.version))
    }

    /// Whether a node refuses votes of a topology version: by the last one it is no replica any more, or it is fenced.
    fn refuses(&self, plan: &Plan, node: usize, version: u8) -> bool {
        let is_former = self.version == 3 && !plan.shape.voters(3, plan.bug).0.contains(&node);
        version < self.nodes[node].fence || plan.continues && version < self.version && is_former
    }

    /// Continues by the newer topology version. The author knows that its write may be chosen; its messages may arrive all the same.
    fn continue_anew(&mut self, plan: &Plan, at: usize) {
        let (version, client) = (self.version, &mut self.clients[at]);
        let (all, quorum) = plan.shape.voters(version, plan.bug);
        let proposer = client.proposer.as_mut().expect("it runs");
        proposer.expire();
        let last = proposer.ballot();
        match plan.bug {
            Bug::OwnForgotten => *proposer = new_proposer(all.len(), quorum),
            _ => proposer.ask_others(all.len(), quorum),
        }
        (client.version, client.has_continued, client.decides, client.again) = (version, true, false, None);
        self.begin(plan, at, last);
    }

    fn start(&mut self, plan: &Plan, at: usize) {
        let (version, client) = (self.version, &mut self.clients[at]);
        let (all, quorum) = plan.shape.voters(version, plan.bug);
        client.outcome = Outcome::Running;
        client.version = version;
        client.proposer = Some(new_proposer(all.len(), quorum));
        self.begin(plan, at, Ballot::NONE);
    }

    fn begin(&mut self, plan: &Plan, at: usize, above: Ballot) {
        let client = &mut self.clients[at];
        client.rounds += 1;
        // Another's write that it has finished; those that were not notified find out.
        client.asked.retain(|message| matches!(message.request, Request::Propose(_)));
        // The second one's first round is the higher; after that the one that begins later.
        let micros = (above.micros + 2).max(10 + 2 * at as i64);
        let action = client.proposer.as_mut().expect("it runs").begin(Ballot { micros, node: at as u64 });
        self.carry_out(plan, at, action);
    }

    fn deliver(&mut self, plan: &Plan, at: usize, message: usize) {
        let Message { version, sending, voter, request } = self.clients[at].asked.swap_remove(message);
        if sending == TELLING {
            // At most one voter receives the commit; the others find out.
            self.clients[at].asked.retain(|message| message.sending != TELLING);
        }
        let is_late = version < self.clients[at].version;
        let place = plan.shape.voters(version, plan.bug).0[voter];
        assert!(!self.refuses(plan, place, version), "what is refused is not on its way any more");
        let node = &mut self.nodes[place];
        let may_fail = place == 0 && self.power_failures < plan.power_failures;
        let reply = Some(node.vote(plan, may_fail, request));
        self.sort_messages(at);
        let reply = match (plan.bug, reply) {
            (Bug::UnfinishedIgnored, Some(Reply::Promised { committed, .. })) => {
                Some(Reply::Promised { accepted: None, committed })
            }
            (_, reply) => reply,
        };
        // Nobody waits for the answers to requests of an earlier topology version.
        if let Some(proposer) = self.clients[at].proposer.as_mut().filter(|_| !is_late) {
            let action = proposer.reply(sending, voter, reply);
            self.carry_out(plan, at, action);
        }
    }

    /// The order of messages on their way means nothing.
    fn sort_messages(&mut self, at: usize) {
        self.clients[at].asked.sort_by_key(|message| (message.sending, message.voter));
    }

    fn carry_out(&mut self, plan: &Plan, at: usize, action: Action<Write>) {
        let client = &mut self.clients[at];
        match action {
            Action::Wait => {}
            Action::Send { sending, to, request } => {
                // A promise that comes late changes only the refusals for others.
                client.asked.retain(|message| !matches!(message.request, Request::Prepare(_)));
                let version = client.version;
                let send = |voter| Message { version, sending, voter, request: request.clone() };
                client.asked.extend(to.into_iter().map(send));
            }
            Action::Decide(_) => {
                client.asked.retain(|message| !matches!(message.request, Request::Prepare(_)));
                client.decides = true;
            }
            Action::Again { above, .. } if client.rounds < plan.rounds[at] => client.again = Some(above),
            Action::Again { .. } => client.expire(),
            Action::Chosen(proposal) => {
                client.outcome = Outcome::Applied;
                client.proposer = None;
                let version = client.version;
                let all = plan.shape.voters(version, plan.bug).0.len();
                let request = Request::Commit(proposal);
                let send = |voter| Message { version, sending: TELLING, voter, request: request.clone() };
                client.asked.extend((0..all).map(send));
            }
            Action::Nothing => unreachable!("it always writes"),
            Action::Failed(_) => {
                client.outcome = Outcome::Failed;
                client.proposer = None;
            }
        }
        self.sort_messages(at);
    }

    /// A step of the change.
    fn change(&mut self, plan: &Plan, op: Op) {
        match op {
            Op::Announce => {
                self.version = 2;
                plan.shape.pending().iter().for_each(|node| self.nodes[*node].fence = 2);
            }
            Op::Drop(node) => self.nodes[node].rows = Rows::default(),
            Op::Wait => self.clients.iter_mut().for_each(Client::expire),
            Op::Fence(node) => self.nodes[node].fence = 2,
            Op::Stream(from, to) => self.nodes[to].rows = merge(self.nodes[to].rows, self.nodes[from].rows),
            Op::Votes(from, to) => self.carry_votes(plan, from, to),
            Op::Switch => self.version = 3,
        }
    }

    /// A request that a voter refuses now it refuses for ever, and nothing follows but that the author knows: as if it were lost.
    fn forget_refused(&mut self, plan: &Plan) {
        for at in 0..self.clients.len() {
            let mut asked = std::mem::take(&mut self.clients[at].asked);
            asked.retain(|message| {
                let place = plan.shape.voters(message.version, plan.bug).0[message.voter];
                !self.refuses(plan, place, message.version)
            });
            self.clients[at].asked = asked;
            let client = &self.clients[at];
            let is_asking = client.asked.iter().any(|message| message.version == client.version);
            let continues = plan.continues && client.outcome == Outcome::Running && !client.has_continued;
            let is_open = client.decides || client.again.is_some() || is_asking || continues;
            if !is_open {
                self.clients[at].expire();
            }
        }
    }

    fn carry_votes(&mut self, plan: &Plan, source: usize, target: usize) {
        let from = self.nodes[source].state.clone();
        let node = &mut self.nodes[target];
        let before = node.state.committed_ballot();
        node.state = node.state.clone().merged(from);
        let commit = node.state.committed.as_ref().filter(|commit| commit.ballot > before);
        if let Some(write) = commit.and_then(|commit| commit.value)
            && plan.bug != Bug::CommitsWithoutValues
        {
            put(&mut node.rows, write);
        }
    }

    /// The error in the answer of any quorum.
    fn judge(&self, plan: &Plan) -> Result<(), String> {
        let version = self.version;
        let (all, quorum) = plan.shape.voters(version, plan.bug);
        for reached in 0u8..1 << all.len() {
            if reached.count_ones() as usize != quorum {
                continue;
            }
            let nodes: u8 = (0..all.len()).filter(|at| reached >> at & 1 == 1).map(|at| 1 << all[at]).sum();
            let mut copies = self.nodes.clone();
            for rows in serial_read(plan, &mut copies, version, nodes) {
                self.judge_rows(rows)
                    .map_err(|why| format!("{why}: {rows:?} is read from nodes {nodes:04b}"))?;
            }
        }
        Ok(())
    }

    fn judge_rows(&self, rows: Rows) -> Result<(), String> {
        let found = present(rows);
        for (at, client) in self.clients.iter().enumerate() {
            if client.outcome == Outcome::Applied && found >> at & 1 == 0 {
                return Err(format!("write {at} was acknowledged and is lost"));
            }
        }
        for (at, read) in rows.iter().enumerate().filter_map(|(at, read)| read.map(|read| (at, read))) {
            if read >> at & 1 == 1 {
                return Err(format!("write {at} was chosen twice"));
            }
            if read & !found != 0 {
                return Err(format!("what the author of write {at} had read is lost"));
            }
        }
        if let [Some(one), Some(two)] = rows
            && (one >> 1 & 1) + (two & 1) != 1
        {
            return Err("the authors of both writes read the same: there was no order".to_owned());
        }
        Ok(())
    }
}

/// The sending of a client that reports the chosen value.
const TELLING: u32 = u32::MAX;

fn new_proposer(voters: usize, quorum: usize) -> Proposer<Write> {
    Proposer::new(voters, quorum)
}

/// The values that reads of a quorum of these replicas, of those that are reached, can find.
fn reads(nodes: &[Node; NODES], replicas: &[usize], reached: u8) -> Vec<Rows> {
    let mut out = Vec::new();
    let quorum = replicas.len() / 2 + 1;
    for asked in 0u8..1 << NODES {
        let asks = |node: &usize| asked >> node & 1 == 1 && reached >> node & 1 == 1;
        let those: Vec<usize> = replicas.iter().copied().filter(asks).collect();
        if those.len() != quorum || asked.count_ones() as usize != quorum {
            continue;
        }
        let rows = those.iter().fold(Rows::default(), |rows, node| merge(rows, nodes[*node].rows));
        if !out.contains(&rows) {
            out.push(rows);
        }
    }
    out
}

/// The values that a read at SERIAL can find that reaches these nodes alone, and whose messages arrive in order.
fn serial_read(plan: &Plan, nodes: &mut [Node; NODES], version: u8, reached: u8) -> Vec<Rows> {
    let (all, quorum) = plan.shape.voters(version, plan.bug);
    let mut proposer = new_proposer(all.len(), quorum);
    let mut messages = VecDeque::new();
    let mut found = Vec::new();
    let mut micros = 1_000;
    let mut action = proposer.begin(Ballot { micros, node: 9 });
    loop {
        action = match action {
            Action::Wait => {
                let (sending, voter, request): (u32, usize, Request<Write>) =
                    messages.pop_front().expect("a quorum is there");
                let node = all[voter];
                let reply = (reached >> node & 1 == 1).then(|| nodes[node].vote(plan, false, request));
                proposer.reply(sending, voter, reply)
            }
            Action::Send { sending, to, request } => {
                messages.extend(to.into_iter().map(|voter| (sending, voter, request.clone())));
                Action::Wait
            }
            Action::Decide(_) => {
                found = reads(nodes, plan.shape.replicas(version), reached);
                proposer.decided(None)
            }
            Action::Again { above, .. } => {
                micros = above.micros + 2;
                proposer.begin(Ballot { micros, node: 9 })
            }
            Action::Nothing => return found,
            Action::Chosen(_) | Action::Failed(_) => panic!("a quorum is there, and nothing is proposed"),
        };
    }
}

/// Two lanes of a multiplicative hash: deterministic, and wide enough that no two states are taken for one.
struct Fingerprint([u64; 2]);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0[0] = (self.0[0].rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
        self.0[1] = (self.0[1] ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0[1] ^ self.0[1] >> 32
    }
}

#[derive(Debug, Default)]
struct Explored {
    states: usize,
    both_applied: usize,
    after_the_join: usize,
    found: Option<String>,
}

/// More states take too long.
const STATES_MAX: usize = 60_000_000;

/// Goes through every state that can be reached, depth first; ends at the first that is wrong.
fn explore(plan: Plan) -> Explored {
    let mut explored = Explored::default();
    let mut seen: HashSet<u128> = HashSet::default();
    let mut judged: HashSet<u128> = HashSet::default();
    let mut first = State::new();
    // The one that begins first is number one; with a join it begins before that.
    first.start(&plan, 0);
    if matches!(plan.shape, Shape::Replaces | Shape::Regains) {
        // It has promises: the other one and the change interfere with its proposal.
        first.deliver(&plan, 0, 0);
        first.deliver(&plan, 0, 0);
    }
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        if !seen.insert(state.fingerprint()) {
            continue;
        }
        explored.states += 1;
        assert!(explored.states < STATES_MAX, "there are too many states to go through");
        let outcomes = [state.clients[0].outcome, state.clients[1].outcome];
        explored.both_applied += usize::from(outcomes == [Outcome::Applied; 2]);
        explored.after_the_join += usize::from(state.version == 3);
        let mut hasher = Fingerprint([1, 2]);
        (&state.nodes, outcomes, state.version).hash(&mut hasher);
        if judged.insert(u128::from(hasher.0[0]) << 64 | u128::from(hasher.0[1]))
            && let Err(why) = state.judge(&plan)
        {
            explored.found = Some(format!("{why}\n{state:#?}"));
            return explored;
        }
        open.extend(state.next(&plan));
    }
    explored
}

fn plan(shape: Shape, bug: Bug) -> Plan {
    let power_failures = u8::from(shape == Shape::Fixed);
    Plan { bug, shape, rounds: [1, 1], continues: false, power_failures }
}

fn sound(plan: Plan) {
    let explored = explore(plan);
    println!(
        "{:?}: {} states, {} with both writes applied, {} after the change",
        plan.shape, explored.states, explored.both_applied, explored.after_the_join
    );
    assert_eq!(explored.found, None);
    assert!(explored.both_applied > 50, "{explored:?}");
    assert!(explored.after_the_join > 500 || plan.shape == Shape::Fixed, "{explored:?}");
}

#[test]
fn no_interleaving_with_a_join_loses_chosen_writes() {
    sound(plan(Shape::Replaces, Bug::None));
}

#[test]
fn no_interleaving_with_a_node_that_had_the_range_before_loses_chosen_writes() {
    sound(plan(Shape::Regains, Bug::None));
}

#[test]
fn no_interleaving_with_a_higher_replication_factor_loses_chosen_writes() {
    sound(plan(Shape::Grows, Bug::None));
}

#[test]
fn no_interleaving_with_a_power_failure_loses_chosen_writes() {
    sound(plan(Shape::Fixed, Bug::None));
}

#[test]
fn a_second_round_loses_nothing_while_the_replication_factor_is_raised() {
    sound(Plan { rounds: [2, 2], ..plan(Shape::Grows, Bug::None) });
}

#[test]
fn an_author_that_continues_by_a_newer_topology_version_writes_once() {
    sound(Plan { continues: true, rounds: [3, 2], ..plan(Shape::Moves, Bug::None) });
}

#[test]
#[ignore = "takes minutes; `./dev test --long` runs it"]
fn an_author_that_continues_while_a_replica_is_replaced_writes_once() {
    for shape in [Shape::Replaces, Shape::Regains] {
        sound(Plan { continues: true, rounds: [2, 1], ..plan(shape, Bug::None) });
    }
}

#[test]
#[ignore = "takes minutes; `./dev test --long` runs it"]
fn a_second_round_loses_nothing() {
    for shape in [Shape::Fixed, Shape::Replaces, Shape::Regains] {
        sound(Plan { rounds: [2, 1], ..plan(shape, Bug::None) });
    }
}

#[test]
fn injected_bugs_are_found() {
    let bugs = [
        (Shape::Replaces, Bug::NoFence),
        (Shape::Replaces, Bug::PendingNotAsked),
        (Shape::Replaces, Bug::StreamedBeforeFence),
        (Shape::Replaces, Bug::VotesNotCarried),
        (Shape::Regains, Bug::DroppedWithoutWait),
        (Shape::Grows, Bug::CommitsWithoutValues),
        (Shape::Fixed, Bug::UnfinishedIgnored),
        (Shape::Fixed, Bug::RepairNotSynced),
    ];
    let continues = Plan { continues: true, rounds: [3, 2], ..plan(Shape::Moves, Bug::OwnForgotten) };
    for plan in bugs.into_iter().map(|(shape, bug)| plan(shape, bug)).chain([continues]) {
        let (bug, explored) = (plan.bug, explore(plan));
        let found =
            explored.found.unwrap_or_else(|| panic!("{bug:?}: not found in {} states", explored.states));
        let what = found.lines().next().unwrap_or_default();
        println!("{bug:?}: after {} states: {what}", explored.states);
    }
}

/// Kept apart from similar outcomes.
#[test]
fn a_proposal_is_hashed_by_all_that_it_is() {
    let one = Proposal {
        ballot: Ballot { micros: 1, node: 1 },
        id: Ballot::NONE,
        after: Vec::new(),
        value: Some(1u8),
    };
    let prints = [one.clone(), Proposal { value: None, ..one.clone() }, Proposal { id: one.ballot, ..one }]
        .map(|proposal| {
            let mut hasher = Fingerprint([1, 2]);
            proposal.hash(&mut hasher);
            hasher.0
        });
    assert!(prints[0] != prints[1] && prints[1] != prints[2] && prints[0] != prints[2]);
}
