//! Calls of functions on one shard: compiled functions by definition, limits, and the slices of a call.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rt::Instant;
use rt::sync::Semaphore;
use schema::UserFunction;
use stdx::HashMap;
use types::CqlType;

use crate::error::{CallError, CompileError, ran_longer};
use crate::meter::{Limits, Meter, Slice, Slices, TimeSource};
use crate::{lua, wasm};

/// The longest source of a function, in bytes: it is part of the schema that every node holds.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Functions that a shard has compiled; one more, and all are forgotten.
const COMPILED_MAX: usize = 64;
/// Calls of a shard under way: each has its memory, also while it pauses. Others are queued.
pub(crate) const CALLS_MAX: usize = 32;
/// Instructions that a call may take for each millisecond of its limit.
const INSTRUCTIONS_PER_MS: u64 = 400_000;

/// A call that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The serialised result.
    pub value: Option<Bytes>,
    /// A warning for the client: the call took long.
    pub warning: Option<String>,
}

/// Runs functions on one shard.
pub struct Runtime {
    limits: RefCell<Rc<Limits>>,
    slices: Slices,
    clock: TimeSource,
    compiled: RefCell<HashMap<usize, Rc<Compiled>>>,
    /// Of [`CALLS_MAX`].
    turns: Semaphore,
}

/// A function as a shard runs it. It holds the definition, whose address is its key.
struct Compiled {
    definition: Arc<UserFunction>,
    code: Code,
}

/// The code of a function, by its language.
enum Code {
    Lua(lua::Pool),
    Wasm(wasm::Pool),
}

/// A call under way.
enum Call {
    Lua(Box<lua::Call>),
    Wasm(Box<wasm::Call>),
}

impl Code {
    fn new(language: &str) -> Self {
        match language {
            "wasm" => Self::Wasm(wasm::Pool::default()),
            _ => Self::Lua(lua::Pool::default()),
        }
    }

    fn begin(
        &self,
        function: &UserFunction,
        arguments: &[Option<Bytes>],
        limits: &Limits,
        meter: Rc<Meter>,
    ) -> Result<Call, String> {
        Ok(match self {
            Self::Lua(pool) => Call::Lua(Box::new(pool.begin(function, arguments, limits, meter)?)),
            Self::Wasm(pool) => Call::Wasm(Box::new(pool.begin(function, arguments, limits, meter)?)),
        })
    }

    /// Takes back the resources of a call that has succeeded.
    fn end(&self, call: Call) {
        match (self, call) {
            (Self::Lua(pool), Call::Lua(call)) => pool.end(*call),
            (Self::Wasm(pool), Call::Wasm(call)) => pool.end(*call),
            _ => {}
        }
    }
}

impl Call {
    fn resume(&mut self) -> Result<Slice, String> {
        match self {
            Self::Lua(call) => call.resume(),
            Self::Wasm(call) => call.resume(),
        }
    }
}

/// The language that runs the sources of a function, by the name after LANGUAGE.
///
/// # Errors
/// When functions of the language cannot be created.
pub fn language(name: &str) -> Result<(), CompileError> {
    match name {
        "lua" | "wasm" => Ok(()),
        "java" | "javascript" => Err(CompileError(format!(
            "User-defined functions in language {name} are not supported: there is no Java virtual machine here. Write the \
             function with LANGUAGE lua or wasm"
        ))),
        _ => Err(CompileError(format!(
            "User-defined functions in language {name} are not supported; supported languages: lua, wasm"
        ))),
    }
}

/// Checks the source of a function that is created.
///
/// # Errors
/// When the language is not supported, or the source is too long or no function of the language.
pub fn check(function: &UserFunction, limits: &Limits) -> Result<(), CompileError> {
    language(&function.language)?;
    if function.body.len() > BODY_BYTES_MAX {
        return Err(CompileError(format!(
            "The source of function '{}.{}' has {} bytes: at most {BODY_BYTES_MAX} are allowed",
            function.keyspace,
            function.name,
            function.body.len()
        )));
    }
    let failed = |detail: String| {
        CompileError(format!(
            "Failed to compile function '{}.{}' for language {}: {detail}",
            function.keyspace, function.name, function.language
        ))
    };
    match function.language.as_str() {
        "wasm" => wasm::check(function, limits),
        _ => lua::check(function, limits),
    }
    .map_err(failed)
}

impl Runtime {
    /// A runtime within these limits.
    pub fn new(limits: Limits, clock: TimeSource) -> Self {
        Self::with_slices(limits, clock, Slices::default())
    }

    /// A runtime whose calls yield when `slices` says.
    pub fn with_slices(limits: Limits, clock: TimeSource, slices: Slices) -> Self {
        Self {
            limits: RefCell::new(Rc::new(limits)),
            slices,
            clock,
            compiled: RefCell::default(),
            turns: Semaphore::new(CALLS_MAX),
        }
    }

    /// The present limits. A call keeps those that it began with.
    pub fn limits(&self) -> Rc<Limits> {
        self.limits.borrow().clone()
    }

    /// Changes the limits of the calls that begin from now on.
    pub fn set_limits(&self, limits: Limits) {
        if *self.limits.replace(Rc::new(limits.clone())) != limits {
            // Idle interpreters and instances have the memory of before.
            self.compiled.borrow_mut().clear();
        }
    }

    /// The present of the clock that calls are measured by.
    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Calls a function with serialised arguments. Other tasks of the shard run in between.
    ///
    /// # Errors
    /// When the function fails, takes too long or too much memory, or returns no value of its type.
    pub async fn call(
        &self,
        function: &Arc<UserFunction>,
        arguments: &[Option<Bytes>],
    ) -> Result<Called, CallError> {
        let is_null = |(value, ty): (&Option<Bytes>, &CqlType)| match value {
            None => true,
            Some(value) => value.is_empty() && !ty.empty_is_a_value(),
        };
        if !function.called_on_null_input && arguments.iter().zip(function.argument_types()).any(is_null) {
            return Ok(Called { value: None, warning: None });
        }
        // Nothing closes it. No call makes another, so one that waits keeps none from ending.
        let _turn = self.turns.acquire(1).await;
        let (compiled, limits) = (self.compiled(function), self.limits());
        let meter = Meter::new(self.clock.clone(), self.slices);
        let failed = |detail: String| CallError::failed(function, &detail);
        let mut call = compiled.code.begin(function, arguments, &limits, meter.clone()).map_err(failed)?;
        let (mut time, mut instructions) = (Duration::ZERO, 0_u64);
        let instructions_max = u64::try_from(limits.fail_after.as_millis())
            .unwrap_or(u64::MAX)
            .saturating_mul(INSTRUCTIONS_PER_MS);
        loop {
            let slice = call.resume();
            time += meter.time();
            instructions += meter.instructions();
            if let Slice::Done(value) = slice.map_err(failed)? {
                compiled.code.end(call);
                let slow = time > limits.warn_after && !limits.warn_after.is_zero();
                let warning = slow.then(|| ran_longer(function, limits.warn_after));
                return Ok(Called { value: value.map(Bytes::from), warning });
            }
            if time > limits.fail_after || instructions > instructions_max {
                return Err(CallError::too_long(function, limits.fail_after));
            }
            rt::preempt::yield_now().await;
            meter.begin_slice();
        }
    }

    fn compiled(&self, function: &Arc<UserFunction>) -> Rc<Compiled> {
        let key = Arc::as_ptr(function).addr();
        let mut all = self.compiled.borrow_mut();
        if let Some(compiled) = all.get(&key) {
            debug_assert!(Arc::ptr_eq(&compiled.definition, function));
            return compiled.clone();
        }
        if all.len() >= COMPILED_MAX {
            all.clear();
        }
        let compiled =
            Rc::new(Compiled { definition: function.clone(), code: Code::new(&function.language) });
        all.insert(key, compiled.clone());
        compiled
    }
}
