//! Functions as expressions call them: the native ones of [`types::native`] with time and randomness from this shard,
//! `token`, which only the query layer can compute, and the first value of a group.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use schema::{Schema, Signature, UserAggregate, UserFunction};
use stdx::vint::write_unsigned;
use types::CqlType;
use types::native::{self, Environment, FunctionError};

use crate::backend::Clock;
use crate::error::{ExecError, Result};
use crate::text_functions::{Relevance, TextFunction};

/// Makes version 1 UUIDs that are never equal on this shard.
pub struct TimeUuids {
    last_ticks: Cell<i64>,
    first_ticks: Cell<i64>,
    clock_and_node: u64,
}

impl TimeUuids {
    /// A source whose UUIDs carry clock sequence and node bits made of these random bytes.
    pub fn new(random: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = random;
        let sequence = u16::from_be_bytes([a, b]);
        // The multicast bit marks a node number that is no network card's.
        let node = u64::from_be_bytes([0, 0, c | 1, d, e, f, g, h]);
        Self {
            last_ticks: Cell::new(0),
            first_ticks: Cell::new(i64::MAX),
            clock_and_node: types::uuid::clock_and_node(sequence, node),
        }
    }

    /// A UUID of this time, or just after the last one.
    pub fn next(&self, wall_micros: i64) -> [u8; 16] {
        let ticks = wall_micros.saturating_mul(10).max(self.last_ticks.get() + 1);
        self.last_ticks.set(ticks);
        types::uuid::time_uuid(ticks, self.clock_and_node)
    }

    /// A UUID before all that this has given out: paths of elements that are put in front of a list. Its time lies as
    /// far before the start of 2010 as now lies behind it, so that elements put in front later come first.
    pub fn before(&self, wall_micros: i64) -> [u8; 16] {
        let mirrored = REFERENCE_TICKS.saturating_mul(2).saturating_sub(wall_micros.saturating_mul(10));
        let ticks = mirrored.min(self.first_ticks.get() - 1);
        self.first_ticks.set(ticks);
        types::uuid::time_uuid(ticks, self.clock_and_node)
    }
}

/// 2010-01-01 in ticks of 100 ns since the epoch.
const REFERENCE_TICKS: i64 = 1_262_304_000 * 10_000_000;

/// The services that functions may ask for beside their arguments.
pub struct CallContext {
    /// Time and randomness.
    pub clock: Rc<dyn Clock>,
    /// The source of `now()`.
    pub uuids: Rc<TimeUuids>,
    /// The search whose rows are shown.
    relevance: Option<Rc<Relevance>>,
    /// The cost of calls since a loop last took it, in steps of its [`rt::preempt::Pace`].
    steps: Cell<usize>,
}

/// Bytes of arguments that cost about as much as one row of a loop.
const BYTES_PER_STEP: usize = 4096;

impl CallContext {
    /// A context for the functions of a shard.
    pub fn new(clock: Rc<dyn Clock>, uuids: Rc<TimeUuids>) -> Self {
        Self { clock, uuids, relevance: None, steps: Cell::new(0) }
    }

    /// The same for the rows of a search.
    pub fn of_search(&self, relevance: Relevance) -> Self {
        let relevance = Some(Rc::new(relevance));
        Self { clock: self.clock.clone(), uuids: self.uuids.clone(), relevance, steps: Cell::new(0) }
    }

    /// Counts the cost of a call with so many bytes of arguments.
    fn count_call(&self, bytes: usize) {
        self.steps.set(self.steps.get().saturating_add(1 + bytes / BYTES_PER_STEP));
    }

    /// The steps that calls have cost since this was asked. A loop over rows counts them beside its own, so that functions
    /// that take long make it yield after fewer rows.
    #[inline]
    pub fn take_steps(&self) -> usize {
        self.steps.take()
    }

    /// A fresh version 1 UUID.
    pub fn time_uuid(&self) -> [u8; 16] {
        self.uuids.next(self.clock.wall_micros())
    }
}

/// The environment of native functions: a call context.
struct NativeEnvironment<'a>(&'a CallContext);

impl Environment for NativeEnvironment<'_> {
    fn now_ms(&mut self) -> i64 {
        self.0.clock.wall_micros().div_euclid(1000)
    }

    fn time_uuid(&mut self) -> [u8; 16] {
        self.0.time_uuid()
    }

    fn random_uuid(&mut self) -> [u8; 16] {
        types::uuid::random_uuid(self.0.clock.random())
    }
}

impl From<FunctionError> for ExecError {
    fn from(error: FunctionError) -> Self {
        match error {
            FunctionError::Invalid(text) => ExecError::Invalid(text),
            FunctionError::Failed { function, argument_types, message } => {
                let keyspace = "system".to_owned();
                ExecError::FunctionFailure { keyspace, function, arguments: argument_types, message }
            }
        }
    }
}

/// A scalar function with one signature.
#[derive(Clone, Debug)]
pub enum Function {
    /// One of the types' own.
    Native(native::Function),
    /// `token` of a table's partition key.
    Token(Vec<CqlType>),
    /// One of the texts of an index of full text.
    Text(TextFunction),
    /// A user's.
    User(User),
}

/// A user-defined function in an expression.
#[derive(Clone, Debug)]
pub struct User {
    /// The function.
    pub definition: Arc<UserFunction>,
    /// Types of its arguments.
    pub types: Vec<CqlType>,
}

impl Function {
    /// `system.abs`
    pub fn full_name(&self) -> String {
        match self {
            Self::Native(function) => function.full_name(),
            Self::Token(_) => "system.token".to_owned(),
            Self::Text(function) => function.full_name().to_owned(),
            Self::User(user) => format!("{}.{}", user.definition.keyspace, user.definition.name),
        }
    }

    /// Whether it may wait, and so cannot be [called](Function::call).
    pub fn is_user_defined(&self) -> bool {
        matches!(self, Self::User(_))
    }

    /// Types of its arguments.
    pub fn arguments(&self) -> &[CqlType] {
        match self {
            Self::Native(function) => &function.arguments,
            Self::Token(types) => types,
            Self::Text(function) => function.arguments(),
            Self::User(user) => &user.types,
        }
    }

    /// Type of its result.
    pub fn returns(&self) -> &CqlType {
        match self {
            Self::Native(function) => &function.returns,
            Self::Token(_) => &CqlType::Bigint,
            Self::Text(function) => function.returns(),
            Self::User(user) => &user.definition.returns,
        }
    }

    /// Its value for these arguments.
    ///
    /// # Errors
    /// [`ExecError::FunctionFailure`] when the function has no result for its arguments; [`ExecError::Invalid`] when a
    /// part of a token's key is too long, or the function is user-defined.
    pub fn call(&self, context: &CallContext, args: &[Option<Bytes>]) -> Result<Option<Bytes>> {
        let args: smallvec::SmallVec<[Option<&[u8]>; 4]> = args.iter().map(|arg| arg.as_deref()).collect();
        context.count_call(args.iter().copied().flatten().map(<[u8]>::len).sum());
        match self {
            Self::Native(function) => {
                Ok(function.execute(&args, &mut NativeEnvironment(context))?.map(Bytes::from))
            }
            Self::Token(_) => {
                let parts: smallvec::SmallVec<[&[u8]; 4]> = args.iter().copied().flatten().collect();
                if parts.len() != args.len() {
                    // As Cassandra: the token of an invalid key is null.
                    return Ok(None);
                }
                // The parts of a composite key have lengths of 16 bits.
                if parts.len() > 1 {
                    parts.iter().try_for_each(|part| crate::keys::check_component(part.len()))?;
                }
                let key = mutation::DecoratedKey::compose(&parts);
                // No partition has an empty key, and the token of one is before everything, as in Cassandra.
                let token = if key.is_empty() { i64::MIN } else { stdx::murmur3::token(&key) };
                Ok(Some(Bytes::copy_from_slice(&token.to_be_bytes())))
            }
            Self::Text(function) => function.call(context.relevance.as_deref(), &args),
            Self::User(user) => Err(ExecError::Invalid(format!(
                "User-defined function {}.{} cannot be called here",
                user.definition.keyspace, user.definition.name
            ))),
        }
    }
}

/// Which aggregate is computed over a group.
#[derive(Clone, Debug)]
pub enum Aggregate {
    /// `count(*)`
    CountRows,
    /// A native aggregate of one argument.
    Native(native::Function),
    /// The value of the group's first row: for a plain column among aggregates.
    First,
    /// A user's.
    User(Rc<UserAggregation>),
}

/// A user-defined aggregate with the functions that it calls.
#[derive(Debug)]
pub struct UserAggregation {
    /// The aggregate.
    pub definition: Arc<UserAggregate>,
    /// Adds a row.
    pub adds: Arc<UserFunction>,
    /// Merges two states.
    pub merges: Option<Arc<UserFunction>>,
    /// Makes the result of the last state.
    pub ends: Option<Arc<UserFunction>>,
    /// The first state.
    pub initial: Option<Bytes>,
}

impl UserAggregation {
    /// Finds an aggregate's functions; `initial` is the value of its INITCOND.
    ///
    /// # Errors
    /// When one is gone.
    pub fn new(definition: Arc<UserAggregate>, initial: Option<Bytes>, schema: &Schema) -> Result<Self> {
        let find = |signature: Signature| {
            let home = schema.keyspace(&definition.keyspace);
            let found = home.and_then(|home| home.functions.get(&signature).cloned());
            let missing = || ExecError::Invalid(format!("Function '{}' doesn't exist", signature.name));
            found.ok_or_else(missing)
        };
        let state = || std::iter::once(&definition.state_type);
        let adds = find(Signature::new(&definition.state_function, state().chain(&definition.arguments)))?;
        let merges = definition.reduce_function.as_ref();
        let merges = merges.map(|name| find(Signature::new(name, state().chain(state())))).transpose()?;
        let ends = definition.final_function.as_ref().map(|name| find(Signature::new(name, state())));
        let ends = ends.transpose()?;
        Ok(Self { adds, merges, ends, initial, definition })
    }
}

/// An aggregate under way.
#[derive(Clone, Debug)]
pub enum AggregateState {
    /// Rows so far.
    CountRows(i64),
    /// A native aggregate's state.
    Native(native::Aggregate),
    /// The first row's value, once there is one.
    First(Option<Option<Bytes>>),
    /// Of a part of the rows, the values that are added where the other parts' are, because the result depends on their order: each with a vint
    /// length. Nulls are left out, which change no sum.
    Values(Vec<u8>),
    /// The state of a user's aggregate, which is changed where calls may wait; after the last row, the result.
    User(Rc<UserAggregation>, Option<Bytes>),
}

impl AggregateState {
    /// Nothing added yet.
    pub fn new(aggregate: &Aggregate) -> Self {
        match aggregate {
            Aggregate::CountRows => Self::CountRows(0),
            Aggregate::Native(function) => {
                Self::Native(function.aggregate().expect("an aggregate was resolved as one"))
            }
            Aggregate::First => Self::First(None),
            Aggregate::User(user) => Self::User(user.clone(), user.initial.clone()),
        }
    }

    /// Nothing added yet, over a part of the rows.
    ///
    /// # Panics
    /// Of a user's aggregate.
    pub fn of_part(aggregate: &Aggregate) -> Self {
        match Self::new(aggregate) {
            Self::Native(native) if !native.merges() => Self::Values(Vec::new()),
            Self::User(..) => panic!("the states of users' aggregates are not sent"),
            state => state,
        }
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        match self {
            Self::CountRows(count) => *count = 0,
            Self::Native(aggregate) => aggregate.reset(),
            Self::First(first) => *first = None,
            Self::Values(values) => values.clear(),
            Self::User(user, state) => state.clone_from(&user.initial),
        }
    }

    /// Adds a row's value.
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when a value to be summed is no number, [`ExecError::FunctionFailure`] when a sum of
    /// decimals takes too many digits.
    pub fn add(&mut self, value: Option<Bytes>) -> Result<()> {
        match self {
            Self::CountRows(count) => *count += 1,
            Self::Native(aggregate) => aggregate.add(value.as_deref())?,
            Self::First(first) => {
                first.get_or_insert(value);
            }
            Self::Values(values) => {
                if let Some(value) = value {
                    write_unsigned(value.len() as u64, values);
                    values.extend_from_slice(&value);
                }
            }
            Self::User(..) => {}
        }
        Ok(())
    }

    /// Bytes of the value that it holds.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::CountRows(_) => 0,
            Self::Native(aggregate) => aggregate.held_bytes(),
            Self::First(first) => first.as_ref().and_then(Option::as_ref).map_or(0, Bytes::len),
            Self::Values(values) => values.len(),
            Self::User(_, state) => state.as_ref().map_or(0, Bytes::len),
        }
    }

    /// The result over the added values.
    ///
    /// # Errors
    /// None today: [`AggregateState::add`] refuses values that cannot be summed.
    pub fn result(&self) -> Result<Option<Bytes>> {
        match self {
            Self::CountRows(count) => Ok(Some(Bytes::copy_from_slice(&count.to_be_bytes()))),
            Self::Native(aggregate) => Ok(aggregate.result()?.map(Bytes::from)),
            Self::First(first) => Ok(first.clone().flatten()),
            Self::Values(_) => panic!("values of a part are added to a state first"),
            Self::User(_, state) => Ok(state.clone()),
        }
    }
}
