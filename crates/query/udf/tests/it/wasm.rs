//! Functions in WebAssembly: both versions of ScyllaDB's binary interface, every type, nulls, and modules that mean harm.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rt::Instant;
use schema::UserFunction;
use types::CqlType;
use udf::{Limits, Runtime, Slices, check};

use crate::lua::{limited, run, runtime, timed, values};

/// A module of version 1 with these definitions; `f` is for them to export.
fn version_1(definitions: &str) -> String {
    importing("", definitions)
}

/// [`version_1`] with imports, which come first.
fn importing(imports: &str, definitions: &str) -> String {
    format!(
        r#"(module {imports} (memory (export "memory") 1) (global (export "_scylla_abi") i32 (i32.const 1024))
            (data (i32.const 1024) "\01") {definitions})"#
    )
}

/// A module of version 2, which allocates by counting up.
fn version_2(definitions: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 2) (global (export "_scylla_abi") i32 (i32.const 1024))
            (data (i32.const 1024) "\02") (global $next (mut i32) (i32.const 4096))
            (func $malloc (export "_scylla_malloc") (param $size i32) (result i32)
                (global.get $next) (global.set $next (i32.add (global.get $next) (local.get $size))))
            (func (export "_scylla_free") (param i32)) {definitions})"#
    )
}

fn function(arguments: &[CqlType], returns: CqlType, nulls: bool, body: &str) -> Arc<UserFunction> {
    let argument = |(at, ty): (usize, &CqlType)| (format!("a{at}"), ty.clone());
    Arc::new(UserFunction {
        keyspace: "ks".to_owned(),
        name: "f".to_owned(),
        arguments: arguments.iter().enumerate().map(argument).collect(),
        returns,
        called_on_null_input: nulls,
        language: "wasm".to_owned(),
        body: body.to_owned(),
    })
}

/// The result of a call, or its error.
fn call(function: &Arc<UserFunction>, arguments: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, String> {
    let arguments: Vec<Option<Bytes>> =
        arguments.iter().map(|value| value.map(Bytes::copy_from_slice)).collect();
    let called = run(runtime().call(function, &arguments)).0;
    match called {
        Ok(called) => Ok(called.value.map(|value| value.to_vec())),
        Err(error) => {
            Err(error.message.split_once("failed: ").map_or(error.message.clone(), |(_, why)| why.to_owned()))
        }
    }
}

const IDENTITY: &str = r#"(func (export "f") (param i64) (result i64) (local.get 0))"#;

#[test]
fn values_of_every_type_come_back() {
    for (ty, values) in values() {
        for value in values {
            for body in [version_1(IDENTITY), version_2(IDENTITY)] {
                let nullable = function(std::slice::from_ref(&ty), ty.clone(), true, &body);
                assert_eq!(call(&nullable, &[Some(&value)]), Ok(Some(value.clone())), "{ty}");
                assert_eq!(call(&nullable, &[None]), Ok(None), "{ty}");
            }
            let native = match ty {
                CqlType::Boolean | CqlType::Tinyint | CqlType::Smallint | CqlType::Int => "i32",
                CqlType::Float => "f32",
                CqlType::Double => "f64",
                _ => "i64",
            };
            let body = version_1(&IDENTITY.replace("i64", native));
            let strict = function(std::slice::from_ref(&ty), ty.clone(), false, &body);
            assert_eq!(call(&strict, &[Some(&value)]), Ok(Some(value)), "{ty}");
            assert_eq!(call(&strict, &[None]), Ok(None), "{ty}");
        }
    }
    // The empty int is null.
    assert_eq!(
        call(&function(&[CqlType::Int], CqlType::Int, true, &version_1(IDENTITY)), &[Some(&[])]),
        Ok(None)
    );
}

/// The example of ScyllaDB's documentation.
const FIB: &str = r#"
    (module
        (func $fib (param $n i64) (result i64)
            (if (i64.lt_s (local.get $n) (i64.const 2)) (then (return (local.get $n))))
            (i64.add (call $fib (i64.sub (local.get $n) (i64.const 1))) (call $fib (i64.sub (local.get $n) (i64.const 2)))))
        (memory (;0;) 2)
        (export "memory" (memory 0))
        (export "f" (func $fib))
        (global (;0;) i32 (i32.const 1024))
        (export "_scylla_abi" (global 0))
        (data $.rodata (i32.const 1024) "\01"))"#;

fn bigint(value: i64) -> [u8; 8] {
    value.to_be_bytes()
}

#[test]
fn functions_calculate() {
    let fib = function(&[CqlType::Bigint], CqlType::Bigint, false, FIB);
    for (n, expected) in [(0, 0), (1, 1), (10, 55), (15, 610)] {
        assert_eq!(call(&fib, &[Some(&bigint(n))]), Ok(Some(bigint(expected).into())));
    }
    // Two texts, put one after the other by the module itself.
    let concat = version_2(
        r#"(func (export "f") (param $a i64) (param $b i64) (result i64)
            (local $m i32) (local $n i32) (local $out i32)
            (local.set $m (i32.wrap_i64 (i64.shr_u (local.get $a) (i64.const 32))))
            (local.set $n (i32.wrap_i64 (i64.shr_u (local.get $b) (i64.const 32))))
            (if (i32.or (i32.eq (local.get $m) (i32.const -1)) (i32.eq (local.get $n) (i32.const -1)))
                (then (return (i64.shl (i64.const -1) (i64.const 32)))))
            (local.set $out (call $malloc (i32.add (local.get $m) (local.get $n))))
            (memory.copy (local.get $out) (i32.wrap_i64 (local.get $a)) (local.get $m))
            (memory.copy (i32.add (local.get $out) (local.get $m)) (i32.wrap_i64 (local.get $b)) (local.get $n))
            (i64.or (i64.shl (i64.extend_i32_u (i32.add (local.get $m) (local.get $n))) (i64.const 32))
                (i64.extend_i32_u (local.get $out))))"#,
    );
    let concat = function(&[CqlType::Text, CqlType::Text], CqlType::Text, true, &concat);
    assert_eq!(call(&concat, &[Some(b"ab"), Some(b"cde")]), Ok(Some(b"abcde".to_vec())));
    assert_eq!(call(&concat, &[Some(b""), Some(b"")]), Ok(Some(vec![])));
    assert_eq!(call(&concat, &[Some(b"ab"), None]), Ok(None));
    let of = |returns: CqlType, code: &str| {
        let ty = match returns {
            CqlType::Bigint => "i64",
            _ => "i32",
        };
        let body = version_1(&format!(r#"(func (export "f") (result {ty}) {code})"#));
        call(&function(&[], returns, false, &body), &[])
    };
    assert_eq!(of(CqlType::Boolean, "(i32.const 7)"), Ok(Some(vec![1])));
    assert_eq!(of(CqlType::Tinyint, "(i32.const -128)"), Ok(Some(vec![0x80])));
    assert_eq!(
        of(CqlType::Tinyint, "(i32.const 128)"),
        Err("returned 128, which is out of the range of tinyint".into())
    );
    assert_eq!(
        of(CqlType::Smallint, "(i32.const -32769)"),
        Err("returned -32769, which is out of the range of smallint".into())
    );
    assert_eq!(
        of(CqlType::Bigint, "(i64.div_s (i64.const 1) (i64.const 0))"),
        Err("integer divide by zero".into())
    );
    assert_eq!(of(CqlType::Int, "(unreachable)"), Err("wasm `unreachable` instruction executed".into()));
}

#[test]
fn modules_are_checked_when_functions_are_created() {
    let limits = Limits { enabled: true, ..Limits::default() };
    let refused = |body: &str| {
        let error = check(&function(&[CqlType::Int], CqlType::Int, false, body), &limits).unwrap_err();
        error.0.replace("Failed to compile function 'ks.f' for language wasm: ", "")
    };
    let good = r#"(func (export "f") (param i32) (result i32) (local.get 0))"#;
    check(&function(&[CqlType::Int], CqlType::Int, false, &version_1(good)), &limits).expect("it is good");
    for (body, expected) in [
        (String::new(), "expected at least one module field at 1:1"),
        ("return 1".to_owned(), "expected `(` at 1:1"),
        ("(module (func (i32.add)))".to_owned(), "type mismatch: expected i32 but nothing on stack (at offset 0x17)"),
        ("(module)".to_owned(), "the module does not export a memory by the name memory"),
        (
            r#"(module (memory (export "memory") 1))"#.to_owned(),
            "the module does not export a function by the name f",
        ),
        (
            format!(r#"(module (memory (export "memory") 1) {good})"#),
            "the module does not export a global by the name _scylla_abi",
        ),
        (
            version_1(r#"(func (export "f") (param i64) (result i32) (i32.const 1))"#),
            "the exported function f has the type [I64] -> [I32]; expected [I32] -> [I32]",
        ),
        (
            version_1(r#"(func (export "g") (param i32) (result i32) (local.get 0))"#),
            "the module does not export a function by the name f",
        ),
        (version_1(good).replace("\\01", "\\03"), "the version of the module's _scylla_abi is 3; supported: 1 and 2"),
        (
            version_1(good).replace("i32 (i32.const 1024)", "i32 (i32.const -1)"),
            "the exported global _scylla_abi is an address outside of the memory: 4294967295",
        ),
        (
            version_1(good).replace("\\01", "\\02"),
            "the module does not export a function by the name _scylla_free",
        ),
        (
            version_1(good).replacen("(memory", r#"(import "env" "now" (func (result i64))) (memory"#, 1),
            "the module imports env.now, which is not available",
        ),
        (
            version_1(good).replacen("(memory", r#"(import "wasi_unstable" "m" (global i32)) (memory"#, 1),
            "the module imports wasi_unstable.m, which is not available",
        ),
        (
            version_1(good).replace(r#""memory") 1"#, r#""memory") 33"#),
            "the module cannot be instantiated within 2097152 bytes: ",
        ),
        (
            version_1(&format!("{good} (table 9000000 funcref)")),
            "the module cannot be instantiated within 2097152 bytes: ",
        ),
        (
            version_1(&format!("{good} (func $s (loop (br 0))) (start $s)")),
            "the module cannot be instantiated within 2097152 bytes: all fuel consumed by WebAssembly",
        ),
        (
            // A few bytes declare 60,000 local variables.
            r#"(module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\08\01\06\01\e0\d4\03\7f\0b")"#
                .to_owned(),
            "too many locals: locals exceed maximum",
        ),
    ] {
        let found = refused(&body);
        assert!(found.starts_with(expected), "{body}\n  {found}\n  expected {expected}");
        assert!(found.len() < 1500);
    }
    let text = udf::language("wat").unwrap_err().0;
    assert_eq!(
        text,
        "User-defined functions in language wat are not supported; supported languages: lua, wasm"
    );
}

/// Bodies of a function without arguments that returns a text, and the beginning of the error.
const HOSTILE: &[(&str, &str, &str)] = &[
    (
        "",
        r#"(func (export "f") (result i64) (loop (br 0)) (i64.const 0))"#,
        "User defined function ks.f : () -> text ran longer",
    ),
    ("", r#"(func $g (export "f") (result i64) (call $g))"#, "call stack exhausted"),
    (
        "",
        r#"(func (export "f") (result i64) (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable))"#,
        "wasm `unreachable` instruction executed",
    ),
    (
        "",
        r#"(func (export "f") (result i64) (loop (drop (memory.grow (i32.const 0))) (br 0)) (i64.const 0))"#,
        "User defined function ks.f : () -> text ran longer",
    ),
    (
        "",
        r#"(func (export "f") (result i64) (drop (memory.grow (i32.const 30)))
            (loop (memory.fill (i32.const 0) (i32.const 1) (i32.const 2000000)) (br 0)) (i64.const 0))"#,
        "User defined function ks.f : () -> text ran longer",
    ),
    (
        r#"(import "wasi_snapshot_preview1" "random_get" (func $r (param i32 i32) (result i32)))"#,
        r#"(func (export "f") (result i64) (drop (memory.grow (i32.const 30)))
            (loop (drop (call $r (i32.const 0) (i32.const 2000000))) (br 0)) (i64.const 0))"#,
        "User defined function ks.f : () -> text ran longer",
    ),
    (
        r#"(import "wasi_snapshot_preview1" "proc_exit" (func $e (param i32)))"#,
        r#"(func (export "f") (result i64) (call $e (i32.const 1)) (i64.const 0))"#,
        "the module called proc_exit, which is not available",
    ),
    (
        r#"(import "wasi_snapshot_preview1" "random_get" (func $r (param i32 i32) (result i32)))"#,
        r#"(func (export "f") (result i64) (drop (call $r (i32.const -1) (i32.const -1))) (i64.const 0))"#,
        "4294967295 bytes at address 4294967295 are not in the memory",
    ),
    (
        "",
        r#"(func (export "f") (result i64) (i64.const 0x7fffffff_00000000))"#,
        "returned 2147483647 bytes at address 0, which are not in its memory of 65536 bytes",
    ),
    (
        "",
        r#"(func (export "f") (result i64) (i64.const 0x00000001_ffffffff))"#,
        "returned 1 bytes at address 4294967295, which are not in its memory",
    ),
    (
        "",
        r#"(func (export "f") (result i64) (i64.const 0x80000000_00000000))"#,
        "returned -2147483648 bytes at address 0, which are not in its memory",
    ),
    (
        "",
        r#"(data (i32.const 0) "\ff\fe") (func (export "f") (result i64) (i64.const 0x00000002_00000000))"#,
        "returned bytes that are no text: ",
    ),
    (
        "",
        r#"(table 10000 funcref) (func (export "f") (result i64)
            (loop (drop (table.grow 0 (ref.null func) (i32.const 1000))) (br 0)) (i64.const 0))"#,
        "User defined function ks.f : () -> text ran longer",
    ),
    (
        "",
        r#"(table 20000 funcref) (table 20000 funcref) (table 20000 funcref) (table 20000 funcref) (table 20000 funcref)
            (func (export "f") (result i64) (i64.const 0))"#,
        "the module cannot be instantiated within 2097152 bytes: ",
    ),
];

#[test]
fn hostile_modules_end_in_bounded_time_and_memory() {
    let limits = Limits { enabled: true, fail_after: Duration::from_millis(30), ..Limits::default() };
    for (imports, definitions, expected) in HOSTILE {
        let began = std::time::Instant::now();
        let runtime = Runtime::new(
            limits.clone(),
            Rc::new(move || Instant::from_nanos(began.elapsed().as_nanos() as u64)),
        );
        let body = importing(imports, definitions);
        let hostile = function(&[], CqlType::Text, false, &body);
        let (result, longest) = timed(runtime.call(&hostile, &[]));
        let error = result.expect_err(definitions).message;
        let why = error.split_once("failed: ").map_or(error.as_str(), |(_, why)| why);
        assert!(why.starts_with(expected), "{definitions}\n  {why}\n  expected {expected}");
        // Generous, as the machine may be busy: an unbounded one would take for ever.
        assert!(began.elapsed() < Duration::from_secs(3), "{definitions} took {:?}", began.elapsed());
        assert!(longest < Duration::from_millis(300), "{definitions} held the thread for {longest:?}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let bad_malloc =
        version_2(IDENTITY).replace("(global.get $next) (global.set", "(i32.const -5) (global.set");
    let text = |body: &str| function(&[CqlType::Blob], CqlType::Blob, true, body);
    assert_eq!(
        call(&text(&bad_malloc), &[Some(b"abc")]),
        Err("memory for an argument of 3 bytes was allocated at address 4294967291, outside of the memory"
            .into())
    );
    assert_eq!(
        call(&text(&version_1(IDENTITY)), &[Some(&vec![0; 3 << 20])]),
        Err("not enough memory for an argument of 3145728 bytes beside 65536".into())
    );
    assert_eq!(
        call(&text(&version_2(IDENTITY)), &[Some(&vec![0; 3 << 20])]),
        Err("memory for an argument of 3145728 bytes was allocated at address 4096, outside of the memory"
            .into())
    );
    let looping = version_2(IDENTITY)
        .replace("(global.get $next) (global.set", "(loop (br 0)) (global.get $next) (global.set");
    let error = call(&text(&looping), &[Some(b"abc")]).unwrap_err();
    assert_eq!(error, "User defined function ks.f : (blob) -> blob ran longer than 50ms");
}

#[test]
fn no_call_sees_another() {
    let count = version_1(
        r#"(global $n (mut i32) (i32.const 0))
           (func (export "f") (result i32) (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))"#,
    );
    let stored = version_1(
        r#"(func (export "f") (result i32)
            (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))) (i32.load (i32.const 0)))"#,
    );
    let pages =
        version_1(r#"(func (export "f") (result i32) (drop (memory.grow (i32.const 1))) (memory.size))"#);
    for (body, expected) in [(count, 1), (stored, 1), (pages, 2)] {
        let runtime = runtime();
        let function = function(&[], CqlType::Int, false, &body);
        for _ in 0..3 {
            let called = run(runtime.call(&function, &[])).0.unwrap();
            assert_eq!(called.value.as_deref(), Some(&i32::to_be_bytes(expected)[..]), "{body}");
        }
    }
}

#[test]
fn a_module_for_wasi_finds_nothing_of_the_system() {
    let body = r#"(module
        (import "wasi_snapshot_preview1" "environ_sizes_get" (func $env (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
        (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
        (memory (export "memory") 1) (global (export "_scylla_abi") i32 (i32.const 1024))
        (data (i32.const 1024) "\01") (data (i32.const 0) "\ff\ff\ff\ff\ff\ff\ff\ff\ff")
        (global $ready (mut i32) (i32.const 0))
        (func (export "_initialize") (global.set $ready (i32.const 1000000)))
        (func (export "f") (result i32)
            (i32.add (global.get $ready) (i32.add (call $env (i32.const 0) (i32.const 4)) (i32.add
                (i32.mul (i32.const 100) (call $write (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 0)))
                (i32.add (i32.mul (i32.const 10000) (call $clock (i32.const 0) (i64.const 0) (i32.const 8)))
                    (i32.add (call $random (i32.const 8) (i32.const 1)) (i32.load8_u (i32.const 8)))))))))"#;
    let function = function(&[], CqlType::Int, false, body);
    assert_eq!(call(&function, &[]), Ok(Some(1_520_800_i32.to_be_bytes().into())));
}

#[test]
fn calls_yield_and_return_the_same() {
    let fib = function(&[CqlType::Bigint], CqlType::Bigint, false, FIB);
    let serialised = function(&[CqlType::Text], CqlType::Text, true, &version_2(IDENTITY));
    let limits = Limits { enabled: true, fail_after: Duration::from_secs(100), ..Limits::default() };
    for (look, instructions) in [(1, 1), (1, 7), (3, 1), (100, 50_000)] {
        let slices = Slices { instructions_per_look: look, instructions, ..Slices::default() };
        let runtime = Runtime::with_slices(limits.clone(), Rc::new(|| Instant::START), slices);
        let (result, polls) = run(runtime.call(&fib, &[Some(Bytes::copy_from_slice(&bigint(15)))]));
        assert_eq!(result.unwrap().value.as_deref(), Some(&bigint(610)[..]));
        assert!(polls > 50 || instructions > 100, "{polls}");
        let text = Bytes::from_static(b"a text");
        let result = run(runtime.call(&serialised, &[Some(text.clone())])).0;
        assert_eq!(result.unwrap().value, Some(text));
    }
}

#[test]
fn a_loop_ends_where_the_clock_stands_still_and_long_calls_warn() {
    let limits = Limits { enabled: true, fail_after: Duration::from_millis(5), ..Limits::default() };
    let runtime = Runtime::new(limits, Rc::new(|| Instant::START));
    let endless = function(
        &[],
        CqlType::Int,
        false,
        &version_1(r#"(func (export "f") (result i32) (loop (br 0)) (i32.const 0))"#),
    );
    let (result, polls) = run(runtime.call(&endless, &[]));
    assert_eq!(result.unwrap_err().message, "User defined function ks.f : () -> int ran longer than 5ms");
    assert_eq!(polls, 40, "2,000,000 instructions in slices of 50,000");
    let limits = Limits {
        enabled: true,
        fail_after: Duration::from_secs(100),
        warn_after: Duration::from_micros(1),
        ..Limits::default()
    };
    let fib = function(&[CqlType::Bigint], CqlType::Bigint, false, FIB);
    let called = run(limited(limits).call(&fib, &[Some(Bytes::copy_from_slice(&bigint(20)))])).0.unwrap();
    assert_eq!(
        called.warning.as_deref(),
        Some("User defined function ks.f : (bigint) -> bigint ran longer than 0ms")
    );
}

#[test]
fn two_calls_of_a_function_do_not_meet() {
    let limits = Limits { enabled: true, fail_after: Duration::from_secs(100), ..Limits::default() };
    let runtime = Runtime::new(limits, Rc::new(|| Instant::START));
    let fib = function(&[CqlType::Bigint], CqlType::Bigint, false, FIB);
    let arguments = [bigint(22), bigint(21)].map(|n| [Some(Bytes::copy_from_slice(&n))]);
    let mut calls: Vec<_> =
        arguments.iter().map(|arguments| Box::pin(runtime.call(&fib, arguments))).collect();
    let mut context = Context::from_waker(Waker::noop());
    let (mut results, mut turns) = ([None, None], 0);
    while results.iter().any(Option::is_none) {
        turns += 1;
        for (at, call) in
            calls.iter_mut().enumerate().filter(|(at, _)| results[*at].is_none()).collect::<Vec<_>>()
        {
            if let Poll::Ready(result) = call.as_mut().poll(&mut context) {
                results[at] = result.unwrap().value;
            }
        }
    }
    assert!(turns > 2, "{turns}");
    assert_eq!(
        results.map(|value| value.unwrap().to_vec()),
        [bigint(17_711).to_vec(), bigint(10_946).to_vec()]
    );
}
