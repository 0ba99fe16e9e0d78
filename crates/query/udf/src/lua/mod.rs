//! Functions in Lua: a state of the interpreter for each call at a time, with the libraries that `prelude.lua` leaves of Lua's own.

mod convert;
mod number;
mod pattern;
mod resume;

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use mlua::{
    ChunkMode, Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Thread, Value, VmState,
};
use schema::UserFunction;

use crate::meter::{Limits, Meter, Slice};
use number::Held;
use pattern::{Capture, Found};
use resume::{Resumed, resume};

/// States that a function's pool holds; as many calls of it run at a time without a new one.
const POOLED_MAX: usize = 2;
/// A state that has grown to more, in bytes, is dropped after the call.
const POOLED_BYTES_MAX: usize = 256 << 10;
/// Steps of a search after which the call pauses.
const HEAVY_STEPS: u64 = 5_000;

/// States in which one function is compiled, and which no call uses.
#[derive(Default)]
pub(crate) struct Pool(RefCell<Vec<State>>);

/// An interpreter with one function.
struct State {
    lua: Lua,
    function: Function,
    environment: Function,
    number_key: Function,
}

/// A call under way.
pub(crate) struct Call {
    state: State,
    thread: Thread,
    arguments: Option<MultiValue>,
    returns: types::CqlType,
    bytes_max: usize,
}

/// The text of an error without the trace of the stack.
fn detail(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::CallbackError { cause, .. } => detail(cause),
        mlua::Error::WithContext { cause, .. } => detail(cause),
        other => other.to_string(),
    };
    let text = text.split("\nstack traceback:").next().unwrap_or_default();
    // An error's value may be as long as the memory allows.
    without_addresses(&text.chars().take(1024).collect::<String>())
}

/// A text without the addresses of tables and functions, which differ from node to node.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        match digits >= 8 {
            true => out.push_str(&part[digits..]),
            false => out.extend(["0x", part]),
        }
    }
    out
}

/// Checks that a function's source compiles.
pub(crate) fn check(function: &UserFunction, limits: &Limits) -> Result<(), String> {
    State::new(function, limits).map(drop)
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
        let pooled = self.0.borrow_mut().pop();
        let state = match pooled {
            Some(state) => state,
            None => State::new(function, limits)?,
        };
        state.begin(function, arguments, limits, meter)
    }

    /// Takes back the state of a call that has succeeded.
    pub(crate) fn end(&self, call: Call) {
        let mut pool = self.0.borrow_mut();
        if pool.len() < POOLED_MAX && call.state.lua.used_memory() <= POOLED_BYTES_MAX {
            pool.push(call.state);
        }
    }
}

/// Whether a name can be the name of a parameter in Lua.
fn is_lua_name(name: &str) -> bool {
    const RESERVED: &[&str] = &[
        "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
        "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
    ];
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(letters)
        && !RESERVED.contains(&name)
}

impl State {
    fn new(function: &UserFunction, limits: &Limits) -> Result<Self, String> {
        let mut source = String::new();
        for (at, (name, _)) in function.arguments.iter().enumerate() {
            if !is_lua_name(name) {
                return Err(format!("argument {name} has a name that Lua cannot use"));
            }
            source.push_str(if at == 0 { "local " } else { ", " });
            source.push_str(name);
        }
        // On the first line of the body, so that its lines are numbered as they are written.
        source.push_str(if function.arguments.is_empty() { "" } else { " = ...; " });
        source.push_str(&function.body);
        Self::load(&source, &function.name, limits).map_err(|error| detail(&error))
    }

    fn load(source: &str, name: &str, limits: &Limits) -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8 | StdLib::COROUTINE;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        lua.set_app_data(Held::new(limits.memory_bytes));
        let (environment, number_key): (Function, Function) = lua
            .load(include_str!("prelude.lua"))
            .set_name("=library")
            .set_mode(ChunkMode::Text)
            .call(host_functions(&lua)?)?;
        lua.gc_collect()?;
        lua.set_memory_limit(lua.used_memory() + limits.memory_bytes)?;
        let function = lua
            .load(source)
            .set_name(format!("={name}"))
            .set_mode(ChunkMode::Text)
            .set_environment(lua.create_table()?)
            .into_function()?;
        Ok(Self { lua, function, environment, number_key })
    }

    fn begin(
        self,
        function: &UserFunction,
        arguments: &[Option<Bytes>],
        limits: &Limits,
        meter: Rc<Meter>,
    ) -> Result<Call, String> {
        let prepare = || {
            let variables: Table = self.environment.call(())?;
            self.function.set_environment(variables)?;
            let mut values = MultiValue::new();
            for (value, ty) in arguments.iter().zip(function.argument_types()) {
                values.push_back(convert::to_lua(&self.lua, ty, value.as_deref(), &self.number_key)?);
            }
            let thread = self.lua.create_thread(self.function.clone())?;
            let per_look = meter.slices().instructions_per_look;
            let triggers = HookTriggers::new().every_nth_instruction(per_look);
            thread.set_hook(triggers, move |_, _| {
                if !meter.count(u64::from(per_look)) {
                    return Ok(VmState::Continue);
                }
                match meter.is_overdue() {
                    true => Err(mlua::Error::runtime("a library call runs code that takes too long")),
                    false => Ok(VmState::Yield),
                }
            })?;
            Ok::<_, mlua::Error>((thread, values))
        };
        let (thread, values) = prepare().map_err(|error| detail(&error))?;
        let returns = function.returns.clone();
        Ok(Call { state: self, thread, arguments: Some(values), returns, bytes_max: limits.memory_bytes })
    }
}

impl Call {
    /// Runs until the slice is over.
    pub(crate) fn resume(&mut self) -> Result<Slice, String> {
        let arguments = self.arguments.take().unwrap_or_default();
        let lua = &self.state.lua;
        let value = match resume(lua, &self.thread, arguments).map_err(|error| detail(&error))? {
            Resumed::Yielded => return Ok(Slice::Yielded),
            Resumed::Returned(1, value) => value,
            Resumed::Returned(count, _) => return Err(format!("{count} values returned, expected 1")),
        };
        let bytes = convert::from_lua(lua, &self.returns, &value, self.bytes_max)?;
        Ok(Slice::Done(bytes))
    }
}

/// Functions for the prelude: searches whose steps are counted.
fn host_functions(lua: &Lua) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    let search =
        |lua: &Lua, (subject, pattern, init, refused): (mlua::String, mlua::String, usize, usize)| {
            let (bytes, pattern) = (subject.as_bytes(), pattern.as_bytes());
            let (found, steps) =
                pattern::search(&bytes, &pattern, init.saturating_sub(1), refused.checked_sub(1));
            let mut out = MultiValue::new();
            out.push_back(Value::Boolean(steps >= HEAVY_STEPS));
            let integer = |at: usize| Value::Integer(at as i64);
            match found.map_err(mlua::Error::runtime)? {
                Found::Nothing => out.push_back(integer(0)),
                Found::Continue(at) => out.extend([integer(2), integer(at + 1)]),
                Found::Match(first, last, captures) => {
                    out.extend([integer(1), integer(first + 1), integer(last)]);
                    for capture in captures {
                        out.push_back(match capture {
                            Capture::Position(at) => integer(at + 1),
                            Capture::Bytes(from, to) => {
                                Value::String(lua.create_string(bytes.get(from..to).unwrap_or_default())?)
                            }
                        });
                    }
                }
            }
            Ok(out)
        };
    host.set("search", lua.create_function(search)?)?;
    let plain = |_: &Lua, (subject, wanted, init): (mlua::String, mlua::String, usize)| {
        let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
        let from = init.saturating_sub(1);
        let found = subject.get(from..).and_then(|rest| memchr::memmem::find(rest, &wanted));
        Ok(found.map(|at| from + at + 1))
    };
    host.set("plainfind", lua.create_function(plain)?)?;
    Ok(host)
}
