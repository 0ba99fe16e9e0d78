//! A module as it is compiled, and instances of it.

use schema::UserFunction;
use wasmi::{
    CompilationMode, Config, EnforcedLimits, Engine, Extern, Func, Linker, Memory, Module, Store,
    StoreLimitsBuilder, Val, ValType,
};
use wasmparser::{Operator, Parser, Payload};

use super::abi::Form;
use super::host::Host;
use super::text::detail;
use super::wasi;
use crate::meter::Limits;

/// Names of the exports of ScyllaDB's binary interface.
const MEMORY: &str = "memory";
const ABI: &str = "_scylla_abi";
const MALLOC: &str = "_scylla_malloc";
const FREE: &str = "_scylla_free";
/// The function that initialises a module made for WASI, to be called before any other.
const INITIALIZE: &str = "_initialize";

/// Local variables of all functions of a module: compiling takes time for each, and a few bytes can declare thousands.
const LOCALS_MAX: u64 = 200_000;
/// Elements of each of the tables of a module.
const TABLE_ELEMENTS_MAX: usize = 20_000;
/// Tables of a module: compilers make one.
const TABLES_MAX: usize = 4;
/// Fuel of the start function, which cannot pause.
const START_FUEL: u64 = 100_000;
/// Calls inside of each other, and bytes of their values.
const DEPTH_MAX: usize = 1_000;
const STACK_BYTES_MAX: usize = 1 << 20;

/// A function that is compiled.
pub(super) struct Program {
    engine: Engine,
    module: Module,
    linker: Linker<Host>,
    name: String,
    pub(super) arguments: Vec<Form>,
    pub(super) returns: Form,
    /// Whether a call leaves nothing behind that another could see.
    pub(super) is_reusable: bool,
}

/// How a module wants memory for its arguments to be had.
#[derive(Clone, Copy)]
pub(super) enum Allocation {
    /// Version 1: the memory is grown for each.
    Grow,
    /// Version 2: by a function of the module.
    Malloc(Func),
}

/// An instance of a module.
pub(super) struct Instance {
    pub(super) store: Store<Host>,
    pub(super) memory: Memory,
    pub(super) function: Func,
    pub(super) allocation: Allocation,
    /// The function to be called before any other.
    pub(super) initialize: Option<Func>,
}

impl Instance {
    /// Bytes of its memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory.data(&self.store).len()
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.consume_fuel(true);
    config.compilation_mode(CompilationMode::Eager);
    config.enforced_limits(EnforcedLimits::strict());
    config.set_max_recursion_depth(DEPTH_MAX);
    config.set_max_stack_height(STACK_BYTES_MAX);
    config.set_max_cached_stacks(1);
    config.ignore_custom_sections(true);
    config.wasm_multi_memory(false);
    config.wasm_custom_page_sizes(false);
    config.wasm_wide_arithmetic(false);
    config
}

/// The properties of a module's code that decide how it is run.
#[derive(Default)]
struct Code {
    locals: u64,
    has_effects: bool,
}

impl Code {
    fn of(binary: &[u8]) -> Result<Self, String> {
        let mut code = Self::default();
        for payload in Parser::new(0).parse_all(binary) {
            match payload.map_err(detail)? {
                Payload::ImportSection(_) => code.has_effects = true,
                Payload::CodeSectionEntry(body) => {
                    for locals in body.get_locals_reader().map_err(detail)? {
                        code.locals += u64::from(locals.map_err(detail)?.0);
                    }
                    for operator in body.get_operators_reader().map_err(detail)? {
                        code.has_effects |= has_effect(&operator.map_err(detail)?);
                    }
                }
                _ => {}
            }
        }
        Ok(code)
    }
}

/// Whether an instruction changes state that outlives a call, or depends on such state.
fn has_effect(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::I32Store { .. }
            | Operator::I64Store { .. }
            | Operator::F32Store { .. }
            | Operator::F64Store { .. }
            | Operator::I32Store8 { .. }
            | Operator::I32Store16 { .. }
            | Operator::I64Store8 { .. }
            | Operator::I64Store16 { .. }
            | Operator::I64Store32 { .. }
            | Operator::MemoryGrow { .. }
            | Operator::MemorySize { .. }
            | Operator::MemoryFill { .. }
            | Operator::MemoryCopy { .. }
            | Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
            | Operator::GlobalSet { .. }
            | Operator::TableSet { .. }
            | Operator::TableGrow { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
    )
}

/// The first two lines of an error of the text format: the cause and its place.
fn text_error(error: &wat::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().take(2).collect();
    detail(lines.join(" ").replace("--> <anon>:", "at "))
}

impl Program {
    /// Compiles a function.
    pub(super) fn new(function: &UserFunction) -> Result<Self, String> {
        let binary = wat::parse_str(&function.body).map_err(|error| text_error(&error))?;
        let code = Code::of(&binary)?;
        if code.locals > LOCALS_MAX {
            return Err(format!(
                "the module has {} local variables: at most {LOCALS_MAX} are allowed",
                code.locals
            ));
        }
        let engine = Engine::new(&config());
        let module = Module::new(&engine, &binary).map_err(detail)?;
        let mut linker = Linker::new(&engine);
        wasi::link(&module, &mut linker)?;
        let arguments: Vec<Form> = function.argument_types().map(|ty| Form::of(function, ty)).collect();
        let returns = Form::of(function, &function.returns);
        let is_native = arguments.iter().chain([&returns]).all(|form| matches!(form, Form::Native(_)));
        let is_reusable = is_native && !code.has_effects;
        Ok(Self { engine, module, linker, name: function.name.clone(), arguments, returns, is_reusable })
    }

    /// A new instance, whose memory is within the limit.
    pub(super) fn instantiate(&self, limits: &Limits) -> Result<Instance, String> {
        let bounds = StoreLimitsBuilder::new()
            .memory_size(limits.wasm_memory_bytes)
            .table_elements(TABLE_ELEMENTS_MAX)
            .instances(1)
            .memories(1)
            .tables(TABLES_MAX)
            .build();
        let mut store = Store::new(&self.engine, Host { limits: bounds });
        store.limiter(|host| &mut host.limits);
        store.set_fuel(START_FUEL).map_err(detail)?;
        let instance = self.linker.instantiate_and_start(&mut store, &self.module).map_err(|error| {
            format!(
                "the module cannot be instantiated within {} bytes: {}",
                limits.wasm_memory_bytes,
                detail(error)
            )
        })?;
        let export = |store: &Store<Host>, name: &str| instance.get_export(store, name);
        let Some(Extern::Memory(memory)) = export(&store, MEMORY) else {
            return Err(format!("the module does not export a memory by the name {MEMORY}"));
        };
        let params: Vec<ValType> = self.arguments.iter().map(|form| form.value_type()).collect();
        let typed = |store: &Store<Host>, name: &str, params: &[ValType], results: &[ValType]| {
            let Some(Extern::Func(function)) = export(store, name) else {
                return Err(format!("the module does not export a function by the name {name}"));
            };
            let ty = function.ty(store);
            if ty.params() != params || ty.results() != results {
                return Err(format!(
                    "the exported function {name} has the type {:?} -> {:?}; expected {params:?} -> {results:?}",
                    ty.params(),
                    ty.results()
                ));
            }
            Ok(function)
        };
        let function = typed(&store, &self.name, &params, &[self.returns.value_type()])?;
        let allocation = match abi_version(&store, export(&store, ABI), memory)? {
            1 => Allocation::Grow,
            2 => {
                typed(&store, FREE, &[ValType::I32], &[])?;
                Allocation::Malloc(typed(&store, MALLOC, &[ValType::I32], &[ValType::I32])?)
            }
            other => return Err(format!("the version of the module's {ABI} is {other}; supported: 1 and 2")),
        };
        let initialize = match export(&store, INITIALIZE) {
            Some(_) => Some(typed(&store, INITIALIZE, &[], &[])?),
            None => None,
        };
        Ok(Instance { store, memory, function, allocation, initialize })
    }
}

/// The version at the address that the exported global has.
fn abi_version(store: &Store<Host>, global: Option<Extern>, memory: Memory) -> Result<u32, String> {
    let Some(Extern::Global(global)) = global else {
        return Err(format!("the module does not export a global by the name {ABI}"));
    };
    let Val::I32(address) = global.get(store) else {
        return Err(format!("the exported global {ABI} is no i32"));
    };
    let address = usize::try_from(address as u32).unwrap_or(usize::MAX);
    let version = memory.data(store).get(address..).and_then(<[u8]>::first_chunk::<4>);
    match version {
        Some(version) => Ok(u32::from_le_bytes(*version)),
        None => Err(format!("the exported global {ABI} is an address outside of the memory: {address}")),
    }
}
