//! A call under way: the module's functions one after another, each in pieces of fuel.

use std::rc::Rc;

use bytes::Bytes;
use schema::UserFunction;
use types::CqlType;
use wasmi::{Func, ResumableCall, ResumableCallOutOfFuel, Val};

use super::abi::{self, Form};
use super::program::{Allocation, Instance, Program};
use super::text::detail;
use crate::meter::{Meter, Slice};

/// Fuel that stands for an instruction of the limits, which are made for Lua: an interpreter of WebAssembly uses up about 1.4 million a
/// millisecond.
const FUEL_PER_INSTRUCTION: u64 = 8;
/// Fuel between two looks at the clock, for each instruction that Lua runs between two.
const FUEL_PER_LOOK: u64 = 100;
/// Bytes of a page of memory.
const PAGE_BYTES: usize = 64 << 10;

/// A call under way.
pub(crate) struct Call {
    program: Rc<Program>,
    instance: Instance,
    meter: Rc<Meter>,
    types: Vec<CqlType>,
    returns: CqlType,
    arguments: Vec<Option<Bytes>>,
    /// The arguments that are ready.
    inputs: Vec<Val>,
    step: Step,
    running: Option<Running>,
    outputs: Vec<Val>,
}

/// Which function of the module runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Initialize,
    /// The allocation of the next argument.
    Allocate,
    Function,
}

/// A function of the module that has not returned.
enum Running {
    Begins(Func, Vec<Val>),
    Paused(Box<ResumableCallOutOfFuel>),
}

impl Call {
    pub(super) fn new(
        program: Rc<Program>,
        instance: Instance,
        function: &UserFunction,
        arguments: &[Option<Bytes>],
        meter: Rc<Meter>,
    ) -> Result<Self, String> {
        let mut call = Self {
            types: function.argument_types().cloned().collect(),
            returns: function.returns.clone(),
            arguments: arguments.to_vec(),
            inputs: Vec::with_capacity(arguments.len()),
            step: Step::Initialize,
            running: None,
            outputs: Vec::new(),
            program,
            instance,
            meter,
        };
        match call.instance.initialize.take() {
            Some(initialize) => call.begin(Step::Initialize, initialize, Vec::new()),
            None => call.next_argument()?,
        }
        Ok(call)
    }

    /// The instance, if another call may use it.
    pub(super) fn into_reusable(self) -> Option<Instance> {
        self.program.is_reusable.then_some(self.instance)
    }

    fn begin(&mut self, step: Step, function: Func, inputs: Vec<Val>) {
        let results = usize::from(step != Step::Initialize);
        self.outputs = vec![Val::I32(0); results];
        self.step = step;
        self.running = Some(Running::Begins(function, inputs));
    }

    /// Makes arguments ready until the module has to allocate memory for one; then, or after the last, a function of the module runs.
    fn next_argument(&mut self) -> Result<(), String> {
        while let Some(value) = self.arguments.get(self.inputs.len()) {
            let at = self.inputs.len();
            let ty = &self.types[at];
            let value = abi::as_passed(ty, value).cloned();
            let input = match (self.program.arguments[at], value) {
                (Form::Native(_), value) => {
                    let native = value.and_then(|value| abi::native(ty, &value));
                    native.ok_or_else(|| format!("argument {at} is no value of {}", ty.cql_name()))?
                }
                (Form::Serialised, None) => abi::place(None),
                (Form::Serialised, Some(value)) => match self.instance.allocation {
                    Allocation::Malloc(malloc) => {
                        let size = i32::try_from(value.len()).map_err(detail)?;
                        self.begin(Step::Allocate, malloc, vec![Val::I32(size)]);
                        return Ok(());
                    }
                    Allocation::Grow => {
                        let address = self.grow(value.len())?;
                        self.write(address, &value)?
                    }
                },
            };
            self.inputs.push(input);
        }
        let inputs = std::mem::take(&mut self.inputs);
        self.begin(Step::Function, self.instance.function, inputs);
        Ok(())
    }

    /// Grows the memory by so many bytes at least; where they begin.
    fn grow(&mut self, len: usize) -> Result<u32, String> {
        let Instance { store, memory, .. } = &mut self.instance;
        let before = memory.data(&*store).len();
        let pages = len.div_ceil(PAGE_BYTES) as u64;
        memory
            .grow(&mut *store, pages)
            .map_err(|_| format!("not enough memory for an argument of {len} bytes beside {before}"))?;
        u32::try_from(before).map_err(detail)
    }

    /// Writes an argument to the memory that it was given; its place.
    fn write(&mut self, address: u32, value: &[u8]) -> Result<Val, String> {
        let Instance { store, memory, .. } = &mut self.instance;
        let written = memory.write(&mut *store, address as usize, value);
        written.map_err(|_| {
            format!(
                "memory for an argument of {} bytes was allocated at address {address}, outside of the memory",
                value.len()
            )
        })?;
        Ok(abi::place(Some((address, value.len()))))
    }

    /// Runs until the slice is over.
    pub(crate) fn resume(&mut self) -> Result<Slice, String> {
        while self.advance()? {
            match self.step {
                Step::Initialize => self.next_argument()?,
                Step::Allocate => {
                    let Some(Val::I32(address)) = self.outputs.first() else {
                        return Err("memory was not allocated".to_owned());
                    };
                    let (address, at) = (*address as u32, self.inputs.len());
                    let value = self.arguments[at].clone().unwrap_or_default();
                    let place = self.write(address, &value)?;
                    self.inputs.push(place);
                    self.next_argument()?;
                }
                Step::Function => return self.result().map(Slice::Done),
            }
        }
        Ok(Slice::Yielded)
    }

    fn result(&self) -> Result<Option<Vec<u8>>, String> {
        let value = self.outputs.first().ok_or("returned nothing")?;
        match self.program.returns {
            Form::Native(_) => abi::serialise(&self.returns, value).map(Some),
            Form::Serialised => {
                abi::value_at(&self.returns, value, self.instance.memory.data(&self.instance.store))
            }
        }
    }

    /// Runs the module's function that is under way; false when the slice is over before it returns.
    fn advance(&mut self) -> Result<bool, String> {
        let mut fuel = FUEL_PER_LOOK * u64::from(self.meter.slices().instructions_per_look);
        while let Some(running) = self.running.take() {
            let store = &mut self.instance.store;
            store.set_fuel(fuel).map_err(detail)?;
            let called = match running {
                Running::Begins(function, inputs) => {
                    function.call_resumable(&mut *store, &inputs, &mut self.outputs)
                }
                Running::Paused(paused) => paused.resume(&mut *store, &mut self.outputs),
            };
            let used = fuel - store.get_fuel().map_err(detail)?.min(fuel);
            let is_over = self.meter.count(used.div_ceil(FUEL_PER_INSTRUCTION));
            match called.map_err(detail)? {
                ResumableCall::Finished => return Ok(true),
                ResumableCall::HostTrap(trap) => return Err(detail(trap.host_error())),
                ResumableCall::OutOfFuel(paused) => {
                    // The next instruction may cost more than a piece.
                    fuel = fuel.max(paused.required_fuel());
                    self.running = Some(Running::Paused(Box::new(paused)));
                    if is_over {
                        return Ok(false);
                    }
                }
            }
        }
        Err("nothing runs".to_owned())
    }
}
