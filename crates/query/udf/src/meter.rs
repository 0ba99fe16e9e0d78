//! The limits of a call, the slices in which it runs, and its use of both.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rt::Instant;

/// Limits of calls; each by its name in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `user_defined_functions_enabled`
    pub enabled: bool,
    /// `user_defined_functions_fail_timeout`: the time of a call on its shard, without that of other tasks between its slices.
    pub fail_after: Duration,
    /// `user_defined_functions_warn_timeout`
    pub warn_after: Duration,
    /// `user_defined_function_allocation_limit_bytes`: the memory of a call in Lua.
    pub memory_bytes: usize,
    /// `wasm_udf_memory_limit`: the linear memory of a call in WebAssembly.
    pub wasm_memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            enabled: false,
            fail_after: Duration::from_millis(1500),
            warn_after: Duration::from_millis(500),
            memory_bytes: 1 << 20,
            wasm_memory_bytes: 2 << 20,
        }
    }
}

/// When a call yields to the other tasks of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// Instructions between two looks at the clock.
    pub instructions_per_look: u32,
    /// Instructions of a slice: they end it where the clock stands still, as in the simulator.
    pub instructions: u64,
    /// How long a slice takes.
    pub time: Duration,
}

impl Default for Slices {
    fn default() -> Self {
        Self { instructions_per_look: 100, instructions: 50_000, time: Duration::from_micros(500) }
    }
}

/// The clock of the shard.
pub type TimeSource = Rc<dyn Fn() -> Instant>;

/// Result of a slice of a call.
pub(crate) enum Slice {
    /// The call continues.
    Yielded,
    /// The result.
    Done(Option<Vec<u8>>),
}

/// The use of a call: shared with the hook that ends its slices.
pub(crate) struct Meter {
    clock: TimeSource,
    slices: Slices,
    began: Cell<Instant>,
    /// Instructions of the slice.
    instructions: Cell<u64>,
}

impl Meter {
    pub(crate) fn new(clock: TimeSource, slices: Slices) -> Rc<Self> {
        let began = Cell::new(clock());
        Rc::new(Self { clock, slices, began, instructions: Cell::new(0) })
    }

    pub(crate) fn slices(&self) -> Slices {
        self.slices
    }

    /// Instructions of the slice so far.
    pub(crate) fn instructions(&self) -> u64 {
        self.instructions.get()
    }

    /// Counts instructions; whether the slice is over.
    pub(crate) fn count(&self, instructions: u64) -> bool {
        self.instructions.set(self.instructions.get() + instructions);
        self.instructions.get() >= self.slices.instructions || self.time() >= self.slices.time
    }

    /// Whether a slice that should have ended long ago could not. Not by the clock: the system may have taken the core away meanwhile.
    pub(crate) fn is_overdue(&self) -> bool {
        self.instructions.get() >= self.slices.instructions.saturating_mul(20)
    }

    pub(crate) fn time(&self) -> Duration {
        (self.clock)().duration_since(self.began.get())
    }

    pub(crate) fn begin_slice(&self) {
        self.began.set((self.clock)());
        self.instructions.set(0);
    }
}
