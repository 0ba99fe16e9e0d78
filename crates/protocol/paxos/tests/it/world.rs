//! A world of voters and clients in which chance decides the next step. The clients' observations are a history, to be checked.

use model::linear::{NEVER, Operation, RegisterInput, RegisterOutput};
use paxos::{AcceptorState, Action, Ballot, BallotClock, Proposal, Proposer, Reply, Request, step};

/// Random numbers: xorshift, from a seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    pub fn one_in(&mut self, odds: usize) -> bool {
        odds > 0 && self.below(odds) == 0
    }
}

/// Bugs that the judge must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    None,
    /// A voter that crashes has forgotten its promises.
    PromiseNotStored,
    /// Proposers do not learn of unfinished proposals of others.
    UnfinishedIgnored,
    /// A read, or a condition that does not hold, is answered without anything being proposed.
    NothingProposed,
    /// A voter that is given the last commit answers before it is on disk.
    RepairNotSynced,
}

/// How rough the world is.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub voters: usize,
    pub clients: usize,
    pub operations: usize,
    /// One message in so many is lost; 0 for none.
    pub lost: usize,
    /// One in so many arrives twice.
    pub doubled: usize,
    /// One step in so many crashes a voter.
    pub crashes: usize,
    /// One step in so many, a client gives up.
    pub impatience: usize,
    pub bug: Bug,
}

/// A write: the value of the register from a time on.
type Write = (Ballot, Option<i64>);

struct Voter {
    state: AcceptorState<Write>,
    /// The partition: of all writes the one with the latest time.
    data: Write,
    /// The state that a power failure leaves of both.
    stored: (AcceptorState<Write>, Write),
}

#[derive(Clone)]
enum Message {
    Ask { client: usize, task: u64, sending: u32, voter: usize, request: Request<Write> },
    Answer { client: usize, task: u64, sending: u32, voter: usize, reply: Reply<Write> },
    ReadAsk { client: usize, task: u64, round: Ballot, voter: usize },
    ReadAnswer { client: usize, task: u64, round: Ballot, voter: usize, data: Write },
}

struct Client {
    clock: BallotClock,
    proposer: Option<Proposer<Write>>,
    /// The number of its operation: later replies are dropped.
    task: u64,
    /// Place of its operation in the history.
    operation: usize,
    input: RegisterInput,
    /// The result of the last read, with the voters that answered.
    read: Option<(Ballot, Vec<usize>, Write)>,
    /// The result, once it was decided.
    found: Option<i64>,
    /// A new round is due above this.
    again: Option<Ballot>,
}

pub struct World {
    scenario: Scenario,
    chance: Chance,
    now: u64,
    voters: Vec<Voter>,
    clients: Vec<Client>,
    messages: Vec<Message>,
    tasks: u64,
    pub history: Vec<Operation<RegisterInput, RegisterOutput>>,
    /// When operations failed of which it is not known whether they happen.
    unsettled: Vec<(u64, usize)>,
    /// Rounds that others got in the way of.
    pub contended: usize,
}

const MEMORY_MICROS: i64 = 1 << 40;

impl World {
    pub fn new(seed: u64, scenario: Scenario) -> Self {
        let voter = |_| Voter {
            state: AcceptorState::default(),
            data: (Ballot::NONE, None),
            stored: (AcceptorState::default(), (Ballot::NONE, None)),
        };
        let client = |at: usize| Client {
            clock: BallotClock::new(at as u64 + 1),
            proposer: None,
            task: 0,
            operation: 0,
            input: RegisterInput::Read,
            read: None,
            found: None,
            again: None,
        };
        Self {
            scenario,
            chance: Chance::new(seed),
            now: 1,
            voters: (0..scenario.voters).map(voter).collect(),
            clients: (0..scenario.clients).map(client).collect(),
            messages: Vec::new(),
            tasks: 0,
            history: Vec::new(),
            unsettled: Vec::new(),
            contended: 0,
        }
    }

    fn quorum(&self) -> usize {
        self.scenario.voters / 2 + 1
    }

    /// Runs until all operations have ended.
    pub fn run(&mut self) {
        let mut steps = 0;
        loop {
            steps += 1;
            self.now += 1;
            let begun = self.history.len();
            let idle: Vec<usize> =
                (0..self.clients.len()).filter(|at| self.clients[*at].proposer.is_none()).collect();
            if idle.len() == self.clients.len() && begun >= self.scenario.operations {
                return;
            }
            assert!(steps < 2_000_000, "the world does not come to an end");
            if self.chance.one_in(self.scenario.crashes) {
                self.crash();
            }
            if self.chance.one_in(self.scenario.impatience) {
                let client = self.chance.below(self.clients.len());
                self.give_up(client);
            }
            if !idle.is_empty() && begun < self.scenario.operations && self.chance.one_in(4) {
                let client = idle[self.chance.below(idle.len())];
                self.begin(client);
            } else if self.messages.is_empty() || self.chance.one_in(8) {
                self.wake();
            } else {
                let at = self.chance.below(self.messages.len());
                // A proposal arrives once at most: the network has to ensure it.
                let once = matches!(&self.messages[at], Message::Ask { request: Request::Propose(_), .. });
                let message = if !once && self.chance.one_in(self.scenario.doubled) {
                    self.messages[at].clone()
                } else {
                    self.messages.swap_remove(at)
                };
                if !self.chance.one_in(self.scenario.lost) {
                    self.deliver(message);
                }
            }
        }
    }

    fn crash(&mut self) {
        let at = self.chance.below(self.voters.len());
        let voter = &mut self.voters[at];
        (voter.state, voter.data) = voter.stored.clone();
    }

    /// A client whose pause has ended resumes; without any, one of those that wait for lost messages gives up.
    fn wake(&mut self) {
        let waiting: Vec<usize> =
            (0..self.clients.len()).filter(|at| self.clients[*at].again.is_some()).collect();
        if !waiting.is_empty() {
            let client = waiting[self.chance.below(waiting.len())];
            let above = self.clients[client].again.take().unwrap();
            self.round(client, above);
        } else if self.messages.is_empty() {
            let busy = (0..self.clients.len()).find(|at| self.clients[*at].proposer.is_some());
            if let Some(client) = busy {
                self.give_up(client);
            }
        }
    }

    fn begin(&mut self, client: usize) {
        let number = self.history.len() as i64;
        let value = |chance: &mut Chance, recent: i64| match chance.below(3) {
            0 => None,
            _ => Some(chance.below(recent.max(1) as usize + 1) as i64),
        };
        let input = match self.chance.below(3) {
            0 => RegisterInput::Read,
            _ => {
                // Mostly the present value, so that many are applied.
                let held = self.voters[self.chance.below(self.scenario.voters)].data.1;
                let guess = value(&mut self.chance, number);
                let expected = if self.chance.one_in(4) { guess } else { held };
                RegisterInput::Cas { expected, new: Some(number) }
            }
        };
        self.tasks += 1;
        let quorum = self.quorum();
        let one = &mut self.clients[client];
        one.task = self.tasks;
        one.operation = self.history.len();
        one.input = input.clone();
        one.proposer = Some(Proposer::new(self.scenario.voters, quorum));
        self.history.push(Operation { invoked: self.now, ended: NEVER, input, output: None });
        self.round(client, Ballot::NONE);
    }

    fn round(&mut self, client: usize, above: Ballot) {
        // Every client's clock is wrong in its own way.
        let now = self.now as i64 + (client as i64 - 1) * 50;
        let one = &mut self.clients[client];
        let Some(proposer) = &mut one.proposer else { return };
        let action = proposer.begin(one.clock.next(now.max(1), above));
        self.carry_out(client, action);
    }

    fn give_up(&mut self, client: usize) {
        if let Some(mut proposer) = self.clients[client].proposer.take() {
            let failure = proposer.expire();
            self.fail(client, failure.uncertain);
        }
    }

    /// An operation that is certain not to have happened is taken out of the history.
    fn fail(&mut self, client: usize, uncertain: bool) {
        let one = &mut self.clients[client];
        one.proposer = None;
        one.again = None;
        if uncertain {
            self.unsettled.push((self.now, one.operation));
        } else {
            self.history[one.operation].input = RegisterInput::Read;
        }
    }

    fn end(&mut self, client: usize, output: RegisterOutput) {
        let one = &mut self.clients[client];
        one.proposer = None;
        one.again = None;
        let ended = &mut self.history[one.operation];
        ended.output = Some(output);
        ended.ended = self.now;
        // A later request that was answered has settled the uncertain ones before it.
        let (invoked, now) = (ended.invoked, self.now);
        let history = &mut self.history;
        self.unsettled.retain(|(failed, operation)| {
            let settled = *failed < invoked;
            if settled {
                history[*operation].ended = now;
            }
            !settled
        });
    }

    fn carry_out(&mut self, client: usize, action: Action<Write>) {
        let task = self.clients[client].task;
        match action {
            Action::Wait => {}
            Action::Send { sending, to, request } => {
                for voter in to {
                    let request = request.clone();
                    self.messages.push(Message::Ask { client, task, sending, voter, request });
                }
            }
            Action::Decide(round) => {
                self.clients[client].read = Some((round, Vec::new(), (Ballot::NONE, None)));
                for voter in 0..self.scenario.voters {
                    self.messages.push(Message::ReadAsk { client, task, round, voter });
                }
            }
            Action::Again { above, contended } => {
                self.contended += usize::from(contended);
                self.clients[client].again = Some(above);
            }
            Action::Chosen(proposal) => self.chosen(client, &proposal),
            Action::Nothing => {
                let found = self.clients[client].found;
                let output = match self.clients[client].input {
                    RegisterInput::Read => RegisterOutput::Value(found),
                    _ => RegisterOutput::Refused(found),
                };
                self.end(client, output);
            }
            Action::Failed(failure) => self.fail(client, failure.uncertain),
        }
    }

    /// A commit goes to all voters; chance decides which receive it, and the client does not wait.
    fn chosen(&mut self, client: usize, proposal: &Proposal<Write>) {
        let task = self.clients[client].task;
        for voter in 0..self.scenario.voters {
            let request = Request::Commit(proposal.clone());
            self.messages.push(Message::Ask { client, task, sending: u32::MAX, voter, request });
        }
        self.end(client, RegisterOutput::Applied(true));
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Ask { client, task, sending, voter, request } => {
                let reply = self.vote(voter, request);
                self.messages.push(Message::Answer { client, task, sending, voter, reply });
            }
            Message::ReadAsk { client, task, round, voter } => {
                let data = self.voters[voter].data;
                self.messages.push(Message::ReadAnswer { client, task, round, voter, data });
            }
            Message::Answer { client, task, sending, voter, reply } => {
                let one = &mut self.clients[client];
                let Some(proposer) = one.proposer.as_mut().filter(|_| one.task == task) else { return };
                let reply = match reply {
                    Reply::Promised { committed, .. } if self.scenario.bug == Bug::UnfinishedIgnored => {
                        Reply::Promised { accepted: None, committed }
                    }
                    other => other,
                };
                let action = proposer.reply(sending, voter, Some(reply));
                self.carry_out(client, action);
            }
            Message::ReadAnswer { client, task, round, voter, data } => {
                self.read_answer(client, task, round, (voter, data));
            }
        }
    }

    fn vote(&mut self, at: usize, request: Request<Write>) -> Reply<Write> {
        let syncs = match (&request, self.scenario.bug) {
            (Request::Prepare(_), Bug::PromiseNotStored) | (Request::Repair(_), Bug::RepairNotSynced) => {
                false
            }
            // The log is synced later, or with the next vote that is.
            (Request::Commit(_), _) => false,
            _ => true,
        };
        let voter = &mut self.voters[at];
        let step = step(&voter.state, request, self.now as i64, MEMORY_MICROS);
        let changed = step.state.is_some() || step.apply.is_some();
        if let Some(state) = step.state {
            voter.state = state;
        }
        if let Some(write) = step.apply {
            voter.data = voter.data.max(write);
        }
        if syncs && changed {
            voter.stored = (voter.state.clone(), voter.data);
        }
        step.reply
    }

    fn read_answer(&mut self, client: usize, task: u64, round: Ballot, (voter, data): (usize, Write)) {
        let quorum = self.quorum();
        let bug = self.scenario.bug;
        let one = &mut self.clients[client];
        if one.task != task || one.proposer.is_none() {
            return;
        }
        let Some((asked, heard, latest)) = &mut one.read else { return };
        if *asked != round || heard.contains(&voter) {
            return;
        }
        heard.push(voter);
        *latest = (*latest).max(data);
        if heard.len() < quorum {
            return;
        }
        let found = latest.1;
        one.read = None;
        one.found = found;
        let write = match &one.input {
            RegisterInput::Cas { expected, new } if *expected == found => Some((round, *new)),
            _ => None,
        };
        let action = match (write, bug) {
            (None, Bug::NothingProposed) => Action::Nothing,
            _ => one.proposer.as_mut().unwrap().decided(write),
        };
        self.carry_out(client, action);
    }
}
