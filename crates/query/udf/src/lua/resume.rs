//! Starts and continues a coroutine by `lua_resume` itself.
//!
//! `mlua::Thread::resume` takes the content of the stack of a coroutine that has yielded for values of the yield, and drops it. A
//! coroutine that a hook has interrupted has the registers of its function there: the collector then frees their objects. So this
//! file, the only one of the crate that may hold `unsafe`, leaves that stack alone (docs/design/udf.md).

#![allow(unsafe_code)]

use std::ffi::c_int;

use mlua::{Lua, MultiValue, Thread, Value, ffi};

/// Result of a resume.
pub(super) enum Resumed {
    /// The coroutine has yielded; values of the yield are dropped.
    Yielded,
    /// It has returned so many values; the first of them.
    Returned(c_int, Value),
}

/// Resumes a coroutine: with the arguments of its function the first time, and without any afterwards.
///
/// # Errors
/// The error with which the coroutine has failed; it cannot be resumed again.
pub(super) fn resume(lua: &Lua, thread: &Thread, arguments: MultiValue) -> mlua::Result<Resumed> {
    let mut values = arguments;
    values.push_front(Value::Thread(thread.clone()));
    let (mut status, mut count) = (ffi::LUA_ERRRUN, 0);
    // SAFETY: the closure holds nothing that needs to be dropped, and all that it calls leaves the stacks as their manual says.
    let value: Value = unsafe { lua.exec_raw(values, |state| status = resume_raw(state, &mut count))? };
    match status {
        ffi::LUA_OK => Ok(Resumed::Returned(count, value)),
        ffi::LUA_YIELD => Ok(Resumed::Yielded),
        ffi::LUA_ERRMEM => Err(mlua::Error::MemoryError("not enough memory".to_owned())),
        _ => Err(match value {
            Value::Error(error) => *error,
            Value::String(text) => mlua::Error::runtime(text.to_string_lossy()),
            Value::Integer(_) | Value::Number(_) => mlua::Error::runtime(value.to_string()?),
            other => mlua::Error::runtime(format!("(error object is a {} value)", other.type_name())),
        }),
    }
}

/// Takes the coroutine and its arguments from the stack of `state`, where it leaves one value: the first of `count` results or the error.
///
/// # Safety
/// The first value on the stack of `state` is a coroutine of the same interpreter that is not running.
unsafe fn resume_raw(state: *mut ffi::lua_State, count: &mut c_int) -> c_int {
    unsafe {
        let thread = ffi::lua_tothread(state, 1);
        let arguments = ffi::lua_gettop(state) - 1;
        if thread.is_null() || ffi::lua_checkstack(thread, arguments + 1) == 0 {
            return ffi::LUA_ERRMEM;
        }
        ffi::lua_xmove(state, thread, arguments);
        let status = ffi::lua_resume(thread, state, arguments, count);
        match status {
            // A hook yields nothing. The values that a function yields are on top of its stack, and are not needed.
            ffi::LUA_YIELD => {
                ffi::lua_pop(thread, *count);
                ffi::lua_settop(state, 0);
            }
            ffi::LUA_OK if *count == 0 => ffi::lua_settop(state, 0),
            ffi::LUA_OK => {
                ffi::lua_pop(thread, *count - 1);
                ffi::lua_settop(state, 0);
                ffi::lua_xmove(thread, state, 1);
            }
            _ => {
                ffi::lua_settop(state, 0);
                ffi::lua_xmove(thread, state, 1);
            }
        }
        status
    }
}
