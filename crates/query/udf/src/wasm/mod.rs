//! Functions in WebAssembly, by ScyllaDB's binary interface (docs/design/udf.md): a fresh instance of the module for each call, unless
//! nothing that a call does can be seen by another.

mod abi;
mod call;
mod host;
mod program;
mod text;
mod wasi;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use schema::UserFunction;

use crate::meter::{Limits, Meter};
pub(crate) use call::Call;
use program::{Instance, Program};

/// Instances that a function's pool holds.
const POOLED_MAX: usize = 4;
/// An instance whose memory has more bytes is dropped after the call.
const POOLED_BYTES_MAX: usize = 256 << 10;

/// One function as a shard runs it.
#[derive(Default)]
pub(crate) struct Pool {
    program: OnceCell<Rc<Program>>,
    /// Instances in which calls leave no trace, and which no call uses.
    idle: RefCell<Vec<Instance>>,
}

/// Checks that a function's source is a module that exports the function.
pub(crate) fn check(function: &UserFunction, limits: &Limits) -> Result<(), String> {
    Program::new(function)?.instantiate(limits).map(drop)
}

impl Pool {
    /// Begins a call.
    pub(crate) fn begin(
        &self,
        function: &UserFunction,
        arguments: &[Option<Bytes>],
        limits: &Limits,
        meter: Rc<Meter>,
    ) -> Result<Call, String> {
        let program = match self.program.get() {
            Some(program) => program.clone(),
            None => {
                let program = Rc::new(Program::new(function)?);
                self.program.get_or_init(|| program).clone()
            }
        };
        let pooled = self.idle.borrow_mut().pop();
        let instance = match pooled {
            Some(instance) => instance,
            None => program.instantiate(limits)?,
        };
        Call::new(program, instance, function, arguments, meter)
    }

    /// Takes back the instance of a call that has succeeded.
    pub(crate) fn end(&self, call: Call) {
        let Some(instance) = call.into_reusable() else { return };
        let mut idle = self.idle.borrow_mut();
        if idle.len() < POOLED_MAX && instance.memory_bytes() <= POOLED_BYTES_MAX {
            idle.push(instance);
        }
    }
}
