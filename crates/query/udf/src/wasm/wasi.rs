//! The imports that modules made for WASI have. They give a module nothing: no files, no clock, no random numbers, which would differ from node
//! to node.

use wasmi::{Caller, Error, Extern, ExternType, Linker, Module, Val, ValType};

use super::host::Host;
use super::text::detail;

const MODULES: [&str; 2] = ["wasi_snapshot_preview1", "wasi_unstable"];

/// Error numbers of WASI: no such file descriptor, and not supported.
const BADF: i32 = 8;
const NOSYS: i32 = 52;

/// Links the imports of a module.
pub(super) fn link(module: &Module, linker: &mut Linker<Host>) -> Result<(), String> {
    for import in module.imports() {
        let (from, name) = (import.module().to_owned(), import.name().to_owned());
        let ExternType::Func(ty) = import.ty() else {
            return Err(format!("the module imports {from}.{name}, which is not available"));
        };
        if !MODULES.contains(&from.as_str()) {
            return Err(format!("the module imports {from}.{name}, which is not available"));
        }
        let answers = ty.results() == [ValType::I32];
        let called = name.clone();
        let host = move |caller: Caller<'_, Host>, inputs: &[Val], outputs: &mut [Val]| {
            let errno = call(caller, &called, inputs)?;
            match outputs.first_mut() {
                Some(output) if answers => *output = Val::I32(errno),
                _ => return Err(Error::new(format!("the module called {called}, which is not available"))),
            }
            Ok(())
        };
        linker.func_new(&from, &name, ty.clone(), host).map_err(detail)?;
    }
    Ok(())
}

/// The result of a call.
fn call(mut caller: Caller<'_, Host>, name: &str, inputs: &[Val]) -> Result<i32, Error> {
    let integer = |at: usize| match inputs.get(at) {
        Some(Val::I32(value)) => usize::try_from(*value as u32).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    match name {
        // Numbers and lengths of arguments and variables: none.
        "args_sizes_get" | "environ_sizes_get" => {
            zero(&mut caller, integer(0), 4)?;
            zero(&mut caller, integer(1), 4)?;
            Ok(0)
        }
        "args_get" | "environ_get" | "sched_yield" => Ok(0),
        // A seed of hash tables: the same on every node.
        "random_get" => {
            zero(&mut caller, integer(0), integer(1))?;
            Ok(0)
        }
        "fd_write" | "fd_read" | "fd_close" | "fd_seek" | "fd_fdstat_get" | "fd_prestat_get" => Ok(BADF),
        _ => Ok(NOSYS),
    }
}

/// Sets bytes of the module's memory to zero, for fuel.
fn zero(caller: &mut Caller<'_, Host>, address: usize, len: usize) -> Result<(), Error> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return Err(Error::new("the module does not export a memory"));
    };
    let end = address.checked_add(len);
    let bytes = end.and_then(|end| memory.data_mut(&mut *caller).get_mut(address..end));
    let Some(bytes) = bytes else {
        return Err(Error::new(format!("{len} bytes at address {address} are not in the memory")));
    };
    bytes.fill(0);
    let fuel = caller.get_fuel()?;
    caller.set_fuel(fuel.saturating_sub(len as u64 / 64))
}
